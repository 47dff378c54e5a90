//! Load on the versioned store.
//!
//! * `mix`: the weight of each operation. `draws`: one client's stream of operations. `workload`: the settings that all
//!   clients share, and the check of values.
//! * `sightings`: the versions that a connection has seen, to detect an answer with an older one.
//! * `text`: the operations in the memcached protocol. `calls`: the operations as calls of `knee.kv.v1`, with
//!   `message`.
//! * `populate`: the phase that fills the stores. `init`: the phase in which the stores load a file.

mod calls;
mod draws;
mod init;
mod message;
mod mix;
mod populate;
mod sightings;
mod text;
mod workload;

pub(crate) use calls::KvCalls;
pub(crate) use init::init;
pub(crate) use mix::Mix;
pub(crate) use populate::populate;
pub(crate) use text::Text;
pub(crate) use workload::{BULK_KEYS_MAX, Part, Shape, Workload};
