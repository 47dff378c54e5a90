//! Child processes of tests.

use std::process::{Child, Command};

/// Sends a signal to a child that was not waited for yet. After `SIGSTOP`, all its threads have stopped.
pub fn signal(child: &Child, signal: libc::c_int) {
    let id = child.id();
    // SAFETY: kill takes two numbers; waitid only fills `end`, and leaves the exit of the child to `Child`.
    unsafe {
        assert_eq!(libc::kill(id as libc::pid_t, signal), 0);
        if signal == libc::SIGSTOP {
            let mut end: libc::siginfo_t = std::mem::zeroed();
            assert_eq!(libc::waitid(libc::P_PID, id, &raw mut end, libc::WSTOPPED), 0);
        }
    }
}

/// Runs an ignored test of this program in a new process.
pub fn alone(test: &str) {
    let program = std::env::current_exe().unwrap();
    let outcome = Command::new(program).args(["--ignored", "--exact", test]).output().unwrap();
    let printed = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success() && printed.contains("1 passed"), "{printed}");
}
