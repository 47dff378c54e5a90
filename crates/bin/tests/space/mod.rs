//! `knee-space` as processes, with libnbd's programs as clients.

mod client;
mod files;
mod store;
