//! Outputs that fail or are not read, and threads that die.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use knee_telemetry::{Op, Reporter, Sample, Stats, Store, StoreGauges};
use knee_testkit::Lines;
use serde_json::Value;

use crate::printed::{Clock, json_lines, reporter};

#[test]
fn dead_thread_does_not_stop_the_summary() {
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
fn closed_output_ends_no_process() {
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
    running.finish(|totals| counted = totals.counts(Op::Get).count);
    assert_eq!(counted, 1);
}

fn full_disk() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn full_disk_under_all_output_ends_no_process() {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "outputs::report_to_a_full_disk", "--ignored", "--nocapture"])
        .stdout(Stdio::null())
        .stderr(full_disk())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "needs its own process, with a full disk as standard error"]
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
    running.finish(|totals| counted = totals.counts(Op::Get).count);
    assert_eq!(counted, 1);
}

/// Accepts no write until the test releases the lock.
struct Stuck(Lines, Arc<Mutex<()>>);

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
fn unread_windows_become_few_and_long() {
    let (sink, lock) = (Lines::default(), Arc::new(Mutex::new(())));
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
