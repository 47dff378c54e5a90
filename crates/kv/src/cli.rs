//! The command line: flags in, JSON lines out.
//!
//! Without a subcommand the program serves. `load` puts edge lists into a directory; `graph` makes an edge list.

mod graph;
mod load;
mod serve;
mod store;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use knee_server::program;

use crate::PROGRAM;

/// A key-value store over the memcached protocol and gRPC: a cache, or a store that keeps versions.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, args_conflicts_with_subcommands = true)]
struct Flags {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    Load(load::Load),
    Graph(graph::Graph),
}

/// Parses the arguments, runs until a signal ends it, returns the exit code.
pub fn main() -> ExitCode {
    let Flags { command, serve } = Flags::parse();
    let outcome = match command {
        None => serve.run(),
        Some(Command::Load(load)) => load.run(),
        Some(Command::Graph(graph)) => graph.run(),
    };
    program::ended(PROGRAM, outcome)
}
