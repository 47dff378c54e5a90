//! Tests that run in their own process.

use std::process::Command;

/// Runs an ignored test of this program in a new process.
pub fn alone(test: &str) {
    let program = std::env::current_exe().unwrap();
    let outcome = Command::new(program).args(["--ignored", "--exact", test]).output().unwrap();
    let printed = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success() && printed.contains("1 passed"), "{printed}");
}
