//! Restores complete commits, and leaves incomplete ones out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Findings, Found, Opening, Pass};
use crate::place::{Location, SegmentId};
use crate::record::{HEAD_BYTES, Record, Sequence};
use crate::segment::Segment;
use crate::table::Damage;

/// Visits the records of all segments in order, with whether they count: those of damaged commits do not. Records of a
/// commit that a crash cut off are not visited. Returns the segments with parts of damaged commits. These
/// segments must not outlive the segments that show the damage. Damage that the first pass did not find is an error.
pub(crate) fn records(
    segments: &[Arc<Segment>],
    findings: &Findings,
    tell: &mut dyn FnMut(Opening),
    mut visit: impl FnMut(&Segment, Found, bool) -> Result<(), Damage>,
) -> Result<BTreeSet<SegmentId>, Damage> {
    let bytes_all = segments.iter().map(|segment| segment.filled() as u64).sum();
    let mut bytes = 0;
    let mut pending = Pending { settled: findings.settled, ..Pending::default() };
    for segment in segments {
        if findings.behind_lost.contains(&segment.id) {
            pending.lose(&mut visit)?;
        }
        let mut at = 0;
        while at + HEAD_BYTES <= segment.filled() {
            let place = Location::new(segment.id, at);
            if let Some(end) = findings.gaps.get(&place) {
                pending.lose(&mut visit)?;
                at = *end;
                continue;
            }
            let damage = |_| Damage { segment: segment.id, offset: at };
            let record = segment.checked(at).map_err(damage)?;
            let found = Found { at: place, sequence: record.sequence, part: record.part };
            at += record.bytes();
            if record.moved {
                visit(segment, found, true)?;
            } else {
                pending.take(segment, found, &record, &mut visit)?;
            }
        }
        bytes += segment.filled() as u64;
        tell(Opening { pass: Pass::Restore, bytes, bytes_all });
    }
    pending.settle(&mut visit)?;
    Ok(pending.incomplete)
}

/// The first records of a commit.
#[derive(Default)]
struct Pending<'a> {
    records: Vec<(&'a Segment, Found)>,
    settled: Option<Location>,
    /// Whether the last record cannot be read.
    is_lost: bool,
    incomplete: BTreeSet<SegmentId>,
}

impl<'a> Pending<'a> {
    fn sequence(&self) -> Option<Sequence> {
        self.records.last().map(|(_, found)| found.sequence)
    }

    /// Notes a missing record.
    fn lose(
        &mut self,
        visit: &mut impl FnMut(&Segment, Found, bool) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        self.is_lost = true;
        self.incomplete.extend(self.records.iter().map(|(segment, _)| segment.id));
        self.records.drain(..).try_for_each(|(segment, found)| visit(segment, found, false))
    }

    fn take(
        &mut self,
        segment: &'a Segment,
        found: Found,
        record: &Record<'_>,
        visit: &mut impl FnMut(&Segment, Found, bool) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        let goes_on = self.sequence() == Some(record.sequence);
        if record.first {
            self.is_lost = false;
        } else if !goes_on && self.is_lost {
            self.incomplete.insert(segment.id);
            return visit(segment, found, false);
        }
        if record.first || !goes_on {
            self.settle(visit)?;
        }
        self.records.push((segment, found));
        if record.more {
            return Ok(());
        }
        self.records.drain(..).try_for_each(|(segment, found)| visit(segment, found, true))
    }

    /// Ends the pending commit. If the commit was on the disk, the rest was in a segment that has since been
    /// reclaimed.
    fn settle(
        &mut self,
        visit: &mut impl FnMut(&Segment, Found, bool) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        let Pending { records, settled, .. } = self;
        let records = records.drain(..).filter(|(_, found)| Some(found.at) < *settled);
        records.into_iter().try_for_each(|(segment, found)| visit(segment, found, true))
    }
}
