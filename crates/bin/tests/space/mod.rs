//! `knee-space` as processes, with libnbd's programs as clients.

mod client;
mod faults;
mod files;
mod load;
mod manager;
mod rpc;
mod store;
