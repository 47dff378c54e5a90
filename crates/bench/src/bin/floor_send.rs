//! `floor-send`: see `knee_bench::send`.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{ExitCode, exit};
use std::time::Duration;

use clap::Parser;
use knee_bench::send::{Send, SendHandler, Sent};
use knee_reactor::{Config, Group, process};
use serde_json::json;

/// Sends one request again and again over many connections, and counts the replies' bytes.
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// The server.
    #[arg(long)]
    server: SocketAddr,
    /// How many connections.
    #[arg(long)]
    connections: NonZeroUsize,
    /// Requests in flight on each: written at once, and again when all are answered.
    #[arg(long, default_value = "1")]
    depth: NonZeroUsize,
    /// The file that holds the request, complete with its line ends.
    #[arg(long)]
    request: PathBuf,
    /// The exact length of its reply.
    #[arg(long)]
    reply_bytes: NonZeroUsize,
    /// For how long.
    #[arg(long)]
    seconds: f64,
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor-send: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> io::Result<()> {
    let send = Send {
        server: flags.server,
        connections: flags.connections.get(),
        depth: flags.depth,
        request: std::fs::read(&flags.request)?,
        reply_bytes: flags.reply_bytes,
        time: Duration::try_from_secs_f64(flags.seconds).map_err(io::Error::other)?,
    };
    let group = Group::start("send", 1, &Config::default(), None, |_, _| {
        SendHandler::new(send.clone(), report)
    })?;
    process::shutdown_on_signals(group.shutdown())?;
    group.join()
}

fn report(outcome: Result<Sent, String>) {
    match outcome {
        Ok(Sent { requests, time }) => {
            let seconds = time.as_secs_f64();
            println!("{}", json!({"type": "summary", "requests": requests, "seconds": seconds}));
        }
        Err(message) => {
            eprintln!("floor-send: {message}");
            exit(1);
        }
    }
}
