//! Floors: programs that only move bytes, on the same event loop as the real ones.
//!
//! A proxy, a load generator or a durable store cannot cost less than its system calls. These make
//! the calls and leave out everything else: flags set the length of a request and its reply, so
//! they count instead of parsing. The distance of a real program to its floor is what its own work
//! costs.
//!
//! * [`relay`] (`floor-relay`): all clients share one connection to each server.
//! * [`send`] (`floor-send`): connections that repeat one prepared request.
//! * [`log`] (`floor-log`): requests are written to a file, and answered once they are safe.
//!
//! They take requests and replies of one fixed size only, trust the peer, and the first two end
//! (exit code 1) when it does anything else.

pub mod log;
pub mod relay;
pub mod send;
