//! The versioned store, in memory or in a directory.
//!
//! Every change of a key is a record in a [log](log), and every record a version. A
//! [table](table) knows for each key where its versions are; a [store](store) is such tables
//! behind locks, with commits of several keys and snapshots. A [directory](directory) makes the
//! log durable.

mod change;
mod directory;
mod items;
mod keeper;
mod log;
mod order;
mod reclaim;
mod record;
mod recovery;
mod requests;
mod segment;
mod store;
mod table;
mod watch;

pub use directory::DirectoryError;
pub use items::Items;
pub use keeper::{History, Keeper};
pub use log::{Durability, Unwritable};
pub use reclaim::ReclaimError;
pub use record::RequestId;
pub use recovery::Lost;
pub use store::{
    Action, Committed, Condition, Consistency, DirectoryOptions, KEY_BYTES_MAX, Past, ReadError,
    Shown, Snapshot, Store, StoreOptions, Write, WriteError,
};
pub use table::Damage;
pub use watch::{Event, Listener, What};
