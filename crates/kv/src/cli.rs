//! The command line: flags in, JSON lines out.

use std::process::ExitCode;

/// Parses the arguments, runs until told to stop, returns the exit code.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
