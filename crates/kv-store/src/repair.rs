//! Hides the keys whose newest record may be lost.
//!
//! A lost record gets a stand-in at its place among the records of its key: from there to the key's next record, the
//! key's state is unknown. A key whose newest record is a stand-in is deleted, so that no older version counts as the
//! current one. An interrupted repair leaves the damage, and the next one hides the rest.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::Ordering;

use knee_kv_cache::engine::{Refused, Version};

use super::calendar;
use super::directory::{DirectoryError, key_sum};
use super::record::{Kind, Record, Sequence};
use super::recovery::{DOUBTS_MAX, Doubt, Found, Losses, Report};
use super::store::Store;
use super::table::{SlotId, Table};
use super::types::{Consistency, Unwritable};

/// The keys of a stripe to hide.
type Hidden = Vec<(Vec<u8>, SlotId)>;

/// The last line of a list of doubtful keys.
pub const UNNAMED: &str =
    "other keys: a key that lost all its records is absent, and no record names it";

/// Known versions of a key in a report.
const KNOWN_MAX: usize = 10;

impl Store {
    /// Marks what is lost, lists the keys whose newest record may be lost, and deletes them: a stripe at a time, because
    /// all of them may not fit the memory.
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
        let mut list = match is_dry {
            true => None,
            false => Some(begin_list(path, report).map_err(failed)?),
        };
        let mut lost = self.lost(losses).map_err(refused)?;
        for stripe in 0..self.stripes() {
            let (hidden, doubts) = self.mark_lost(stripe, &mut lost).map_err(refused)?;
            take_doubts(doubts, report, &mut list).map_err(failed)?;
            if is_dry {
                continue;
            }
            let mut locked = [(stripe, self.stripe(stripe))];
            let removed = self.remove_all(&hidden, &mut locked, calendar::now());
            removed.map_err(|why| {
                failed(match why {
                    Refused::NoSpace => io::ErrorKind::StorageFull.into(),
                    _ => io::Error::other("the log takes no delete"),
                })
            })?;
            drop(locked);
            self.write_out().map_err(refused)?;
        }
        take_doubts(lost.rest(), report, &mut list).map_err(failed)?;
        report.doubts.sort_by(|one, other| one.key.cmp(&other.key));
        let Some(mut list) = list else { return Ok(()) };
        let unnamed = if report.has_unnamed { format!("{UNNAMED}\n") } else { String::new() };
        let ended = list.write_all(unnamed.as_bytes()).and_then(|()| sync(&mut list));
        ended.map_err(failed)?;
        // A key without a record may have had any state and version before.
        let last = self.0.log.last();
        self.0.unsure.fetch_max(last, Ordering::Relaxed);
        self.0.floor.fetch_max(last, Ordering::Relaxed);
        self.write_out().and_then(|()| self.0.log.note(self.forgotten())).map_err(refused)
    }

    /// Sorts the lost records. Appends the clear records again, because their commit number is all that they contain.
    fn lost(&self, losses: Losses) -> Result<LostKeys, Unwritable> {
        let mut named = HashMap::<_, Vec<_>>::new();
        for (key, sequence) in losses.named {
            named.entry(key).or_default().push(sequence);
        }
        let met = named.keys().map(|key: &Vec<u8>| key_sum(key)).collect();
        let (clears, mut listed): (Vec<_>, Vec<_>) = losses
            .entries
            .into_iter()
            .map(|entry| (entry.key_sum, entry.sequence))
            .partition(|&(key_sum, _)| key_sum == 0);
        for (_, sequence) in clears {
            let record = Record::of_no_key(Kind::Clear, sequence);
            self.0.log.begin_move(&record)?.append_moved(&record);
            self.restore_clear(sequence);
        }
        listed.sort_unstable();
        Ok(LostKeys { named, listed, met, unknown: losses.unknown })
    }

    /// Appends a stand-in for each lost record of a stripe. Returns the keys to hide, and what is known of them.
    fn mark_lost(
        &self,
        stripe: usize,
        all: &mut LostKeys,
    ) -> Result<(Hidden, Vec<Doubt>), Unwritable> {
        let mut table = self.stripe(stripe);
        let mut marked = Vec::new();
        for slot in table.slots() {
            let key = table.newest_key(slot).to_vec();
            let mut lost = all.take(&key);
            if let Some(up_to) = all.unknown {
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
        let doubts = marked.iter().map(|(key, slot)| doubt(&table, key, *slot)).collect();
        Ok((marked, doubts))
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

/// The first commit of each gap behind a record of the key, if a record in the gap may be lost. The records of every
/// commit up to `up_to` may be lost.
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

struct LostKeys {
    named: HashMap<Vec<u8>, Vec<Sequence>>,
    /// Lost records whose key is known only by its sum ([`key_sum`]), sorted.
    listed: Vec<(u32, Sequence)>,
    /// Sums of keys that are reported already, because they have a name or a record in the table.
    met: HashSet<u32>,
    /// See [`Losses::unknown`].
    unknown: Option<Sequence>,
}

impl LostKeys {
    /// Takes the lost records of a key that still has a record in the table.
    fn take(&mut self, key: &[u8]) -> BTreeSet<Sequence> {
        let key_sum = key_sum(key);
        let mut lost: BTreeSet<_> = self.named.remove(key).into_iter().flatten().collect();
        let first = self.listed.partition_point(|&(other, _)| other < key_sum);
        let listed = self.listed[first..].iter().take_while(|&&(other, _)| other == key_sum);
        for &(_, sequence) in listed {
            lost.insert(sequence);
            self.met.insert(key_sum);
        }
        lost
    }

    /// The keys that have no record.
    fn rest(self) -> impl Iterator<Item = Doubt> {
        let LostKeys { named, listed, met, .. } = self;
        let doubt = |key, from| Doubt { key, from, known: Vec::new(), deleted: false };
        let named = named
            .into_iter()
            .map(move |(key, sequences)| doubt(Ok(key), sequences.into_iter().min().unwrap_or(0)));
        let mut last = None;
        // `listed` is sorted, so the first record of a key sum is the oldest.
        let first = move |&(key_sum, _): &(u32, _)| {
            last.replace(key_sum) != Some(key_sum) && !met.contains(&key_sum)
        };
        let unmet = listed.into_iter().filter(first);
        named.chain(unmet.map(move |(key_sum, from)| doubt(Err(key_sum), from)))
    }
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

/// Opens a file of the day in the directory, and adds the damaged places.
fn begin_list(directory: &Path, report: &mut Report) -> io::Result<BufWriter<File>> {
    let path = directory.join(format!("REPAIR-{}.txt", day(u64::from(calendar::now()))));
    let mut list = BufWriter::new(OpenOptions::new().create(true).append(true).open(&path)?);
    report.list = Some(path);
    report.lost.iter().try_for_each(|lost| writeln!(list, "{lost}"))?;
    sync(&mut list)?;
    File::open(directory)?.sync_all()?;
    Ok(list)
}

fn sync(list: &mut BufWriter<File>) -> io::Result<()> {
    list.flush()?;
    list.get_ref().sync_all()
}

/// Adds keys to the report and to the list. The list is on the disk before they are deleted, because the next repair
/// does not find deleted keys.
fn take_doubts(
    doubts: impl IntoIterator<Item = Doubt>,
    report: &mut Report,
    list: &mut Option<BufWriter<File>>,
) -> io::Result<()> {
    for doubt in doubts {
        if let Some(list) = list {
            writeln!(list, "{doubt}")?;
        }
        report.doubts_all += 1;
        if report.doubts.len() < DOUBTS_MAX {
            report.doubts.push(doubt);
        }
    }
    list.as_mut().map_or(Ok(()), sync)
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
