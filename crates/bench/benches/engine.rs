//! The cost of the engines alone. The memory engine gets and sets data that fits the processor's caches, and data that
//! does not. Each engine gets keys of unequal popularity.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use knee_kv_cache::engine::{Change, Engine, Expiry};
use knee_kv_cache::{Memory, MemoryLimits};
use knee_kv_store::{Consistency, DirectoryOptions, Durability, Items, Store, StoreOptions};

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

fn set(engine: &mut impl Engine, key: &[u8], value: &[u8]) {
    let put = Change::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value };
    let (outcome, ()) = engine.update(key, NOW, |_| (put, ()));
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
                get(&mut memory, keys.next(), &mut out);
                black_box(&out);
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

/// Draws of keys by Zipf's law with exponent 0.8. Of N keys, the rank is N·u⁵ for a uniform u, which approximates all
/// but the first few ranks. The ranks are spread over the keys.
fn zipf(keys: &mut Keys, draws: usize) -> Vec<u32> {
    let count = keys.keys.len();
    let draw = |_| {
        keys.next();
        let rank = (keys.state as f64 / u64::MAX as f64).powi(5) * count as f64;
        (rank as usize * 611_953 % count) as u32
    };
    (0..draws).map(draw).collect()
}

fn get_unequally(criterion: &mut Criterion) {
    let options = StoreOptions {
        consistency: Consistency::Linearizable,
        stripes: 64,
        value_bytes_max: 1 << 20,
        segment_bytes: 16 << 20,
    };
    let path = std::env::temp_dir().join(format!("knee-engine-{}", std::process::id()));
    for (name, count, value_bytes) in
        [("Zipf 1M keys of 32 B", 1_000_000, 32), ("Zipf 20k keys of 4 KiB", 20_000, 4096)]
    {
        let mut keys = Keys::new(count);
        let value = vec![7; value_bytes];
        let draws = zipf(&mut keys, 1 << 20);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        let mut measure = |name: &str, engine: &mut dyn FnMut(&[u8], &mut Vec<u8>)| {
            let (mut out, mut next) = (Vec::with_capacity(8192), draws.iter().cycle());
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter(|| {
                    out.clear();
                    let key = next.next().expect("draws go round");
                    engine(&keys.keys[*key as usize], &mut out);
                    black_box(&out);
                });
            });
        };
        let mut memory = filled(&keys, 512 << 20, &value);
        measure("cache", &mut |key, out| get(&mut memory, key, out));
        drop(memory);

        let store = Store::in_memory(options, 1 << 30).expect("memory suffices");
        let mut items = Items::new(store);
        keys.keys.iter().for_each(|key| set(&mut items, key, &value));
        measure("versioned, in memory", &mut |key, out| get(&mut items, key, out));
        drop(items);

        let directory =
            DirectoryOptions { path: path.clone(), durability: Durability::Always, repair: false };
        let (store, _) = Store::open(options, &directory, 1 << 30).expect("it opens");
        let mut items = Items::new(store);
        keys.keys.iter().for_each(|key| set(&mut items, key, &value));
        // Full segments are read from their files from here on.
        items.settle().expect("it is written");
        measure("versioned, in a directory", &mut |key, out| get(&mut items, key, out));
        drop(items);
        std::fs::remove_dir_all(&path).expect("it was there");
        group.finish();
    }
}

/// Reclaims a log of small records, nearly all of them replaced, as sets of larger values cause it.
fn have_back(criterion: &mut Criterion) {
    const RECORDS: u64 = 1 << 19;
    let options = StoreOptions {
        consistency: Consistency::Linearizable,
        stripes: 64,
        value_bytes_max: 1 << 20,
        segment_bytes: 2 << 20,
    };
    let mut keys = Keys::new(10_000);
    let mut group = criterion.benchmark_group("half a million records of 32 B");
    group.sample_size(10).throughput(Throughput::Elements(RECORDS));
    group.bench_function(BenchmarkId::from_parameter("have back"), |bencher| {
        let filled = || {
            let store = Store::in_memory(options, 1 << 30).expect("memory suffices");
            let mut items = Items::new(store.clone());
            (0..RECORDS).for_each(|_| set(&mut items, keys.next(), &[7; 32]));
            store
        };
        let compact = |store: Store| store.compact().expect("there is room");
        bencher.iter_batched(filled, compact, BatchSize::PerIteration);
    });
}

fn get(engine: &mut impl Engine, key: &[u8], out: &mut Vec<u8>) {
    let shown = engine.get(key, NOW, |item| {
        out.extend_from_slice(item.map_or(b"".as_slice(), |item| item.value));
    });
    black_box(shown).expect("nothing is damaged");
}

criterion_group!(benches, engine, get_unequally, have_back);
criterion_main!(benches);
