//! Load on the versioned store.
//!
//! * `mix`: how often each operation is asked for. `draws`: one client's stream of operations.
//!   `workload`: what all clients have in common, and what a value must be.
//! * `sightings`: which versions a connection has seen, to tell that none goes back.
//! * `text`: the operations in the memcached protocol, for the clients of that.
//! * `grpc`: the operations as calls of `knee.kv.v1`, and the clients that make them.

mod draws;
pub(crate) mod grpc;
mod mix;
mod sightings;
mod text;
mod workload;

pub(crate) use mix::Mix;
pub(crate) use text::Text;
pub(crate) use workload::{BULK_KEYS_MAX, Part, Shape, Workload};
