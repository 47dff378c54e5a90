//! The cost of decoding and encoding the requests of experiments, and their responses.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use knee_proto::{
    Decoded, Expect, GetVerb, Limits, RequestDecoder, ResponseDecoder, Store, StoreVerb, encode,
};

const RESPONSE_BYTES_MAX: usize = 1 << 20;

fn keys(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("memtier-{number:08}").into_bytes()).collect()
}

fn get(count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::get(GetVerb::Get, keys(count).iter().map(Vec::as_slice), &mut bytes);
    bytes
}

fn set(value_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    with_set(value_bytes, |store| encode::store(store, &mut bytes));
    bytes
}

fn with_set(value_bytes: usize, mut then: impl FnMut(&Store<'_>)) {
    then(&Store {
        verb: StoreVerb::Set,
        key: &keys(1)[0],
        flags: 0,
        exptime: 0,
        cas: 0,
        value: &vec![b'v'; value_bytes],
        noreply: false,
    });
}

fn values(count: usize, value_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for key in keys(count) {
        encode::value(&key, 0, &vec![b'v'; value_bytes], None, &mut bytes);
    }
    bytes.extend_from_slice(encode::END);
    bytes
}

fn decode_requests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode request");
    for (name, bytes) in [
        ("get", get(1)),
        ("get of 10 keys", get(10)),
        ("set of 32 bytes", set(32)),
        ("set of 4096 bytes", set(4096)),
        ("mg", b"mg memtier-00000000 v t\r\n".to_vec()),
    ] {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let mut decoder = RequestDecoder::new(Limits::default());
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let outcome = decoder.decode(black_box(&bytes));
                assert!(matches!(black_box(outcome), Decoded::Complete { .. }));
            });
        });
    }
    group.finish();
}

fn decode_responses(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode response");
    for (name, expect, bytes) in [
        ("hit of 32 bytes", Expect::Retrieval, values(1, 32)),
        ("hit of 4096 bytes", Expect::Retrieval, values(1, 4096)),
        ("10 hits of 32 bytes", Expect::Retrieval, values(10, 32)),
        ("10 hits of 4096 bytes", Expect::Retrieval, values(10, 4096)),
        ("miss", Expect::Retrieval, encode::END.to_vec()),
        ("stored", Expect::Line, encode::STORED.to_vec()),
    ] {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let mut decoder = ResponseDecoder::new(RESPONSE_BYTES_MAX);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let outcome = decoder.decode(black_box(&bytes), expect);
                assert!(matches!(black_box(outcome), Decoded::Complete { .. }));
            });
        });
    }
    // The values arrive in packets of 1448 bytes, as over a network.
    let bytes = values(10, 4096);
    let mut decoder = ResponseDecoder::new(RESPONSE_BYTES_MAX);
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("10 hits of 4096 bytes, in segments", |bencher| {
        bencher.iter(|| {
            for end in (1448..bytes.len()).step_by(1448) {
                black_box(decoder.decode(black_box(&bytes[..end]), Expect::Retrieval));
            }
            let outcome = decoder.decode(black_box(&bytes), Expect::Retrieval);
            assert!(matches!(black_box(outcome), Decoded::Complete { .. }));
        });
    });
    group.finish();
}

fn encode_both(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    let mut out = Vec::with_capacity(1 << 16);
    let ten = keys(10);
    for (name, keys) in [("get", &ten[..1]), ("get of 10 keys", &ten[..])] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                out.clear();
                encode::get(GetVerb::Get, black_box(keys).iter().map(Vec::as_slice), &mut out);
                black_box(&out);
            });
        });
    }
    for value_bytes in [32, 4096] {
        with_set(value_bytes, |store| {
            group.bench_function(format!("set of {value_bytes} bytes"), |bencher| {
                bencher.iter(|| {
                    out.clear();
                    encode::store(black_box(store), &mut out);
                    black_box(&out);
                });
            });
            group.bench_function(format!("hit of {value_bytes} bytes"), |bencher| {
                bencher.iter(|| {
                    out.clear();
                    encode::value(black_box(store.key), 0, store.value, None, &mut out);
                    out.extend_from_slice(encode::END);
                    black_box(&out);
                });
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decode_requests, decode_responses, encode_both);
criterion_main!(benches);
