//! The versioned store, in memory or in a directory.
//!
//! Every change of a key is a record in a [log](log), and every record a version. A
//! [table](table) knows for each key where its versions are; a [store](store) is such tables
//! behind locks, with [commits](write) of several keys, [reads](read) and [snapshots](snapshot). A
//! [directory](directory) makes the log durable.

mod backup;
mod change;
mod clear;
mod directory;
mod figures;
mod items;
mod keeper;
mod log;
mod order;
mod pressure;
mod read;
mod reclaim;
mod record;
mod recovery;
mod requests;
mod room;
mod scan;
mod segment;
mod snapshot;
mod store;
mod table;
mod watch;
mod write;

pub(crate) use backup::COPY_NAME_BYTES_MAX;
pub use backup::{BackupError, Unfinished, remove_unfinished_copies};
pub use directory::DirectoryError;
pub use figures::{CommitFigures, Figures};
pub use items::Items;
pub use keeper::{History, Keeper};
pub use log::{Durability, Unwritable};
pub use pressure::Patience;
pub use read::{Past, ReadError, Seen, Shown};
pub use reclaim::ReclaimError;
pub use record::RequestId;
pub use recovery::{Lost, Opening, Pass};
pub use room::Room;
pub use scan::{Scanned, Visited};
pub use snapshot::Snapshot;
pub use store::{Consistency, DirectoryOptions, Store, StoreOptions};
pub use table::Damage;
pub use watch::{Event, Listener, What};
pub use write::{Action, Committed, Condition, KEY_BYTES_MAX, Write, WriteError};
