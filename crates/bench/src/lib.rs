//! Floors: programs that only move bytes, on the same event loop as Knee's programs.
//!
//! A proxy, a load generator or a durable store cannot cost less than its system calls. A floor makes only these calls.
//! Flags set the lengths of requests and replies, so the floor counts bytes instead of parsing. A real program minus
//! its floor is the cost of the program's own work.
//!
//! * [`relay`] (`floor-relay`): all clients share one connection to each server.
//! * [`send`] (`floor-send`): connections that repeat one prepared request.
//! * [`log`] (`floor-log`): requests are written to a file, and answered once they are safe.
//!
//! All requests and all replies have fixed sizes. `floor-relay` and `floor-send` end with exit code 1 if a peer
//! deviates.

pub mod log;
pub mod relay;
pub mod send;
