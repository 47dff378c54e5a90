//! `knee-load kv` against `knee-kv`: what it counts is what the server counts.

mod counts;
mod losses;
mod refusals;
mod relay;
mod store;
mod verify;
