//! The versioned store, in memory or in a directory; its [`Items`] are an engine.
//!
//! Every change of a key appends a record to a [log](log), and every record is a version. A
//! [table](table) has the places of each key's versions. A [store](store) is a set of tables
//! behind locks, with [commits](write) of several keys, [reads](read) and [snapshots](snapshot). A
//! [directory](directory) makes the log durable.
//!
//! Layers, lowest first; a module imports only from lower layers:
//!
//! 1. `types`, `place`, `record`, `action`, `room`: records and their places.
//! 2. `segment`, `directory`: memory and files for records.
//! 3. `log`, `recovery`, `order`, `table`: the order of all records, and the places of each key's records.
//! 4. `clearing`, `pressure`, `requests`, `snapshots`, `watch`: state of a store beside its tables.
//! 5. `store`.
//! 6. `read`, `scan`, `snapshot`, `planned`, `write`, `change`, `clear`, `waiting`, `items`: operations of clients.
//! 7. `sweep`, `reclaim`, `backup`, `repair`, `open`, `keeper`: upkeep.

mod action;
mod backup;
pub mod calendar;
mod change;
mod clear;
mod clearing;
mod directory;
mod figures;
mod items;
mod keeper;
mod log;
mod open;
mod order;
mod place;
mod planned;
mod pressure;
mod read;
mod reclaim;
mod record;
mod recovery;
mod repair;
mod requests;
mod room;
mod scan;
mod segment;
mod snapshot;
mod snapshots;
mod store;
mod sweep;
mod table;
mod types;
mod waiting;
mod watch;
mod write;

pub use action::{Action, Condition, KEY_BYTES_MAX, Write};
pub use backup::{BackupError, COPY_NAME_BYTES_MAX, remove_unfinished_copies};
pub use directory::DirectoryError;
pub use items::Items;
pub use keeper::{History, Keeper};
pub use knee_kv_cache::versions::{CommitFigures, Figures};
pub use pressure::Patience;
pub use read::{Past, ReadError, Seen, Shown};
pub use reclaim::ReclaimError;
pub use record::RequestId;
pub use recovery::{Doubt, Lost, Opening, Pass, Report};
pub use repair::UNNAMED;
pub use room::Room;
pub use scan::{Scanned, Visited};
pub use snapshot::Snapshot;
pub use store::Store;
pub use table::Damage;
pub use types::{
    Committed, Consistency, DirectoryOptions, Durability, Grouping, StoreOptions, Unwritable,
};
pub use watch::{Event, Listener, What};
pub use write::WriteError;
