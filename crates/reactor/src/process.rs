//! Ends a process by signals or with its parent, and raises its limit of open files.

use std::io;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Shutdown;

/// Makes SIGTERM or SIGINT begin `shutdown`; a second signal ends the process at once.
///
/// # Errors
/// When the handlers cannot be installed or their thread cannot start.
pub fn shutdown_on_signals(shutdown: Shutdown) -> io::Result<()> {
    on_signals(move || shutdown.begin())
}

/// Makes SIGTERM or SIGINT call `begin`; a second signal ends the process at once.
///
/// # Errors
/// When the handlers cannot be installed or their thread cannot start.
pub fn on_signals(begin: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            if asked {
                std::process::exit(128 + signal);
            }
            asked = true;
            begin();
        }
    })?;
    Ok(())
}

/// Makes the kernel send SIGTERM to this process when the *thread* that started it ends. `parent` is the id of the
/// parent process; if it has already ended, the signal comes at once.
///
/// # Errors
/// When the kernel refuses.
pub fn tie_to_parent(parent: u32) -> io::Result<()> {
    // SAFETY: prctl with PR_SET_PDEATHSIG takes a signal number and no pointers.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if std::os::unix::process::parent_id() != parent {
        // SAFETY: raise takes a signal number and no pointers.
        unsafe { libc::raise(libc::SIGTERM) };
    }
    Ok(())
}

/// Raises the soft limit of open files to the hard limit, and returns it.
///
/// # Errors
/// When the limit can be neither read nor set.
pub fn raise_open_files_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: limit is valid for the call to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: limit is valid for the call to read from.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
}
