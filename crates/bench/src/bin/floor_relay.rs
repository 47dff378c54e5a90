//! `floor-relay`: see `knee_bench::relay`.

use std::io;
use std::net::SocketAddr;
use std::process::{ExitCode, id};

use clap::Parser;
use knee_bench::relay::{Relay, RelayHandler};
use knee_reactor::{Config, Group, bind, process};
use serde_json::json;

const PROGRAM: &str = "floor-relay";

/// Relays memcached requests of a fixed size, for all clients over one connection to each server.
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Address to listen on; with port 0, any free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    relay: Relay,
}

fn main() -> ExitCode {
    knee_bench::ended(PROGRAM, run(&Flags::parse()))
}

fn run(flags: &Flags) -> io::Result<()> {
    let listener = bind(flags.listen)?;
    let group = Group::start("relay", 1, &Config::default(), Some(listener), |_, _| {
        RelayHandler::new(flags.relay.clone(), |outcome| knee_bench::report(PROGRAM, outcome))
    })?;
    process::shutdown_on_signals(group.shutdown())?;
    let listen = group.address().map(|address| address.to_string());
    println!(
        "{}",
        json!({"type": "ready", "role": "middleware", "program": PROGRAM, "pid": id(), "listen": listen})
    );
    group.join()
}
