//! Limits of the files that programs write.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Limits the files that a running program may write.
pub(crate) fn limit_files(program: u32, bytes: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    let (pid, none) = (program as libc::pid_t, std::ptr::null_mut());
    // SAFETY: the limit outlives the call; the process is our child.
    let outcome = unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, &limit, none) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}

/// Makes a limit an error of the write, as on a full disk, instead of a signal.
pub(crate) fn with_limits(command: &mut Command) -> &mut Command {
    // SAFETY: the only system call between fork and exec is safe there.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            Ok(())
        })
    }
}
