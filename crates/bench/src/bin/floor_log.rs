//! `floor-log`: see `knee_bench::log`.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{ExitCode, id};

use clap::Parser;
use knee_bench::log::{LogHandler, Logged};
use knee_reactor::{Config, Group, bind, process};
use serde_json::json;

const PROGRAM: &str = "floor-log";

/// Writes memcached sets of one fixed size to a file, and answers once they are on the disk.
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Address to listen on; with port 0, any free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The exact length of every request.
    #[arg(long)]
    request_bytes: NonZeroUsize,
    /// The log's file, which is created or emptied.
    #[arg(long)]
    file: PathBuf,
    /// Reserved space of the file, in MiB; a full log starts again at the beginning.
    #[arg(long, default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    file_mb: u64,
}

fn main() -> ExitCode {
    knee_bench::ended(PROGRAM, run(&Flags::parse()))
}

fn run(flags: &Flags) -> io::Result<()> {
    let file = File::create(&flags.file)?;
    let log = LogHandler::new(file, flags.file_mb << 20, flags.request_bytes, report)?;
    let listener = bind(flags.listen)?;
    let mut log = Some(log);
    let group = Group::start("log", 1, &Config::default(), Some(listener), |_, _| {
        log.take().expect("there is one thread")
    })?;
    process::shutdown_on_signals(group.shutdown())?;
    let listen = group.address().map(|address| address.to_string());
    println!(
        "{}",
        json!({"type": "ready", "role": "store", "program": PROGRAM, "pid": id(), "listen": listen})
    );
    group.join()
}

fn report(outcome: Result<Logged, String>) {
    let summary = |Logged { records, commits, commit_time }| {
        json!({"type": "summary", "commit_records": records, "commits": commits,
               "commit_sum_ns": commit_time.as_nanos() as u64})
    };
    knee_bench::report(PROGRAM, outcome.map(summary));
}
