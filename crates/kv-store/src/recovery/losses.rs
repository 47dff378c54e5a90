//! The records that damage may have taken.

use std::collections::HashSet;

use crate::directory::{Entry, Known};
use crate::record::{HEAD_BYTES, Record, Sequence};

/// The records that damage may have taken.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub(crate) are_any: bool,
    /// The records of damaged segments, without those that can be read here or elsewhere.
    pub(crate) entries: HashSet<Entry>,
    /// Commits up to this one may have lost records of any key.
    pub(crate) unknown: Option<Sequence>,
    /// Keys whose records can be read, but belong to damaged commits or values. The sequence is that of a lost record.
    pub(crate) named: Vec<(Vec<u8>, Sequence)>,
    /// Bytes of lost stretches whose records are unknown, since the last record that shows a sequence.
    open_bytes: usize,
}

impl Losses {
    /// Notes a lost stretch of a segment with these keys. Its records have sequences up to `before`. If `before` is
    /// `None`, a later record shows this limit.
    pub(super) fn lose(&mut self, known: &Known, from: usize, to: usize, before: Option<Sequence>) {
        self.are_any = true;
        match before {
            _ if known.covers(from, to) => {}
            Some(before) => self.unknown = self.unknown.max(Some(before)),
            None => self.open_bytes += to - from,
        }
        self.entries.extend(&known.entries);
    }

    /// Notes a record after the lost stretches. It shows that their records have sequences up to `before`.
    pub(super) fn show(&mut self, before: Sequence) {
        if std::mem::take(&mut self.open_bytes) > 0 {
            self.unknown = self.unknown.max(Some(before));
        }
    }

    /// The last commit number of a log whose records show `last`. It counts the commits that were lost after `last`, so
    /// that no number is used twice.
    pub(super) fn end(&mut self, last: Sequence) -> Sequence {
        let listed = self.entries.iter().map(|entry| entry.sequence).max().unwrap_or(0);
        let unlisted = (self.open_bytes / HEAD_BYTES) as Sequence;
        let last = last.max(listed) + unlisted;
        self.show(last);
        // The repair itself counts as a commit.
        last + Sequence::from(self.are_any)
    }

    /// Notes a readable record.
    pub(crate) fn find(&mut self, record: &Record<'_>) {
        if !self.entries.is_empty()
            && let Some(entry) = Entry::of(record)
        {
            self.entries.remove(&entry);
        }
    }
}
