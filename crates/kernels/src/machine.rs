//! Measurements of this machine, each bounded in time and in memory.
//!
//! * [`memory`]: the latency of dependent reads, and bandwidth, over a working set.
//! * [`files`]: transfers between memory and a file, and scans of a file that is mapped into memory.
//! * [`network`]: TCP over the loopback interface.
//! * [`clock`]: what reading the clock takes, and how late a sleep ends.
//!
//! `knee.machine` repeats them, and chooses the working sets.

pub mod clock;
pub mod files;
pub mod memory;
pub mod network;
