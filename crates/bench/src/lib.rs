//! Floors: programs that only move bytes, on the same event loop as the real ones.
//!
//! A proxy or a load generator cannot cost less than its system calls. These two make the calls and
//! leave out everything else: they are told how long a request and its reply are, so they count
//! instead of parsing. The distance of a real program to its floor is what its own work costs.
//!
//! * [`relay`] (`floor-relay`): all clients share one connection to each server.
//! * [`send`] (`floor-send`): connections that repeat one prepared request.
//!
//! Both take replies of one fixed size only, trust the peer, and end (exit code 1) when it does
//! anything else.

pub mod relay;
pub mod send;
