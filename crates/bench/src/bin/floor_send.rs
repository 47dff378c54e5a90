//! `floor-send`: see `knee_bench::send`.

use std::io;
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use knee_bench::send::{DIGITS, Draws, Send, SendHandler};
use knee_reactor::{Config, Group, process};

const PROGRAM: &str = "floor-send";

/// Repeats a request over many connections, and counts the bytes of the replies.
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// The server.
    #[arg(long)]
    server: SocketAddr,
    /// Number of connections.
    #[arg(long)]
    connections: NonZeroUsize,
    /// Requests in flight per connection: written together, and again when all are answered.
    #[arg(long, default_value = "1")]
    depth: NonZeroUsize,
    /// The file with the request, including its line ends.
    #[arg(long)]
    request: PathBuf,
    /// Place of ten digits in the request; each request gets a random number below --keys there.
    #[arg(long, value_name = "OFFSET", requires = "keys")]
    digits_at: Option<usize>,
    /// Number of keys.
    #[arg(long, requires = "digits_at")]
    keys: Option<NonZeroU64>,
    /// The exact length of every reply.
    #[arg(long)]
    reply_bytes: NonZeroUsize,
    /// Time to send for.
    #[arg(long)]
    seconds: f64,
}

fn main() -> ExitCode {
    knee_bench::ended(PROGRAM, run(&Flags::parse()))
}

fn run(flags: &Flags) -> io::Result<()> {
    let request = std::fs::read(&flags.request)?;
    let draws = flags.digits_at.zip(flags.keys).map(|(at, below)| Draws { at, below });
    if let Some(draws) = draws
        && request.get(draws.at..).is_none_or(|rest| rest.len() < DIGITS)
    {
        return Err(io::Error::other("--digits-at is not within the request"));
    }
    let send = Send {
        server: flags.server,
        connections: flags.connections.get(),
        depth: flags.depth,
        request,
        draws,
        reply_bytes: flags.reply_bytes,
        time: Duration::try_from_secs_f64(flags.seconds).map_err(io::Error::other)?,
    };
    let group = Group::start("send", 1, &Config::default(), None, |_, _| {
        SendHandler::new(send.clone(), |outcome| knee_bench::report(PROGRAM, outcome))
    })?;
    process::shutdown_on_signals(group.shutdown())?;
    group.join()
}
