//! The cost of telemetry for an event loop: one record per request, one cut per second.

use std::hint::black_box;
use std::io::sink;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use knee_telemetry::{
    Level, Middleware, MiddlewareGauges, MiddlewareTimes, Moment, Op, Recorder, Reporter, Running,
    Sample, Stats, Store, StoreGauges, StoreTimes,
};

/// Response times that spread over the histogram's cells like those of a real load, without the cost of a generator.
fn spread_ns(i: u64) -> u64 {
    50_000 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44)
}

fn middleware() -> (Running<Middleware>, Recorder<Middleware>) {
    let mut reporter = Reporter::to_sink("bench", Stats::None, Box::new(sink()));
    let now = Moment::now();
    let gauges = MiddlewareGauges::new(now.mono, 8, &[]);
    let recorder = reporter.recorder("net-0", gauges, now);
    (reporter.start().expect("a thread"), recorder)
}

fn record(c: &mut Criterion) {
    let mut reporter = Reporter::<Store>::to_sink("bench", Stats::None, Box::new(sink()));
    let mut recorder = reporter.recorder("kv-0", StoreGauges::default(), Moment::now());
    let mut i = 0;
    c.bench_function("record/store (1 stage)", |b| {
        b.iter(|| {
            i += 1;
            let times = StoreTimes { service_ns: spread_ns(i) };
            recorder.record(black_box(Op::Get), &Sample { times, items: 1, ..Sample::default() });
        });
    });

    let (running, mut recorder) = middleware();
    c.bench_function("record/middleware (3 stages)", |b| {
        b.iter(|| {
            i += 1;
            let service_ns = spread_ns(i);
            let times = MiddlewareTimes {
                queueing_ns: service_ns >> 3,
                service_ns,
                response_ns: service_ns + (service_ns >> 3),
            };
            recorder.record(black_box(Op::Get), &Sample { times, items: 1, ..Sample::default() });
        });
    });
    recorder.finish(Moment::now());
    running.finish(|_| ());
}

fn level(c: &mut Criterion) {
    let start = Instant::now();
    let mut level = Level::new(start);
    let mut now = start;
    c.bench_function("level/set", |b| {
        b.iter(|| {
            now += Duration::from_nanos(700);
            level.set(black_box(now), 3);
        });
    });
}

/// A cut with three types of request, as the event loop sees it: the pause once a second.
fn cut(c: &mut Criterion) {
    c.bench_function("cut/middleware (3 types)", |b| {
        b.iter_custom(|iterations| {
            let (running, mut recorder) = middleware();
            let mut paused = Duration::ZERO;
            for i in 0..iterations {
                for op in [Op::Set, Op::Get, Op::Multiget] {
                    let times = MiddlewareTimes { response_ns: spread_ns(i), ..Default::default() };
                    recorder.record(op, &Sample { times, ..Sample::default() });
                }
                let start = Instant::now();
                recorder.cut(Moment::now());
                paused += start.elapsed();
                // The reporter finishes each window long before the next.
                std::thread::sleep(Duration::from_millis(3));
            }
            recorder.finish(Moment::now());
            running.finish(|_| ());
            paused
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).sample_size(20);
    targets = record, level, cut
}
criterion_main!(benches);
