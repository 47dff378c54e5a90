//! From a directory to a store: what was written, up to where it is whole.
//!
//! Segments are read twice. First every checksum is looked at, which says where each segment ends
//! and whether something in it has changed since it was written; then their records are put in
//! the tables. A commit that was cut off by a crash was never told of, and is cut away.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::directory::{Directory, DirectoryError, FILE_HEAD_BYTES, Manifest};
use super::log::Recovered;
use super::record::{self, ALIGN, HEAD_BYTES, Kind, Record, Sequence};
use super::segment::{Location, Segment};

/// A record that is to be put in a table.
pub(crate) struct Found {
    pub(crate) at: Location,
    pub(crate) sequence: Sequence,
    pub(crate) part: u32,
}

/// What a recovery had to leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The file.
    pub file: PathBuf,
    /// Where in the file the damage begins.
    pub offset: u64,
    /// Bytes up to the next record that can be read, or to the end.
    pub bytes: u64,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Lost { file, offset, bytes } = self;
        match bytes {
            0 => write!(f, "{}: nothing from {offset} on can be read", file.display()),
            _ => write!(f, "{}: {bytes} bytes from {offset} on are lost", file.display()),
        }
    }
}

/// Reads the segments of a directory. Damage is an error, unless `lost` takes what it costs.
pub(crate) fn read_segments(
    directory: &Directory,
    manifest: &Manifest,
    mut lost: Option<&mut Vec<Lost>>,
) -> Result<Recovered, DirectoryError> {
    let mut segments = Vec::new();
    let mut damaged_segments = BTreeSet::new();
    let mut last = 0;
    let mut unsealed: Option<Ended> = None;
    let mut unwritten = Vec::new();
    for (&id, &salt) in &manifest.segments {
        let path = directory.file(id);
        let told = |error| DirectoryError::Io(path.clone(), error);
        let file = match (directory.open_before(id, salt), &mut lost) {
            (Err(DirectoryError::Damaged(file, _)), Some(lost)) => {
                lost.push(Lost { file, offset: 0, bytes: 0 });
                directory.set_aside(id).map_err(told)?;
                continue;
            }
            (file, _) => file?,
        };
        let bytes = file.metadata().map_err(told)?.len().saturating_sub(FILE_HEAD_BYTES) as usize;
        if bytes < HEAD_BYTES {
            return Err(DirectoryError::Damaged(path, "it was cut short".into()));
        }
        let segment = Segment::sealed(id, salt, &file, bytes, 0).map_err(told)?;
        let scan = scan(&segment);
        for gap in &scan.gaps {
            let at = Lost {
                file: path.clone(),
                offset: FILE_HEAD_BYTES + gap.0 as u64,
                bytes: (gap.1 - gap.0) as u64,
            };
            match &mut lost {
                Some(lost) => lost.push(at),
                None => return Err(damaged(at)),
            }
            damaged_segments.insert(id);
        }
        if scan.end == 0 && !scan.sealed {
            // It was made, and never written to, if there is nothing behind it either.
            unwritten.push((id, path));
            continue;
        }
        for (id, file) in unwritten.drain(..) {
            let at = Lost { file, offset: FILE_HEAD_BYTES, bytes: 0 };
            match &mut lost {
                Some(lost) => lost.push(at),
                None => return Err(damaged(at)),
            }
            directory.set_aside(id).map_err(told)?;
        }
        if let Some(ended) = unsealed.take() {
            // The log went on behind its end: the end of it is missing.
            let at = Lost { file: ended.path.clone(), offset: ended.offset(), bytes: 0 };
            match &mut lost {
                Some(lost) => lost.push(at),
                None => return Err(damaged(at)),
            }
            ended.seal().map_err(|error| DirectoryError::Io(ended.path.clone(), error))?;
        }
        last = last.max(scan.last);
        let whole = Segment::sealed(id, salt, &file, scan.end, 0).map_err(told)?;
        if !scan.sealed {
            unsealed = Some(Ended { path, file, salt, end: scan.end, sequence: scan.last });
        }
        segments.push(Arc::new(whole));
    }
    if let Some(ended) = unsealed {
        ended.seal().map_err(|error| DirectoryError::Io(ended.path.clone(), error))?;
    }
    for (id, path) in unwritten {
        let told = |error| DirectoryError::Io(path, error);
        directory.remove(id, manifest.compacted).map_err(told)?;
    }
    let next = manifest.segments.keys().next_back().map_or(1, |id| id + 1);
    Ok(Recovered { segments, next, last, damaged: damaged_segments })
}

fn damaged(lost: Lost) -> DirectoryError {
    let Lost { file, offset, .. } = lost;
    let what = format!("what is at {offset} is not what was written there");
    DirectoryError::Damaged(file, what)
}

/// A segment that nobody sealed.
struct Ended {
    path: PathBuf,
    file: File,
    salt: u32,
    end: usize,
    sequence: Sequence,
}

impl Ended {
    fn offset(&self) -> u64 {
        FILE_HEAD_BYTES + self.end as u64
    }

    /// Marks its end, so that nothing behind it is ever taken for a record.
    fn seal(&self) -> std::io::Result<()> {
        let mut bytes = [0; HEAD_BYTES];
        Record::seal(self.sequence).encode(self.salt, &mut bytes);
        let file = File::options().write(true).open(&self.path)?;
        file.write_all_at(&bytes, self.offset())?;
        file.sync_all()?;
        self.file.sync_all()
    }
}

struct Scan {
    /// Behind the last record that is whole.
    end: usize,
    sealed: bool,
    last: Sequence,
    /// From where to where something else is among the records.
    gaps: Vec<(usize, usize)>,
}

fn scan(segment: &Segment) -> Scan {
    let bytes = segment.written(0, segment.filled());
    let mut scan = Scan { end: 0, sealed: false, last: 0, gaps: Vec::new() };
    let mut at = 0;
    while at + HEAD_BYTES <= bytes.len() {
        match record::decode(&bytes[at..], segment.salt) {
            Ok(record) if record.kind == Kind::Seal => {
                scan.sealed = true;
                scan.end = at;
                return scan;
            }
            Ok(record) => {
                at += record.bytes();
                scan.end = at;
                scan.last = scan.last.max(record.sequence);
            }
            Err(_) => {
                // A crash leaves an end. Damage leaves records behind it.
                let behind = (at + ALIGN..=bytes.len() - HEAD_BYTES)
                    .step_by(ALIGN)
                    .filter(|&behind| record::may_begin(&bytes[behind..]))
                    .find(|&behind| record::decode(&bytes[behind..], segment.salt).is_ok());
                let Some(behind) = behind else { return scan };
                scan.gaps.push((at, behind));
                at = behind;
            }
        }
    }
    scan
}

/// The records of a segment in their order, those of commits that were cut off left out. `pending`
/// is what the segments before have left of a commit that goes on.
pub(crate) fn records(segment: &Segment, pending: &mut Vec<Found>, mut visit: impl FnMut(Found)) {
    let mut at = 0;
    while at + HEAD_BYTES <= segment.filled() {
        let Ok(record) = segment.checked(at) else {
            at += ALIGN;
            continue;
        };
        let location = Location::new(segment.id, at);
        at += record.bytes();
        let found = Found { at: location, sequence: record.sequence, part: record.part };
        if record.moved {
            visit(found);
            continue;
        }
        if pending.first().is_some_and(|first| first.sequence != record.sequence) {
            pending.clear();
        }
        pending.push(found);
        if !record.more {
            pending.drain(..).for_each(&mut visit);
        }
    }
}
