//! `knee-space`: one address space over several storage machines.
//!
//! Clients, managers and storage machines speak NBD, by the codec of `knee-nbd`.
//!
//! * `memory`, `store`: a storage machine, which serves its memory.
//! * [`layout`]: the place of each address.
//! * `manager`: serves the space, and asks the machines. `health`: which machines are online.
//! * `slab`: the numbers of requests in flight. `grpc`: the interface over gRPC.
//! * `session`: what both servers share.
//! * [`cli`]: the program.

#![cfg(target_os = "linux")]

pub mod cli;
pub mod layout;

mod grpc;
mod health;
mod manager;
mod memory;
mod session;
mod slab;
mod store;

/// The program's name, in messages.
pub(crate) const PROGRAM: &str = "knee-space";
