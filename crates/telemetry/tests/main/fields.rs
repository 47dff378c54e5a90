//! The fields of each role's lines.

use std::time::Duration;

use knee_telemetry::{
    Bottleneck, BottleneckReason, CacheCounts, HIGHEST_NS, Load, LoadClosing, LoadGauges,
    LoadTimes, Middleware, MiddlewareGauges, MiddlewareTimes, Op, Sample, Stats, Store,
    StoreGauges, StoreTimes, VersionGauges,
};
use serde_json::Value;

use crate::printed::{decode, json_lines, keys, reporter};

fn get(times: MiddlewareTimes) -> Sample<MiddlewareTimes> {
    Sample { times, items: 1, hits: 1, misses: 0, bytes_in: 20, bytes_out: 4100, error: false }
}

#[test]
fn middleware_prints_exactly_its_fields() {
    let (mut reporter, sink, clock) = reporter::<Middleware>(Stats::Json);
    let servers = ["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
    let gauges = MiddlewareGauges::new(clock.at(0).mono, 4, &servers);
    let mut recorder = reporter.recorder("net-0", gauges, clock.at(0));
    reporter.ready(Some("127.0.0.1:11211".parse().unwrap()));
    let running = reporter.start().unwrap();

    recorder.connections = 3;
    recorder.gauges.queue_length.set(clock.at(250).mono, 2);
    recorder.gauges.queue_length.set(clock.at(500).mono, 1);
    recorder.gauges.busy.set(clock.at(500).mono, 3);
    recorder.gauges.servers[1].requests += 1;
    recorder.gauges.servers[1].bytes += 4120;
    recorder.gauges.servers[1].ejected += 1;
    recorder.gauges.servers[1].probes += 1;
    recorder.gauges.servers[1].retries += 2;
    recorder.gauges.servers[1].up = false;
    recorder.record(
        Op::Get,
        &get(MiddlewareTimes { queueing_ns: 100, service_ns: 200, response_ns: 350 }),
    );
    recorder.cut(clock.at(750));
    recorder.finish(clock.at(1250));
    running.finish(|_| ());

    let lines = json_lines(&sink);
    let [ready, first, last, summary] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(
        *ready,
        serde_json::json!({
            "type": "ready", "role": "middleware", "program": "test",
            "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id(),
            "listen": "127.0.0.1:11211",
        })
    );
    let mut expected = serde_json::json!({
        "type": "window", "role": "middleware", "second": 1_700_000_000, "seconds": 0.75,
        "ops": {"get": {
            "count": 1, "errors": 0, "items": 1, "hits": 1, "misses": 0,
            "bytes_in": 20, "bytes_out": 4100,
            "queueing_sum_ns": 100, "service_sum_ns": 200, "response_sum_ns": 350,
        }},
        // (2 · 0.25 s + 1 · 0.25 s) / 0.75 s
        "queue_length_mean": 1.0, "queue_length_end": 1, "queue_length_max": 2,
        "workers": 4, "workers_busy_s": 0.75,
        "connections": 3,
        "servers": [
            {"address": "127.0.0.1:1", "requests": 0, "bytes": 0, "errors": 0, "ejected": 0,
             "probes": 0, "retries": 0, "up": true},
            {"address": "127.0.0.1:2", "requests": 1, "bytes": 4120, "errors": 0, "ejected": 1,
             "probes": 1, "retries": 2, "up": false},
        ],
    });
    let servers = expected["servers"].clone();
    expected["ops"]["get"]["response"] = first["ops"]["get"]["response"].clone();
    expected["threads"] = first["threads"].clone();
    assert_eq!(*first, expected);
    assert_eq!(decode(&first["ops"]["get"]["response"]).count_at(350), 1);
    assert_eq!(first["threads"][0]["name"], "net-0");
    assert!(first["threads"][0]["cpu_s"].as_f64().unwrap() >= 0.0);

    assert_eq!(last["second"], 1_700_000_001);
    assert_eq!(last["seconds"], 0.5);
    assert_eq!(last["ops"], serde_json::json!({}));
    assert_eq!(last["queue_length_mean"], 1.0);
    assert_eq!(last["workers_busy_s"], 1.5);
    assert_eq!(last["servers"][1]["bytes"], 0);

    let mut fields = keys(first);
    fields.remove("second");
    fields.extend(["started_unix_s", "ended_unix_s", "histograms"]);
    assert_eq!(keys(summary), fields);
    assert_eq!(summary["type"], "summary");
    // An f64 holds today's seconds to a quarter of a microsecond.
    let near = |field: &str, s: f64| (summary[field].as_f64().unwrap() - s).abs() < 1e-6;
    assert!(near("started_unix_s", 1_700_000_000.25), "{}", summary["started_unix_s"]);
    assert!(near("ended_unix_s", 1_700_000_001.5), "{}", summary["ended_unix_s"]);
    assert_eq!(summary["seconds"], 1.25);
    assert_eq!(summary["workers_busy_s"], 2.25);
    assert_eq!(summary["servers"], servers);
    let stages: Vec<_> = summary["histograms"].as_array().unwrap().iter().map(stage).collect();
    assert_eq!(
        stages,
        [("get", "queueing", 100), ("get", "service", 200), ("get", "response", 350)]
    );
}

/// Type, stage and maximum of a summary's histogram with one sample. Checks that its other figures agree.
fn stage(line: &Value) -> (&str, &str, u64) {
    let max = line["max"].as_u64().unwrap();
    assert_eq!(line["unit"], "ns");
    assert_eq!(line["count"], 1);
    assert_eq!(line["mean"].as_f64().unwrap(), max as f64);
    for quantile in ["p50", "p90", "p95", "p99", "p999"] {
        assert_eq!(line[quantile].as_u64().unwrap(), max);
    }
    assert_eq!(decode(&line["hdr"]).max(), max);
    (line["op"].as_str().unwrap(), line["stage"].as_str().unwrap(), max)
}

#[test]
fn pipelined_mode_has_no_workers() {
    let (mut reporter, sink, clock) = reporter::<Middleware>(Stats::Json);
    let gauges = MiddlewareGauges::new(clock.at(0).mono, 0, &[]);
    let recorder = reporter.recorder("net-0", gauges, clock.at(0));
    let running = reporter.start().unwrap();
    recorder.finish(clock.at(500));
    running.finish(|_| ());
    for line in json_lines(&sink) {
        assert_eq!(line.get("workers"), None);
        assert_eq!(line.get("workers_busy_s"), None);
        assert!(line.get("queue_length_mean").is_some());
    }
}

#[test]
fn near_cache_counts_over_threads_and_windows() {
    let (mut reporter, sink, clock) = reporter::<Middleware>(Stats::Json);
    let mut recorders: Vec<_> = ["net-0", "net-1"]
        .map(|name| {
            let mut gauges = MiddlewareGauges::new(clock.at(0).mono, 0, &[]);
            gauges.cache = Some(CacheCounts::default());
            reporter.recorder(name.to_owned(), gauges, clock.at(0))
        })
        .into();
    let running = reporter.start().unwrap();
    for recorder in &mut recorders {
        recorder.gauges.cache = Some(CacheCounts { hits: 3, misses: 1 });
        recorder.cut(clock.at(750));
    }
    recorders[0].gauges.cache = Some(CacheCounts { hits: 1, misses: 0 });
    for recorder in recorders {
        recorder.finish(clock.at(1250));
    }
    running.finish(|_| ());
    let counts: Vec<_> = json_lines(&sink)
        .iter()
        .map(|line| [line["cache_hits"].as_u64().unwrap(), line["cache_misses"].as_u64().unwrap()])
        .collect();
    assert_eq!(counts, [[6, 2], [1, 0], [7, 2]]);
}

#[test]
fn store_times_service_alone() {
    let (mut reporter, sink, clock) = reporter::<Store>(Stats::Json);
    let mut recorder = reporter.recorder("kv-0", StoreGauges::default(), clock.at(0));
    let running = reporter.start().unwrap();
    recorder.gauges = StoreGauges {
        memory_bytes: 4096,
        items_stored: 2,
        evictions: 5,
        expired: 1,
        ..StoreGauges::default()
    };
    let times = StoreTimes { service_ns: 700 };
    recorder.record(Op::Set, &Sample { times, items: 1, ..Sample::default() });
    recorder.cut(clock.at(750));
    recorder.gauges.evictions += 1;
    recorder.finish(clock.at(1000));
    running.finish(|_| ());

    let lines = json_lines(&sink);
    let [first, last, summary] = lines.as_slice() else { panic!("{lines:?}") };
    let set = &first["ops"]["set"];
    assert_eq!(set["service_sum_ns"], 700);
    assert_eq!((set.get("queueing_sum_ns"), set.get("response_sum_ns")), (None, None));
    assert_eq!(decode(&set["response"]).count_at(700), 1);
    let gauges = |line: &Value| {
        ["memory_bytes", "items_stored", "evictions", "expired"]
            .map(|name| line[name].as_u64().unwrap())
    };
    assert_eq!(gauges(first), [4096, 2, 5, 1]);
    assert_eq!(gauges(last), [4096, 2, 1, 0]);
    assert_eq!(gauges(summary), [4096, 2, 6, 1]);
    assert_eq!(first.get("queue_length_mean"), None);
    assert_eq!(summary.get("servers"), None);
}

#[test]
fn versioned_store_prints_versions_and_request_times() {
    let (mut reporter, sink, clock) = reporter::<Store>(Stats::Json);
    let mut one = reporter.recorder("net-0", StoreGauges::default(), clock.at(0));
    let mut other = reporter.recorder("grpc-0", StoreGauges::default(), clock.at(0));
    let running = reporter.start().unwrap();
    let counted = |commit_max_ns| VersionGauges {
        keys: 7,
        snapshot_age_ns: 1_500_000_000,
        commits: 2,
        commit_max_ns,
        ..VersionGauges::default()
    };
    one.gauges.versions = Some(counted(900));
    one.gauges.requested(5_000_000_000);
    other.gauges.requested(4_500_000_000);
    other.gauges.requested(6_000_000_000);
    one.cut(clock.at(750));
    other.cut_with(clock.at(750), Duration::from_millis(30));
    one.gauges.versions = Some(VersionGauges { keys: 8, ..counted(300) });
    one.finish(clock.at(1750));
    other.finish_with(clock.at(1750), Duration::from_millis(70));
    running.finish(|_| ());

    let lines = json_lines(&sink);
    let [first, last, summary] = lines.as_slice() else { panic!("{lines:?}") };
    let fields = |line: &Value| {
        ["keys", "commits", "commit_max_ns"].map(|name| line[name].as_u64().unwrap())
    };
    assert_eq!(
        [fields(first), fields(last), fields(summary)],
        [[7, 2, 900], [8, 2, 300], [8, 4, 900]]
    );
    assert_eq!(first["snapshot_age_s"], 1.5);
    let span = |line: &Value| {
        (line["first_request_unix_s"].as_f64(), line["last_request_unix_s"].as_f64())
    };
    assert_eq!(span(first), (Some(4.5), Some(6.0)));
    assert_eq!(span(last), (None, None), "none came");
    assert_eq!(span(summary), (Some(4.5), Some(6.0)));
    let cpu: Vec<_> = lines.iter().map(|line| line["threads"][1]["cpu_s"].as_f64()).collect();
    assert_eq!(cpu, [Some(0.03), Some(0.04), Some(0.07)]);
}

#[test]
fn load_generator_prints_its_bottleneck() {
    let (mut reporter, sink, clock) = reporter::<Load>(Stats::Json);
    let mut recorder = reporter.recorder("load-0", LoadGauges::default(), clock.at(0));
    reporter.ready(None);
    let running = reporter.start().unwrap();
    recorder.gauges.sent(900_000);
    recorder.gauges.sent(5_000_000);
    recorder.gauges.in_flight = 7;
    recorder.gauges.losses = 2;
    recorder.gauges.reconnects = 1;
    let times = LoadTimes { response_ns: u64::MAX };
    recorder.record(Op::Get, &Sample { times, items: 1, misses: 1, ..Sample::default() });
    recorder.finish(clock.at(250));
    running.finish(|totals| LoadClosing {
        clients: 12,
        bottleneck: Some(Bottleneck {
            reason: BottleneckReason::Late,
            detail: format!("{} late", totals.reading().unwrap().late_sends),
        }),
        interrupted: true,
        unsent: 3,
    });

    let lines = json_lines(&sink);
    let [ready, window, summary] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((ready.get("listen"), ready.get("admin")), (None, None));
    let fields = ["late_sends", "late_max_ns", "wrong_values", "losses", "reconnects", "in_flight"];
    for line in [window, summary] {
        assert_eq!(fields.map(|name| line[name].as_u64().unwrap()), [1, 5_000_000, 0, 2, 1, 7]);
    }
    assert_eq!(summary["clients"], 12);
    assert_eq!((&summary["interrupted"], &summary["unsent"]), (&true.into(), &3.into()));
    assert_eq!(summary["bottleneck"], serde_json::json!({"reason": "late", "detail": "1 late"}));
    let response = &summary["histograms"][0];
    assert_eq!(response["max"], HIGHEST_NS);
    assert_eq!(response["p50"], HIGHEST_NS);
}
