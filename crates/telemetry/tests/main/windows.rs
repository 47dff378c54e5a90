//! The seconds of windows, and their sums.

use knee_telemetry::{
    HIGHEST_NS, Load, LoadClosing, LoadGauges, LoadTimes, Moment, Op, Recorder, Sample, Stats,
    Store, StoreGauges,
};
use proptest::prelude::*;

use crate::printed::{decode, json_lines, reporter};

#[test]
fn window_just_before_a_second_counts_for_it() {
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
fn clock_set_back_does_not_lengthen_the_life() {
    let (mut reporter, sink, clock) = reporter::<Store>(Stats::Json);
    let mut recorder = reporter.recorder("kv-0", StoreGauges::default(), clock.at(0));
    let running = reporter.start().unwrap();
    recorder.cut(clock.at(750));
    let set_back = |ms| {
        let now = clock.at(ms);
        Moment { unix_ns: now.unix_ns - 3600 * 1_000_000_000, ..now }
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
    #![proptest_config(ProptestConfig::with_cases(6))]

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
