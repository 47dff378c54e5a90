//! Hides the keys whose newest record may be lost.
//!
//! A lost record gets a stand-in at its place among the records of its key: from there to the key's next record, the
//! key's state is unknown. A key whose newest record is a stand-in is deleted, so that no older version counts as the
//! current one. An interrupted repair leaves the damage, and the next one hides the rest.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use knee_kv_cache::engine::{Refused, Version};

use super::calendar;
use super::directory::{DirectoryError, key_sum};
use super::record::{Kind, Record, Sequence};
use super::recovery::{Doubt, Found, Losses, Report};
use super::store::Store;
use super::table::{SlotId, Table};
use super::types::{Consistency, Unwritable};

/// The keys of a stripe to hide.
type Hidden = Vec<(Vec<u8>, SlotId)>;

/// Completes a list.
pub const UNNAMED: &str =
    "other keys: absent, if their only records are lost; no record names them";

/// Known versions of a key in a report.
const KNOWN_MAX: usize = 10;

impl Store {
    /// Marks what is lost, lists the keys whose newest record may be lost, and deletes them.
    pub(super) fn hide_lost(
        &self,
        path: &Path,
        losses: Losses,
        is_dry: bool,
        report: &mut Report,
    ) -> Result<(), DirectoryError> {
        let failed = |error: io::Error| DirectoryError::Io(path.to_owned(), error);
        let refused = |why: Unwritable| {
            failed(match why {
                Unwritable::NoSpace(_) => io::ErrorKind::StorageFull.into(),
                why => io::Error::other(why.to_string()),
            })
        };
        report.has_unnamed = losses.unknown.is_some();
        let hidden = self.mark_lost(losses, &mut report.doubts).map_err(refused)?;
        if is_dry {
            return Ok(());
        }
        report.list = Some(write_list(path, report).map_err(failed)?);
        for (stripe, keys) in hidden.into_iter().enumerate() {
            let mut locked = [(stripe, self.stripe(stripe))];
            let removed = self.remove_all(&keys, &mut locked, calendar::now());
            removed.map_err(|why| {
                failed(match why {
                    Refused::NoSpace => io::ErrorKind::StorageFull.into(),
                    _ => io::Error::other("the log takes no delete"),
                })
            })?;
        }
        // A key without a record may have had any state and version before.
        let last = self.0.log.last();
        self.0.unsure.fetch_max(last, Ordering::Relaxed);
        self.0.floor.fetch_max(last, Ordering::Relaxed);
        self.write_out().and_then(|()| self.0.log.note(self.forgotten())).map_err(refused)
    }

    /// Appends a stand-in for each lost record. Returns the keys to hide, by stripe.
    fn mark_lost(
        &self,
        losses: Losses,
        doubts: &mut Vec<Doubt>,
    ) -> Result<Vec<Hidden>, Unwritable> {
        let (mut named, mut listed) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (key, sequence) in losses.named {
            named.entry(key).or_default().push(sequence);
        }
        for entry in losses.entries {
            if entry.key_sum == 0 {
                // This lost record is known entirely: it is the clear of a commit.
                let record = Record::of_no_key(Kind::Clear, entry.sequence);
                self.0.log.begin_move(&record)?.append_moved(&record);
                self.restore_clear(entry.sequence);
            } else {
                listed.entry(entry.key_sum).or_default().push(entry.sequence);
            }
        }
        let mut met: HashSet<_> = named.keys().map(|key: &Vec<u8>| key_sum(key)).collect();
        let mut hidden = Vec::new();
        for stripe in 0..self.stripes() {
            let mut table = self.stripe(stripe);
            let mut marked = Vec::new();
            for slot in table.slots() {
                let key = table.newest_key(slot).to_vec();
                let mut lost: BTreeSet<_> = named.remove(&key).into_iter().flatten().collect();
                if let Some(sequences) = listed.get(&key_sum(&key)) {
                    met.insert(key_sum(&key));
                    lost.extend(sequences);
                }
                if let Some(up_to) = losses.unknown {
                    lost.extend(perhaps_lost(&table, slot, up_to));
                }
                let is_marked = table.is_lost(slot) || !lost.is_empty();
                self.stand_in(&mut table, slot, &key, lost)?;
                if is_marked {
                    marked.push((key, slot));
                }
            }
            table.put_in_order();
            marked.retain(|(_, slot)| table.is_lost(*slot));
            doubts.extend(marked.iter().map(|(key, slot)| doubt(&table, key, *slot)));
            hidden.push(marked);
        }
        // These keys have no record.
        let gone = named.into_iter().map(|(key, sequences)| (Ok(key), sequences));
        let unmet = listed.into_iter().filter(|(sum, _)| !met.contains(sum));
        let gone = gone.chain(unmet.map(|(sum, sequences)| (Err(sum), sequences)));
        doubts.extend(gone.map(|(key, sequences)| Doubt {
            key,
            from: sequences.into_iter().min().unwrap_or(0),
            known: Vec::new(),
            deleted: false,
        }));
        doubts.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(hidden)
    }

    /// Appends stand-ins of one key, for lost records of these commits.
    fn stand_in(
        &self,
        table: &mut Table,
        slot: SlotId,
        key: &[u8],
        lost: BTreeSet<Sequence>,
    ) -> Result<(), Unwritable> {
        if lost.is_empty() {
            return Ok(());
        }
        let commits: Vec<_> =
            table.records(slot).map(|record| (record.sequence, record.version)).collect();
        for sequence in lost {
            let (before, rest) =
                commits.split_at(commits.partition_point(|&(other, _)| other < sequence));
            let (of_commit, behind) =
                rest.split_at(rest.partition_point(|&(other, _)| other == sequence));
            let before = before.last().map_or(0, |&(_, version)| version);
            // Pieces of the lost value, or the stand-in of a killed repair, know the version.
            let version = match (of_commit.first(), self.0.options.consistency) {
                (Some(&(_, version)), _) => version,
                (None, Consistency::Linearizable) => sequence,
                (None, Consistency::Sequential) => before + 1,
            };
            // The versions of a key never decrease.
            let most = behind.first().map_or(Version::MAX, |&(_, version)| version);
            let record = Record::lost(key, sequence, version.min(most).max(before));
            let at = self.0.log.begin_move(&record)?.append_moved(&record);
            table.enter(slot, &Found { at, sequence, part: record.part });
        }
        Ok(())
    }
}

/// The first commits between a key's records that may be lost: any commit up to this one may.
fn perhaps_lost(table: &Table, slot: SlotId, up_to: Sequence) -> Vec<Sequence> {
    let records: Vec<_> = table.records(slot).collect();
    let mut lost = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let from = record.sequence + 1;
        let is_last_before = records.get(index + 1).is_none_or(|next| {
            let place = (record.sequence, record.part);
            next.sequence > from && next.growth.is_none_or(|growth| growth.from != place)
        });
        if from <= up_to && is_last_before && record.kind != Kind::Lost {
            lost.push(from);
        }
    }
    lost
}

/// What is known of a key whose newest record is a stand-in.
fn doubt(table: &Table, key: &[u8], slot: SlotId) -> Doubt {
    let records: Vec<_> = table.records(slot).collect();
    let certain = records.iter().rposition(|record| record.kind != Kind::Lost);
    let from = records[certain.map_or(0, |certain| certain + 1)].version;
    let mut known: Vec<_> = records.iter().filter(|record| record.kind != Kind::Lost).collect();
    let deleted = known.last().is_some_and(|record| record.kind == Kind::Delete);
    let mut known: Vec<_> = known.drain(..).map(|record| record.version).collect();
    known.dedup();
    known.drain(..known.len().saturating_sub(KNOWN_MAX));
    Doubt { key: Ok(key.to_vec()), from, known, deleted }
}

/// Adds what is lost to a file of the day in the directory.
fn write_list(directory: &Path, report: &Report) -> io::Result<PathBuf> {
    let path = directory.join(format!("REPAIR-{}.txt", day(u64::from(calendar::now()))));
    let mut file = BufWriter::new(OpenOptions::new().create(true).append(true).open(&path)?);
    report.lost.iter().try_for_each(|lost| writeln!(file, "{lost}"))?;
    report.doubts.iter().try_for_each(|doubt| writeln!(file, "{doubt}"))?;
    if report.has_unnamed {
        writeln!(file, "{UNNAMED}")?;
    }
    file.into_inner()?.sync_all()?;
    File::open(directory)?.sync_all()?;
    Ok(path)
}

/// The date of a second since the epoch, as YYYY-MM-DD.
fn day(seconds: u64) -> String {
    let time = seconds as libc::time_t;
    // SAFETY: the call fills `date`, and an all-zero `tm` is valid.
    let date = unsafe {
        let mut date = std::mem::zeroed::<libc::tm>();
        libc::gmtime_r(&raw const time, &raw mut date);
        date
    };
    format!("{}-{:02}-{:02}", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_of_a_second_is_its_date() {
        assert_eq!(day(951_782_400), "2000-02-29");
    }
}
