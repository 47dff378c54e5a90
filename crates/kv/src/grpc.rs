//! The gRPC server: a versioned store behind `knee.kv.v1.KeyValue` and honu's `rpc.Storage`.
//!
//! * [`GrpcServer`]: both services on one port, from start to end.
//! * `key_value`: `knee.kv.v1`. `storage`: honu's interface. `service`: the calls of both on the store. `write`: the
//!   writes in their messages. `settings`: limits and directories.
//! * `scan`: keys of all stripes in one order, as fast as the reader takes them. `predicate`: the keys that
//!   a scan shows.
//! * `init`: loads edge lists into the store, from files `beneath` a directory. `watch`: changes of keys.
//! * `safe`: holds answers back until the commits that they reflect are synced.
//! * `refusal`: errors as statuses. `tally`: counts of calls. `meter`: telemetry of calls, from the properties of
//!   each `message`.
//!
//! Reading and writing a key takes microseconds and happens on the runtime's own threads. Longer work, such
//! as making room for a write, happens on its `blocking` threads.

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
mod service;
mod settings;
mod storage;
mod tally;
mod watch;
mod write;

pub use meter::Telemetry;
pub use server::GrpcServer;
pub use settings::{CONNECTIONS_MAX, COPIES_MAX, GrpcSettings};
