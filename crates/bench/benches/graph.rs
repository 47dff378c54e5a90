//! A graph as skewed as Twitter's: the cost of making and reading it, and the best number of edges per commit. Loads
//! read lists grouped by user, and shuffled lists.

use std::fs;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use knee_kv::graph::{Edge, EdgeReader, LoadOptions, SyntheticGraph, load};
use knee_kv_store::{Consistency, DirectoryOptions, Durability, Store, StoreOptions};

const EDGES: u64 = 1_000_000;

fn graph() -> SyntheticGraph {
    SyntheticGraph::new(30_000, EDGES, 2.6, 1).expect("there is one")
}

/// The same edges, shuffled.
fn shuffled() -> Vec<u8> {
    let mut edges: Vec<Edge> = graph().edges().collect();
    let mut state = 88_172_645_463_325_252_u64;
    for index in (1..edges.len()).rev() {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        edges.swap(index, (state % (index as u64 + 1)) as usize);
    }
    let lines = edges.iter().map(|Edge { user, follower }| format!("{user}\t{follower}\n"));
    lines.collect::<String>().into_bytes()
}

fn grouped() -> Vec<u8> {
    let mut list = Vec::new();
    graph().write_to(&mut list).expect("memory takes it");
    list
}

fn text(c: &mut Criterion) {
    let mut group = c.benchmark_group("edge list");
    group.sample_size(10).throughput(Throughput::Elements(EDGES));
    group.bench_function("write", |bench| {
        bench.iter(|| graph().write_to(std::io::sink()).expect("nothing to fail"));
    });
    let list = grouped();
    group.bench_function("read", |bench| {
        bench.iter(|| {
            let mut reader = EdgeReader::new(&list[..]);
            while reader.next_edge().expect("it is a list").is_some() {}
            assert_eq!(reader.position().edges, EDGES);
        });
    });
    group.finish();
}

/// Loads into a fresh store in a directory, and returns the time.
fn timed(list: &[u8], commit_edges: usize) -> Duration {
    let path = std::env::temp_dir().join(format!("knee-kv-bench-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    let options = StoreOptions {
        consistency: Consistency::Linearizable,
        stripes: 64,
        value_bytes_max: 64 << 20,
        segment_bytes: 64 << 20,
    };
    let directory =
        DirectoryOptions { path: path.clone(), durability: Durability::Always, repair: false };
    let (store, _) = Store::open(options, &directory, 8 << 30).expect("it opens");
    let options = LoadOptions { name: "bench", commit_edges, now: || 1 };
    let begun = Instant::now();
    load(&store, list, &options, |_| ControlFlow::Continue(())).expect("it is a list");
    let taken = begun.elapsed();
    drop(store);
    let _ = fs::remove_dir_all(&path);
    taken
}

fn commits(c: &mut Criterion) {
    let mut group = c.benchmark_group("load");
    group.sample_size(10).throughput(Throughput::Elements(EDGES));
    for (order, list) in [("grouped", grouped()), ("shuffled", shuffled())] {
        for commit_edges in [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20] {
            let id = BenchmarkId::new(order, commit_edges);
            group.bench_with_input(id, &commit_edges, |bench, &commit_edges| {
                bench.iter_custom(|times| (0..times).map(|_| timed(&list, commit_edges)).sum());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, text, commits);
criterion_main!(benches);
