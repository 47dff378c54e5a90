//! Clears of all keys: the scheduled one, and the remaining work of the last one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use knee_kv_cache::engine::Second;

use super::place::Location;
use super::record::Sequence;

pub(super) const NEVER: Second = Second::MAX;

/// The scheduled clear, and the remaining work of the last one.
#[derive(Debug)]
pub(super) struct Clearing {
    /// The second of the scheduled clear. A restart forgets it.
    pub(super) due: AtomicU32,
    /// Whether the log refused the clear record when the clear was due.
    pub(super) is_late: AtomicBool,
    /// The commit of the last clear, while some of its keys have no delete record; 0 if all have.
    pub(super) unfinished: AtomicU64,
    /// The place of that clear's record, as [`Location::to_bits`]; stored after the commit.
    pub(super) unfinished_at: AtomicU64,
    /// The place of the last finished clear's record: every earlier record is deleted.
    pub(super) finished_at: AtomicU64,
    /// The commit of the last finished clear, and the last commit of the store when it was finished.
    pub(super) finished: AtomicU64,
    pub(super) finished_by: AtomicU64,
    /// How far the keeper has walked through the log for the last clear.
    pub(super) walked: Mutex<Walked>,
}

/// Where the walk resumes. It misses no record, because records only move to the end of the log.
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
