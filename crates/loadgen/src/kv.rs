//! Load on the versioned store.
//!
//! * `mix`: how often each operation is asked for. `draws`: one client's stream of operations. `workload`: what all
//!   clients have in common, and which values are right.
//! * `sightings`: the versions that a connection has seen, as none may go back.
//! * `text`: the operations in the memcached protocol. `calls`: the operations as calls of `knee.kv.v1`, with `message`.
//! * `populate`: the phase that only fills the stores. `init`: the phase in which they load a file.

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
