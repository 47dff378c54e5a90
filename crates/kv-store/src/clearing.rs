//! When everything goes, and what is left to do of that.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use knee_kv_cache::engine::Second;

use super::place::Location;
use super::record::Sequence;

/// No time has been given.
pub(super) const NEVER: Second = Second::MAX;

/// When everything goes, and what is left to do of that.
#[derive(Debug)]
pub(super) struct Clearing {
    /// When it does. That is forgotten with the process.
    pub(super) due: AtomicU32,
    /// Whether the log took nothing when it was due.
    pub(super) is_late: AtomicBool,
    /// The last commit that took all keys away, while some have no record yet that says so; 0 where there is
    /// none.
    pub(super) unfinished: AtomicU64,
    /// Where its record was, as [`Location::to_bits`]; said after the commit.
    pub(super) unfinished_at: AtomicU64,
    /// The same of the last one that is finished: no key before it is there.
    pub(super) finished_at: AtomicU64,
    /// The last finished commit, and the last commit of the store at that time.
    pub(super) finished: AtomicU64,
    pub(super) finished_by: AtomicU64,
    /// How far the log was walked through for the last one.
    pub(super) walked: Mutex<Walked>,
}

/// Records that move go to the end of the log, so a walk that resumes here misses none.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) commit: Sequence,
    pub(super) to: Option<Location>,
}

impl Default for Clearing {
    fn default() -> Clearing {
        Clearing {
            due: AtomicU32::new(NEVER),
            is_late: AtomicBool::new(false),
            unfinished: AtomicU64::new(0),
            unfinished_at: AtomicU64::new(0),
            finished_at: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            finished_by: AtomicU64::new(0),
            walked: Mutex::default(),
        }
    }
}
