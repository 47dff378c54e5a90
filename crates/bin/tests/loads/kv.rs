//! `knee-load kv` against `knee-kv`.

mod counts;
mod losses;
mod refusals;
mod relay;
mod store;
mod verify;
