//! The command line: `store` serves memory, `manager` a space over several stores.

mod manager;
mod size;
mod store;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use knee_server::program;

use crate::PROGRAM;

/// One address space over several storage machines, served over NBD.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Store(store::Flags),
    Manager(manager::Flags),
}

/// Parses the arguments, runs until a signal ends it, returns the exit code.
pub fn main() -> ExitCode {
    let outcome = match Flags::parse().command {
        Command::Store(flags) => flags.run(),
        Command::Manager(flags) => flags.run(),
    };
    program::ended(PROGRAM, outcome)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        super::Flags::command().debug_assert();
    }
}
