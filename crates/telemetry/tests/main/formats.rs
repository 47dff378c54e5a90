//! The two other formats: the seed's columns and the histogram log.

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use knee_telemetry::{
    Load, LoadClosing, LoadGauges, LoadTimes, Middleware, MiddlewareGauges, MiddlewareTimes, Op,
    Sample, Stats,
};
use knee_testkit::Lines;

use crate::printed::{decode_text, reporter};

#[test]
fn csv_has_the_documented_columns() {
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
fn histogram_log_is_readable_by_hdrhistogram() {
    let (mut reporter, _, clock) = reporter::<Load>(Stats::None);
    let log = Lines::default();
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
