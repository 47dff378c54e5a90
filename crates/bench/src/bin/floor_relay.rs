//! `floor-relay`: see `knee_bench::relay`.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::{ExitCode, exit, id};

use clap::Parser;
use knee_bench::relay::{Moved, Relay, RelayHandler};
use knee_reactor::{Config, Group, bind, process};
use serde_json::json;

/// Relays memcached requests of a fixed size, for all clients over one connection to each server.
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Address to listen on; with port 0, any free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A server; repeat the flag for several servers.
    #[arg(long, required = true)]
    server: Vec<SocketAddr>,
    /// The exact length of every request.
    #[arg(long)]
    request_bytes: NonZeroUsize,
    /// The exact length of every reply.
    #[arg(long)]
    reply_bytes: NonZeroUsize,
    /// Send each request to every server, and reply when the last server has answered.
    #[arg(long)]
    replicate: bool,
}

fn main() -> ExitCode {
    match run(Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor-relay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Flags) -> io::Result<()> {
    let relay = Relay {
        servers: flags.server,
        request_bytes: flags.request_bytes,
        reply_bytes: flags.reply_bytes,
        replicate: flags.replicate,
    };
    let listener = bind(flags.listen)?;
    let group = Group::start("relay", 1, &Config::default(), Some(listener), |_, _| {
        RelayHandler::new(relay.clone(), report)
    })?;
    process::shutdown_on_signals(group.shutdown())?;
    let listen = group.address().map(|address| address.to_string());
    println!(
        "{}",
        json!({"type": "ready", "role": "middleware", "program": "floor-relay", "pid": id(), "listen": listen})
    );
    group.join()
}

fn report(outcome: Result<Moved, String>) {
    match outcome {
        Ok(Moved { requests, time }) => {
            let seconds = time.as_secs_f64();
            println!("{}", json!({"type": "summary", "requests": requests, "seconds": seconds}));
        }
        Err(message) => {
            eprintln!("floor-relay: {message}");
            exit(1);
        }
    }
}
