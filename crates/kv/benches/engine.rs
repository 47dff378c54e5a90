//! What the memory engine costs by itself: a get and a set, of values that do and do not fit the
//! processor's caches together.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use knee_kv::engine::{Change, Engine, Expiry};
use knee_kv::{Memory, MemoryLimits};

const NOW: u32 = 1_700_000_000;

/// Key numbers in an order that no prefetcher guesses (Marsaglia's xorshift).
struct Keys {
    state: u64,
    keys: Vec<Vec<u8>>,
}

impl Keys {
    fn new(count: usize) -> Keys {
        let keys = (0..count).map(|number| format!("knee-{number:08}").into_bytes()).collect();
        Keys { state: 88_172_645_463_325_252, keys }
    }

    fn next(&mut self) -> &[u8] {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        &self.keys[self.state as usize % self.keys.len()]
    }
}

fn set(memory: &mut Memory, key: &[u8], value: &[u8]) {
    let put = Change::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value };
    let (outcome, ()) = memory.update(key, NOW, |_| (put, ()));
    black_box(outcome).expect("there is memory");
}

fn filled(keys: &Keys, memory_bytes_max: usize, value: &[u8]) -> Memory {
    let limits = MemoryLimits { memory_bytes_max, value_bytes_max: 1 << 20 };
    let mut memory = Memory::new(limits).expect("memory suffices");
    for key in &keys.keys {
        set(&mut memory, key, value);
    }
    memory
}

fn engine(criterion: &mut Criterion) {
    for (name, count, value_bytes) in [
        ("10k keys of 32 B", 10_000, 32),
        ("10k keys of 4 KiB", 10_000, 4096),
        ("1M keys of 32 B", 1_000_000, 32),
    ] {
        let mut keys = Keys::new(count);
        let value = vec![7; value_bytes];
        let mut memory = filled(&keys, 512 << 20, &value);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        let mut out = Vec::with_capacity(8192);
        group.bench_function(BenchmarkId::from_parameter("get"), |bencher| {
            bencher.iter(|| {
                out.clear();
                let shown = memory.get(keys.next(), NOW, |item| {
                    out.extend_from_slice(item.map_or(b"".as_slice(), |item| item.value));
                });
                black_box((shown, &out)).0.expect("nothing is damaged");
            });
        });
        group.bench_function(BenchmarkId::from_parameter("set"), |bencher| {
            bencher.iter(|| set(&mut memory, keys.next(), &value));
        });
        group.finish();
    }

    // A quarter of the keys fits: most sets evict.
    let mut keys = Keys::new(400_000);
    let value = [7; 32];
    let mut memory = filled(&keys, 8 << 20, &value);
    criterion.bench_function("set into full memory", |bencher| {
        bencher.iter(|| set(&mut memory, keys.next(), &value));
    });
}

criterion_group!(benches, engine);
criterion_main!(benches);
