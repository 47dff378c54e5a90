//! `knee-link`: the delay of an emulated host's link.
//!
//! The host's frames arrive at an interface, and leave for the switch through another one; the answers take the same way
//! back. Each frame waits for the delay. Frames keep their virtio header, so that large
//! segments and missing checksums pass unchanged.

#![cfg(target_os = "linux")]

mod interface;
mod relay;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use knee_server::program::{Failure, ended, tie_to_parent};

use crate::interface::packets;

const PROGRAM: &str = "knee-link";

/// Delays the frames between two interfaces, both ways.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
struct Flags {
    /// The interface towards the host.
    #[arg(long, value_name = "NAME")]
    host: String,
    /// The interface towards the switch.
    #[arg(long, value_name = "NAME")]
    switch: String,
    /// The delay one way.
    #[arg(long, value_name = "US")]
    delay_us: u64,
    /// End with this process.
    #[arg(long, value_name = "PID")]
    tied_to_parent: Option<u32>,
}

/// Parses the arguments, and relays until a signal ends the process.
pub fn main() -> ExitCode {
    ended(PROGRAM, run(&Flags::parse()))
}

fn run(flags: &Flags) -> Result<(), Failure> {
    tie_to_parent(flags.tied_to_parent)?;
    let failed = |what: &str| {
        let what = format!("cannot open {what}");
        move |error| Failure::system(&what, &error)
    };
    let host = packets(&flags.host).map_err(failed(&flags.host))?;
    let switch = packets(&flags.switch).map_err(failed(&flags.switch))?;
    println!("{{\"type\":\"ready\"}}");
    relay::relay(host, switch, Duration::from_micros(flags.delay_us))
        .map_err(|error| Failure::system("cannot relay", &error))
}
