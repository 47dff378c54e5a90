//! Opens the versioned store that the flags describe.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use knee_kv_store::{
    Consistency, DirectoryError, DirectoryOptions, Durability, Opening, Pass, Report, Store,
    StoreOptions, UNNAMED,
};
use knee_server::program::Failure;
use knee_telemetry::tell;

use crate::PROGRAM;

pub(super) const MIB: usize = 1 << 20;
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Smallest segment of a log, in bytes: it fits the largest piece of a value.
const SEGMENT_BYTES_MIN: usize = 2 << 20;
const SEGMENT_BYTES_MAX: usize = 64 << 20;
/// A log has at least this number of segments, unless they would be smaller than `SEGMENT_BYTES_MIN`.
const SEGMENTS_MIN: usize = 64;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Order {
    Linearizable,
    Sequential,
}

/// Whether a damaged directory is opened or only examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Repair {
    Now,
    DryRun,
}

pub(super) fn durability(text: &str) -> Result<Durability, String> {
    match text.split_once(':') {
        None if text == "always" => Ok(Durability::Always),
        None if text == "none" => Ok(Durability::None),
        Some(("interval", ms)) => match ms.parse() {
            Ok(1..) => Ok(Durability::Interval(ms.parse().unwrap_or(u32::MAX))),
            _ => Err(format!("{ms:?} is not a number of milliseconds, at least 1")),
        },
        _ => Err("not one of always, none and interval:MS, such as interval:100".into()),
    }
}

pub(super) struct StoreFlags<'a> {
    /// Without a directory the store is in memory.
    pub(super) directory: Option<&'a Path>,
    pub(super) mebibytes: u64,
    pub(super) value_bytes_max: u64,
    pub(super) durability: Durability,
    pub(super) order: Option<Order>,
    pub(super) repair: Option<Repair>,
    pub(super) stripes: usize,
}

impl StoreFlags<'_> {
    /// Opens the store, and prints what a repair lost. `None`: a dry run has only printed it.
    pub(super) fn open(&self) -> Result<Option<Store>, Failure> {
        let bytes_max = self.mebibytes as usize * MIB;
        let options = self.options(bytes_max)?;
        let Some(path) = self.directory else {
            let made = Store::in_memory(options, bytes_max as u64);
            let made = made.map_err(|error| Failure::system("cannot make the log", &error))?;
            return Ok(Some(made));
        };
        let directory = DirectoryOptions {
            path: path.to_owned(),
            durability: self.durability,
            repair: self.repair == Some(Repair::Now),
        };
        let progress = &mut report_opening(path);
        let opened = match self.repair {
            Some(Repair::DryRun) => {
                Store::examine(options, &directory, progress).map(|report| (None, report))
            }
            _ => Store::open_and_tell(options, &directory, bytes_max as u64, progress)
                .map(|(store, report)| (Some(store), report)),
        };
        let (store, report) = opened.map_err(|error| {
            let remedy = remedy(&error, self.repair.is_some());
            Failure { message: format!("cannot open --data {error}{remedy}"), code: 1 }
        })?;
        for (file, what) in &report.manifests {
            let file = file.display();
            let source = if report.is_rebuilt { "the segments" } else { "the other copy" };
            let done = match (store.is_some(), report.is_rebuilt) {
                (false, _) => "to be rebuilt from",
                (true, true) => "rebuilt from",
                (true, false) => "mended from",
            };
            tell(PROGRAM, format_args!("{file}: {what}; {done} {source}"));
        }
        if self.repair.is_some() {
            tell_lost(&report);
        }
        Ok(store)
    }

    fn options(&self, bytes_max: usize) -> Result<StoreOptions, Failure> {
        let value_bytes_max = self.value_bytes_max as usize;
        let share = 1 << (bytes_max / SEGMENTS_MIN).ilog2();
        let segment_bytes = share.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        // The log must hold two of the largest values, so that a large value can be replaced.
        let bytes_min = 2 * (value_bytes_max + segment_bytes);
        if bytes_max < bytes_min {
            return Err(Failure::usage(format!(
                "--memory-mb {} is too little for a log with values of --value-bytes-max \
                 {value_bytes_max}: it takes at least {}",
                self.mebibytes,
                bytes_min.div_ceil(MIB)
            )));
        }
        let consistency = match self.order {
            Some(Order::Sequential) => Consistency::Sequential,
            Some(Order::Linearizable) | None => Consistency::Linearizable,
        };
        Ok(StoreOptions { consistency, stripes: self.stripes, value_bytes_max, segment_bytes })
    }
}

/// Prints what a repair lost, or what it would lose.
fn tell_lost(report: &Report) {
    for lost in &report.lost {
        tell(PROGRAM, format_args!("repair: {lost}"));
    }
    for doubt in &report.doubts {
        tell(PROGRAM, format_args!("repair: {doubt}"));
    }
    if report.has_unnamed {
        tell(PROGRAM, format_args!("repair: {UNNAMED}"));
    }
    let list = report.list.as_ref().map(|list| format!("; {} lists all", list.display()));
    let list = list.unwrap_or_default();
    match report.doubts_all {
        0 if report.lost.is_empty() || report.has_unnamed => {}
        0 => tell(PROGRAM, format_args!("repair: every key has its newest version{list}")),
        1 => tell(
            PROGRAM,
            format_args!(
                "repair: 1 key is absent, because its newest version may be lost; put it again, or read its certain \
                 versions while --history-s keeps them{list}"
            ),
        ),
        keys => tell(
            PROGRAM,
            format_args!(
                "repair: {keys} keys are absent, because their newest versions may be lost; put them again, or read \
                 their certain versions while --history-s keeps them{list}"
            ),
        ),
    }
}

/// Reports a log that takes more than its limit. Call this after starting the keeper. After a kill, the log may be
/// slightly too large; the keeper reduces it to its limit.
pub(super) fn report_excess(store: &Store, directory: &Path, mebibytes: u64) {
    let (taken, bytes_max) = store.log_bytes();
    if taken > bytes_max {
        let message = format_args!(
            "the log in {} takes {} MiB, more than --memory-mb {mebibytes}: writes are refused until it takes \
             less; raise --memory-mb, or delete",
            directory.display(),
            taken.div_ceil(1 << 20),
        );
        tell(PROGRAM, message);
    }
}

/// Writes everything to the disk, at the end of the process.
pub(super) fn write_out(store: &Store) -> Result<(), Failure> {
    store.write_out().map_err(|error| Failure {
        message: format!("the log cannot be written: {error}; the last writes may be lost"),
        code: 1,
    })
}

/// Reports the progress of a recovery once a second.
fn report_opening(path: &Path) -> impl FnMut(Opening) {
    let mut reported = Instant::now();
    let mut began = (Pass::Check, reported);
    let mut last = reported;
    move |Opening { pass, bytes, bytes_all }| {
        if pass != began.0 {
            // The first report of a pass comes at the end of its first file.
            began = (pass, last);
        }
        last = Instant::now();
        if reported.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        reported = Instant::now();
        let what = match pass {
            Pass::Check => "checked",
            Pass::Restore => "restored",
        };
        let megabytes = |bytes| bytes as f64 / 1e6;
        let message = format_args!(
            "opening {}: {what} {:.0} of {:.0} MB, {:.1} MB/s",
            path.display(),
            megabytes(bytes),
            megabytes(bytes_all),
            megabytes(bytes) / began.1.elapsed().as_secs_f64().max(1e-9),
        );
        tell(PROGRAM, message);
    }
}

fn remedy(error: &DirectoryError, repairs: bool) -> &'static str {
    match error {
        DirectoryError::Damaged(file, _)
            if file.ends_with("MANIFEST") || file.ends_with("MANIFEST.copy") =>
        {
            "; --repair rebuilds both from the segments, without old versions"
        }
        DirectoryError::Damaged(..) if !repairs => {
            "; --repair=dry-run lists what is lost, --repair opens the store without it"
        }
        DirectoryError::Damaged(..) => "",
        DirectoryError::InUse(_) => "; end that one, or name another directory",
        DirectoryError::Other(..) => "; use the flags that made the directory, or name another one",
        DirectoryError::Io(_, error) => match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                "; give a directory, or a path that does not exist yet"
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "; make this user its owner, or name another directory"
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                "; free some space, or name a directory on another disk"
            }
            _ => "",
        },
    }
}
