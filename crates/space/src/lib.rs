//! `knee-space`: one address space over several storage machines.
//!
//! Clients, managers and storage machines speak NBD, with one codec on both sides.
//!
//! * [`nbd`]: the protocol, without I/O.
//! * `memory`, `store`: a storage machine, which serves its memory.
//! * `session`: what both servers share.
//! * [`cli`]: the program.

#![cfg(target_os = "linux")]

pub mod cli;
pub mod nbd;

mod memory;
mod session;
mod store;

/// The program's name, in messages.
pub(crate) const PROGRAM: &str = "knee-space";
