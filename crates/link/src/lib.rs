//! `knee-link`: the switch between emulated hosts whose links have delays.
//!
//! Each host's link ends at an interface, a port of the switch. A frame waits for the delays of both links, from its
//! arrival at a port to its departure through another one. Frames keep their virtio header, so that large segments and
//! missing checksums pass unchanged.

#![cfg(target_os = "linux")]

mod interface;
mod relay;

use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clap::Parser;
use knee_server::program::{Failure, ended, tie_to_parent};

use crate::interface::packets;
use crate::relay::{Port, relay};

const PROGRAM: &str = "knee-link";

/// Passes frames between interfaces, and delays them.
///
/// The last two bytes of a frame's destination address are the number of a port. The first port is 0.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
struct Flags {
    /// The interface at the end of a host's link, and the link's delay one way in microseconds.
    #[arg(long, value_name = "NAME=US", value_parser = port, required = true)]
    port: Vec<(String, Duration)>,
    /// End with this process.
    #[arg(long, value_name = "PID")]
    tied_to_parent: Option<u32>,
}

fn port(given: &str) -> Result<(String, Duration), String> {
    let (name, delay) = given.split_once('=').ok_or("expected NAME=US")?;
    let delay = delay
        .parse()
        .map_err(|_| format!("expected a whole number of microseconds in place of `{delay}`"))?;
    Ok((name.to_owned(), Duration::from_micros(delay)))
}

/// Parses the arguments, and relays until a signal ends the process.
pub fn main() -> ExitCode {
    ended(PROGRAM, run(&Flags::parse()))
}

fn run(flags: &Flags) -> Result<(), Failure> {
    tie_to_parent(flags.tied_to_parent)?;
    let open = |(name, delay): &(String, Duration)| {
        let socket = packets(name)
            .map_err(|error| Failure::system(&format!("cannot open {name}"), &error))?;
        Ok(Port { socket, delay: *delay })
    };
    let ports: Arc<[Port]> = flags.port.iter().map(open).collect::<Result<_, Failure>>()?;
    let (failed, failures) = mpsc::channel();
    // A thread with several hosts wakes up less often, so half of the processors remain for the hosts.
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = (processors / 2).clamp(1, ports.len());
    for thread in 0..threads {
        let from = (thread..ports.len()).step_by(threads).collect();
        let (ports, failed) = (Arc::clone(&ports), failed.clone());
        thread::Builder::new()
            .spawn(move || failed.send(relay(&ports, from)))
            .map_err(|error| Failure::system("cannot start a thread", &error))?;
    }
    println!("{{\"type\":\"ready\"}}");
    match failures.recv() {
        Ok(Err(error)) => Err(Failure::system("cannot relay", &error)),
        _ => Ok(()),
    }
}
