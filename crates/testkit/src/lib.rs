//! Helpers for the tests of several crates.
//!
//! * [`free_port`], [`free_address`]: a port for a server that takes it from its command line.
//! * [`Memcached`]: Debian's memcached on such a port.
//! * [`Disk`]: a small disk that only one test sees and can fill.
//! * [`alone`]: runs an ignored test in its own process.
//! * [`signal`]: sends a signal to a child, and waits until it has stopped.
//! * [`eventually`], [`wait_until`]: wait for a condition, within [`PATIENCE`].
//! * [`Lines`]: keeps what a program writes.
//! * [`soak`]: the factor by which tests draw more random examples.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

mod disk;
mod lines;
mod memcached;
mod ports;
mod process;
mod soak;
mod waiting;

pub use disk::Disk;
pub use lines::Lines;
pub use memcached::Memcached;
pub use ports::{free_address, free_port};
pub use process::{alone, signal};
pub use soak::soak;
pub use waiting::{PATIENCE, eventually, wait_until};
