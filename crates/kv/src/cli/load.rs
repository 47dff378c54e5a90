//! `knee-kv load`: edge lists into a directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use knee_kv_store::calendar::now;
use knee_kv_store::{Durability, History, Keeper, Store};
use knee_server::program::{Failure, on_signals};
use knee_telemetry::tell;

use super::store::{Order, PROGRESS_INTERVAL, StoreFlags, durability, report_excess, write_out};
use crate::PROGRAM;
use crate::graph::{self, COMMIT_EDGES, LoadOptions, Progress};

/// Number of locks of the store: a load has one writer.
const STRIPES: usize = 8;
/// The exit code of a load that a signal stopped: the code of shells after SIGINT.
const STOPPED: u8 = 130;

/// Loads edge lists, a line `user<TAB>follower` for each edge, into a directory.
///
/// The same command resumes a load that was ended early: no edge is lost or doubled. The name of its file
/// identifies a list.
#[derive(Debug, Args)]
pub(super) struct Load {
    /// Directory of the store, which is made if it is missing.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Edge lists.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Largest size of the log, in MiB.
    #[arg(long, value_name = "M", default_value_t = 32 * 1024,
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory_mb: u64,
    /// Largest value, in bytes: the followers of one user.
    #[arg(long, value_name = "B", default_value_t = 1 << 30,
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    value_bytes_max: u64,
    /// The time at which a write is on the disk, like the server's flag.
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = durability)]
    durability: Durability,
    /// The order that versions show, like the server's flag. [default: linearizable]
    #[arg(long, value_name = "ORDER")]
    consistency: Option<Order>,
}

impl Load {
    pub(super) fn run(&self) -> Result<(), Failure> {
        // The first signal stops the load; the second one ends the process.
        let stops = Arc::<AtomicBool>::default();
        let stop = Arc::clone(&stops);
        on_signals(move || stop.store(true, Ordering::Release))?;
        let flags = StoreFlags {
            directory: Some(&self.data),
            mebibytes: self.memory_mb,
            value_bytes_max: self.value_bytes_max,
            durability: self.durability,
            order: self.consistency,
            repair: None,
            stripes: STRIPES,
        };
        let Some(store) = flags.open()? else { return Ok(()) };
        let _keeper = Keeper::start(store.clone(), History::Seconds(0))
            .map_err(|error| Failure::system("cannot start the keeper", &error))?;
        report_excess(&store, &self.data, self.memory_mb);
        self.files.iter().try_for_each(|file| load(&store, file, &stops))?;
        write_out(&store)
    }
}

fn load(store: &Store, path: &Path, stops: &AtomicBool) -> Result<(), Failure> {
    let shown = path.display();
    let unread = |error| Failure::system(&format!("cannot read {shown}"), &error);
    let list = File::open(path).map_err(unread)?;
    let list_bytes = list.metadata().map_err(unread)?.len();
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        Failure::usage(format!("the name of {shown} is not UTF-8: rename the file"))
    })?;
    let stops = || stops.load(Ordering::Acquire);
    let options = LoadOptions { name, commit_edges: COMMIT_EDGES, now };
    let mut reported = Instant::now();
    let loaded = graph::load(store, list, &options, |progress| {
        if reported.elapsed() >= PROGRESS_INTERVAL {
            reported = Instant::now();
            report(path, "loading", progress, list_bytes);
        }
        if stops() { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    });
    match loaded {
        Ok(progress) if progress.position.bytes == list_bytes || !stops() => {
            report(path, "loaded", &progress, list_bytes);
            Ok(())
        }
        Ok(_) => {
            let message = format!("{shown}: ended early; the same command resumes it");
            Err(Failure { message, code: STOPPED })
        }
        Err(error) => Err(Failure { message: format!("{shown}: {error}"), code: 1 }),
    }
}

fn report(path: &Path, what: &str, progress: &Progress, list_bytes: u64) {
    let Progress { position, resumed, .. } = progress;
    let share = 100.0 * position.bytes as f64 / list_bytes.max(1) as f64;
    let earlier = match resumed.edges {
        0 => String::new(),
        edges => format!(", {edges} of them by earlier loads"),
    };
    let message = format_args!(
        "{what} {}: {} edges in {} lines{earlier}, {share:.1} %, {:.0} edges/s, {:.1} MB/s",
        path.display(),
        position.edges,
        position.lines,
        progress.edges_per_s(),
        progress.bytes_per_s() / 1e6,
    );
    tell(PROGRAM, message);
}
