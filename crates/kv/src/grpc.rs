//! The gRPC front: a versioned store behind `knee.kv.v1.KeyValue` and honu's `rpc.Storage`.
//!
//! * [`GrpcServer`]: both services on one port, from start to end.
//! * `key_value`: `knee.kv.v1`. `storage`: honu's interface, said in terms of the same store. `write`:
//!   what their messages ask to be written.
//! * `scan`: keys of all stripes in one order, as fast as the reader takes them. `predicate`: which
//!   of them it is shown.
//! * `init`: edge lists into the store, from files `beneath` a directory. `watch`: what happens to keys.
//! * `safe`: answers wait here until what they tell of is on the disk.
//! * `refusal`: what went wrong, as a status. `tally`: what was done so far. `meter`: how long calls
//!   took, with what it asks of each `message`.
//!
//! Reading and writing a key takes microseconds and happens on the runtime's own threads; whatever
//! takes longer, making room for a write included, happens on its `blocking` ones.

mod beneath;
mod blocking;
mod init;
mod key_value;
mod message;
mod meter;
mod predicate;
mod refusal;
mod safe;
mod scan;
mod server;
mod settings;
mod storage;
mod tally;
mod watch;
mod write;

pub use meter::Telemetry;
pub use server::GrpcServer;
pub use settings::{CONNECTIONS_MAX, COPIES_MAX, GrpcSettings};
