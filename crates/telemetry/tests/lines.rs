//! What a process prints, from recorders to text, with clocks that the tests move.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Cursor, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use knee_telemetry::{
    Bottleneck, BottleneckReason, HIGHEST_NS, Load, LoadClosing, LoadGauges, LoadTimes, Middleware,
    MiddlewareGauges, MiddlewareTimes, Moment, Op, Recorder, Reporter, Role, Sample, Stats, Store,
    StoreGauges, StoreTimes, VersionGauges,
};
use proptest::prelude::*;
use serde_json::Value;

/// Memory that outlives the reporter that writes to it.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// The beginning of every test's time, 1,700,000,000.25 s.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn at(self, ms: u64) -> Moment {
        Moment {
            wall: UNIX_EPOCH + Duration::from_millis(1_700_000_000_250 + ms),
            mono: self.0 + Duration::from_millis(ms),
        }
    }
}

fn reporter<R: Role>(stats: Stats) -> (Reporter<R>, Sink, Clock) {
    let sink = Sink::default();
    let reporter = Reporter::to_sink("test", stats, Box::new(sink.clone()));
    (reporter, sink, Clock(Instant::now()))
}

fn json_lines(sink: &Sink) -> Vec<Value> {
    sink.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn decode(text: &Value) -> Histogram<u64> {
    decode_text(text.as_str().unwrap())
}

fn decode_text(text: &str) -> Histogram<u64> {
    let bytes = BASE64.decode(text).unwrap();
    Deserializer::new().deserialize(&mut Cursor::new(bytes)).unwrap()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn get(times: MiddlewareTimes) -> Sample<MiddlewareTimes> {
    Sample { times, items: 1, hits: 1, misses: 0, bytes_in: 20, bytes_out: 4100, error: false }
}

#[test]
fn a_middleware_prints_exactly_its_fields() {
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
    recorder.gauges.servers[1].ejected += 1;
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
    });
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

    let mut fields = keys(first);
    fields.remove("second");
    fields.extend(["started_unix_s", "ended_unix_s", "servers", "histograms"]);
    assert_eq!(keys(summary), fields);
    assert_eq!(summary["type"], "summary");
    // An f64 holds today's seconds to a quarter of a microsecond.
    let near = |field: &str, s: f64| (summary[field].as_f64().unwrap() - s).abs() < 1e-6;
    assert!(near("started_unix_s", 1_700_000_000.25), "{}", summary["started_unix_s"]);
    assert!(near("ended_unix_s", 1_700_000_001.5), "{}", summary["ended_unix_s"]);
    assert_eq!(summary["seconds"], 1.25);
    assert_eq!(summary["workers_busy_s"], 2.25);
    assert_eq!(
        summary["servers"],
        serde_json::json!([
            {"address": "127.0.0.1:1", "requests": 0, "errors": 0, "ejected": 0, "up": true},
            {"address": "127.0.0.1:2", "requests": 1, "errors": 0, "ejected": 1, "up": false},
        ])
    );
    let stages: Vec<_> = summary["histograms"].as_array().unwrap().iter().map(stage).collect();
    assert_eq!(
        stages,
        [("get", "queueing", 100), ("get", "service", 200), ("get", "response", 350)]
    );
}

/// Type, stage and maximum of one of a summary's histograms of one sample, after checking that its
/// other figures agree.
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
fn a_store_times_service_alone() {
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
fn a_store_that_keeps_versions_tells_of_them_and_of_when_requests_came() {
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
fn a_load_generator_says_whether_it_was_the_bottleneck() {
    let (mut reporter, sink, clock) = reporter::<Load>(Stats::Json);
    let mut recorder = reporter.recorder("load-0", LoadGauges::default(), clock.at(0));
    reporter.ready(None);
    let running = reporter.start().unwrap();
    recorder.gauges.sent(900_000);
    recorder.gauges.sent(5_000_000);
    recorder.gauges.in_flight = 7;
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
    let fields = ["late_sends", "late_max_ns", "wrong_values", "reconnects", "in_flight"];
    assert_eq!(fields.map(|name| window[name].as_u64().unwrap()), [1, 5_000_000, 0, 0, 7]);
    assert_eq!(summary["clients"], 12);
    assert_eq!((&summary["interrupted"], &summary["unsent"]), (&true.into(), &3.into()));
    assert_eq!(summary["bottleneck"], serde_json::json!({"reason": "late", "detail": "1 late"}));
    let response = &summary["histograms"][0];
    assert_eq!(response["max"], HIGHEST_NS);
    assert_eq!(response["p50"], HIGHEST_NS);
}

#[test]
fn the_seeds_columns() {
    let (mut reporter, sink, clock) = reporter::<Middleware>(Stats::Csv);
    let gauges = MiddlewareGauges::new(clock.at(0).mono, 8, &[]);
    let mut recorder = reporter.recorder("net-0", gauges, clock.at(0));
    reporter.ready(Some("127.0.0.1:11211".parse().unwrap()));
    let running = reporter.start().unwrap();
    // No row before the first request.
    recorder.cut(clock.at(750));
    let times = |queueing_ns, service_ns| MiddlewareTimes {
        queueing_ns,
        service_ns,
        response_ns: queueing_ns + service_ns,
    };
    let sample = |times, items, misses| Sample {
        times,
        items,
        hits: items - misses,
        misses,
        ..Sample::default()
    };
    recorder.gauges.queue_length.set(clock.at(750).mono, 3);
    recorder.gauges.queue_length.set(clock.at(1250).mono, 0);
    recorder.record(
        Op::Set,
        &Sample { items: 1, times: times(1_000_000, 98_999), ..Sample::default() },
    );
    recorder.record(Op::Get, &sample(times(200_000, 450_000), 1, 0));
    recorder.record(Op::Get, &sample(times(400_000, 850_000), 1, 0));
    // Two multi-gets of five keys with one miss: 1 of 12 keys is missing.
    recorder.record(Op::Multiget, &sample(times(0, 1_050_000), 5, 1));
    recorder.record(Op::Multiget, &sample(times(0, 3_050_000), 5, 0));
    recorder.record(Op::Delete, &sample(times(0, 1), 1, 1));
    recorder.cut(clock.at(1750));
    recorder.finish(clock.at(2250));
    running.finish(|_| ());
    assert_eq!(
        sink.text(),
        "secs,qlen,thru,msrt,items,nset,nget,nmget,sqt,gqt,mqt,swt,gwt,mwt\n\
         0,1.500,6.000,0.0833333,12,1,2,2,1.000000,0.300000,0.000000,0.098999,0.650000,2.050000\n\
         1,0.000,0.000,0.0000000,0,0,0,0,0.000000,0.000000,0.000000,0.000000,0.000000,0.000000\n\
         # histogram set\n\
         1.1,1\n\
         # histogram get\n\
         0.7,1\n\
         1.3,1\n\
         # histogram multiget\n\
         1.1,1\n\
         3.1,1\n\
         # histogram delete\n\
         0.1,1\n"
    );
}

#[test]
fn the_formats_own_reader_reads_the_histogram_log() {
    let (mut reporter, _, clock) = reporter::<Load>(Stats::None);
    let log = Sink::default();
    reporter.log_histograms(Box::new(log.clone()));
    let mut recorder = reporter.recorder("load-0", LoadGauges::default(), clock.at(0));
    let running = reporter.start().unwrap();
    let sample = |response_ns| Sample { times: LoadTimes { response_ns }, ..Sample::default() };
    recorder.record(Op::Set, &sample(2_000_000));
    recorder.record(Op::Get, &sample(1_000_000));
    recorder.cut(clock.at(750));
    recorder.record(Op::Get, &sample(500));
    recorder.record(Op::Get, &sample(600));
    recorder.finish(clock.at(1250));
    running.finish(|_| LoadClosing { clients: 1, ..LoadClosing::default() });

    let text = log.text();
    assert!(text.starts_with("#[Histogram log format version 1.3]\n#[StartTime: 1700000000.250 "));
    let mut intervals = Vec::new();
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        match entry.unwrap() {
            LogEntry::StartTime(start) => assert_eq!(start.as_millis(), 1_700_000_000_250),
            LogEntry::BaseTime(_) => panic!("timestamps are absolute"),
            LogEntry::Interval(interval) => intervals.push((
                interval.tag().unwrap().as_str(),
                interval.start_timestamp().as_millis(),
                interval.duration().as_millis(),
                decode_text(interval.encoded_histogram()).len(),
            )),
        }
    }
    assert_eq!(
        intervals,
        [
            ("set", 1_700_000_000_250, 750, 1),
            ("get", 1_700_000_000_250, 750, 1),
            ("get", 1_700_000_001_000, 500, 2),
        ]
    );
}

#[test]
fn a_thread_that_dies_does_not_keep_the_summary_from_being_printed() {
    let (mut reporter, sink, clock) = reporter::<Store>(Stats::Json);
    let mut lives = reporter.recorder("kv-0", StoreGauges::default(), clock.at(0));
    let dies = reporter.recorder("kv-1", StoreGauges::default(), clock.at(0));
    let running = reporter.start().unwrap();
    drop(dies);
    lives.record(Op::Get, &Sample::default());
    lives.cut(clock.at(750));
    lives.finish(clock.at(1750));
    running.finish(|_| ());
    let lines = json_lines(&sink);
    let kinds: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["window", "window", "summary"]);
}

#[test]
fn a_closed_output_does_not_end_the_process() {
    let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(reader);
    let mut reporter = Reporter::<Store>::to_sink("test", Stats::Json, Box::new(writer));
    let clock = Clock(Instant::now());
    let mut recorder = reporter.recorder("kv-0", StoreGauges::default(), clock.at(0));
    let running = reporter.start().unwrap();
    recorder.record(Op::Get, &Sample::default());
    recorder.cut(clock.at(750));
    recorder.finish(clock.at(1750));
    let mut counted = 0;
    running.finish(|totals| counted = totals.all_counts().count);
    assert_eq!(counted, 1);
}

fn full_disk() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_full_disk_under_all_output_does_not_end_the_process() {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "report_to_a_full_disk", "--ignored", "--nocapture"])
        .stdout(Stdio::null())
        .stderr(full_disk())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "a process of its own, with a full disk as its standard error, has to run it"]
fn report_to_a_full_disk() {
    let mut reporter = Reporter::<Store>::to_sink("test", Stats::Csv, Box::new(full_disk()));
    let clock = Clock(Instant::now());
    let mut recorder = reporter.recorder("kv-0", StoreGauges::default(), clock.at(0));
    reporter.ready(Some("127.0.0.1:11211".parse().unwrap()));
    let running = reporter.start().unwrap();
    recorder.record(Op::Get, &Sample::default());
    recorder.cut(clock.at(750));
    recorder.finish(clock.at(1750));
    let mut counted = 0;
    running.finish(|totals| counted = totals.all_counts().count);
    assert_eq!(counted, 1);
}

/// Takes nothing before the test lets go of the lock.
struct Stuck(Sink, Arc<Mutex<()>>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _free = self.1.lock().unwrap();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn windows_that_nobody_reads_become_few_and_long() {
    let (sink, lock) = (Sink::default(), Arc::new(Mutex::new(())));
    let stuck = Stuck(sink.clone(), Arc::clone(&lock));
    let mut reporter = Reporter::<Store>::to_sink("test", Stats::Json, Box::new(stuck));
    let clock = Clock(Instant::now());
    let mut recorder = reporter.recorder("kv-0", StoreGauges::default(), clock.at(0));
    let running = reporter.start().unwrap();
    let held = lock.lock().unwrap();
    for second in 0..100 {
        recorder.record(Op::Get, &Sample::default());
        recorder.cut(clock.at(750 + 1000 * second));
    }
    recorder.finish(clock.at(100_000));
    drop(held);
    running.finish(|_| ());
    let lines = json_lines(&sink);
    let (summary, windows) = lines.split_last().unwrap();
    assert!(windows.len() <= 12, "{} lines waited", windows.len());
    let sum = |value: &dyn Fn(&Value) -> f64| windows.iter().map(value).sum::<f64>();
    assert_eq!(sum(&|line| line["ops"]["get"]["count"].as_f64().unwrap_or(0.0)), 100.0);
    assert_eq!(sum(&|line| line["seconds"].as_f64().unwrap()), 100.0);
    assert_eq!(summary["seconds"], 100.0);
}

#[test]
fn a_window_that_begins_just_before_a_second_is_that_seconds() {
    let (mut reporter, sink, clock) = reporter::<Store>(Stats::Json);
    // 50 ms before the second; the timer for its end is set to the end of the next one.
    let began = clock.at(700);
    let mut recorder = reporter.recorder("kv-0", StoreGauges::default(), began);
    assert_eq!(began.next_second(), clock.at(1750).mono);
    let running = reporter.start().unwrap();
    recorder.cut(clock.at(1750));
    recorder.finish(clock.at(2250));
    running.finish(|_| ());
    let windows: Vec<_> = json_lines(&sink)
        .iter()
        .filter(|line| line["type"] == "window")
        .map(|line| (line["second"].as_u64().unwrap(), line["seconds"].as_f64().unwrap()))
        .collect();
    assert_eq!(windows, [(1_700_000_001, 1.05), (1_700_000_002, 0.5)]);
}

#[test]
fn a_wall_clock_that_is_set_back_does_not_lengthen_the_life() {
    let (mut reporter, sink, clock) = reporter::<Store>(Stats::Json);
    let mut recorder = reporter.recorder("kv-0", StoreGauges::default(), clock.at(0));
    let running = reporter.start().unwrap();
    recorder.cut(clock.at(750));
    let set_back = |ms| {
        let now = clock.at(ms);
        Moment { wall: now.wall - Duration::from_secs(3600), ..now }
    };
    recorder.cut(set_back(1750));
    recorder.finish(set_back(2250));
    running.finish(|_| ());
    let lines = json_lines(&sink);
    let summary = lines.last().unwrap();
    assert_eq!(summary["seconds"], 2.25);
    let started_s = summary["started_unix_s"].as_f64().unwrap();
    assert!((started_s - 1_700_000_000.25).abs() < 1e-3, "{started_s}");
}

/// (thread, window, type, misses of three keys, response)
type Request = (usize, u64, usize, u32, u64);

fn record(recorder: &mut Recorder<Load>, request: Request) {
    let (_, _, op, misses, response_ns) = request;
    let sample = Sample {
        times: LoadTimes { response_ns },
        items: 3,
        hits: 3 - misses,
        misses,
        bytes_in: 10,
        bytes_out: 20,
        error: misses == 3,
    };
    recorder.record(Op::ALL[op], &sample);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Every line parses, and the windows add up to the summary.
    #[test]
    fn lines_add_up(
        requests in prop::collection::vec(
            (0..2_usize, 0..3_u64, 0..Op::COUNT, 0..=3_u32, 0..HIGHEST_NS),
            0..60,
        ),
    ) {
        let (mut reporter, sink, clock) = reporter::<Load>(Stats::Json);
        let mut recorders: Vec<_> = (0..2)
            .map(|thread| {
                reporter.recorder(format!("load-{thread}"), LoadGauges::default(), clock.at(0))
            })
            .collect();
        let running = reporter.start().unwrap();
        for window in 0..3 {
            for request in requests.iter().filter(|request| request.1 == window) {
                record(&mut recorders[request.0], *request);
            }
            for recorder in &mut recorders {
                recorder.cut(clock.at(750 + window * 1000));
            }
        }
        for recorder in recorders {
            recorder.finish(clock.at(3000));
        }
        running.finish(|_| LoadClosing { clients: 2, ..LoadClosing::default() });

        let lines = json_lines(&sink);
        let (summary, windows) = lines.split_last().unwrap();
        prop_assert_eq!(&summary["type"], "summary");
        prop_assert_eq!(windows.len(), 4);
        let seconds: f64 = windows.iter().map(|line| line["seconds"].as_f64().unwrap()).sum();
        prop_assert_eq!(seconds, summary["seconds"].as_f64().unwrap());

        let sum = |op: &str, field: &str| -> u64 {
            windows.iter().filter_map(|line| line["ops"][op][field].as_u64()).sum()
        };
        for (index, op) in Op::ALL.iter().enumerate() {
            let name = op.name();
            let of_type: Vec<_> = requests.iter().filter(|request| request.2 == index).collect();
            prop_assert_eq!(sum(name, "count"), of_type.len() as u64);
            let Some(total) = summary["ops"].get(name) else {
                prop_assert!(of_type.is_empty());
                continue;
            };
            for field in ["count", "errors", "items", "hits", "misses", "bytes_in", "bytes_out",
                          "response_sum_ns"] {
                prop_assert_eq!(sum(name, field), total[field].as_u64().unwrap());
            }
            prop_assert_eq!(sum(name, "items"), sum(name, "hits") + sum(name, "misses"));
            prop_assert!(sum(name, "errors") <= sum(name, "count"));

            let mut merged = decode(&total["response"]);
            prop_assert_eq!(merged.len(), of_type.len() as u64);
            for line in windows {
                if let Some(window) = line["ops"].get(name) {
                    let histogram = decode(&window["response"]);
                    prop_assert_eq!(histogram.len(), window["count"].as_u64().unwrap());
                    merged.subtract(histogram).unwrap();
                }
            }
            prop_assert!(merged.is_empty());
        }
    }
}
