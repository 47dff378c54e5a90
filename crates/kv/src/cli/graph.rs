//! `knee-kv graph`: a synthetic edge list.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use knee_server::program::Failure;
use knee_telemetry::tell;

use super::stopping::{PROGRESS_INTERVAL, stop_on_signals, stopped};
use crate::PROGRAM;
use crate::graph::SyntheticGraph;

/// The exponent of Twitter's users (Kwak et al., WWW 2010).
const EXPONENT: f64 = 2.276;

/// Writes a list of followers, by default as skewed as Twitter's. The same arguments give the same list.
#[derive(Debug, Args)]
pub(super) struct Graph {
    /// Users, numbered from 1 on.
    #[arg(long, value_name = "N")]
    users: u64,
    /// Number of followers of the most popular user.
    #[arg(long, value_name = "L", value_parser = clap::value_parser!(u64).range(1..))]
    largest: u64,
    /// The exponent E of followers: a user has K of them with a probability proportional to K^-E. A larger
    /// exponent makes fewer edges.
    #[arg(long, value_name = "E", default_value_t = EXPONENT)]
    exponent: f64,
    /// The seed of the edges.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// The file, which must not exist.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Graph {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let stops = stop_on_signals()?;
        let graph =
            SyntheticGraph::with_largest(self.users, self.largest, self.exponent, self.seed)
                .map_err(|error| Failure::usage(error.to_string()))?;
        let shown = self.file.display();
        let unwritten = |error| Failure::system(&format!("cannot write {shown}"), &error);
        if fs::symlink_metadata(&self.file).is_ok() {
            return Err(unwritten(io::Error::other("the file exists; name another file")));
        }
        // Write to a temporary name, so that the file is complete when it appears.
        let mut part = self.file.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let written = write(&graph, &part, &stops).and_then(|progress| {
            // Unlike a rename, a link never replaces an existing file.
            fs::hard_link(&part, &self.file)?;
            Ok(progress)
        });
        let removed = fs::remove_file(&part);
        match written {
            Ok(progress) => {
                progress.report("wrote");
                removed.map_err(unwritten)
            }
            Err(_) if stops.load(Ordering::Acquire) => {
                Err(stopped(format!("{shown}: ended early and removed")))
            }
            Err(error) => Err(unwritten(error)),
        }
    }
}

fn write<'a>(
    graph: &SyntheticGraph,
    path: &Path,
    stops: &'a AtomicBool,
) -> io::Result<Progress<'a>> {
    let begun = Instant::now();
    let file = File::create(path)?;
    let edges_all = graph.count();
    let mut progress =
        Progress { file, stops, begun, reported: begun, edges: 0, edges_all, bytes: 0 };
    graph.write_to(&mut progress)?;
    progress.file.sync_all()?;
    Ok(progress)
}

/// A file that reports how much of a graph was written to it, until a signal stops it.
struct Progress<'a> {
    file: File,
    stops: &'a AtomicBool,
    begun: Instant,
    reported: Instant,
    edges: u64,
    edges_all: u64,
    bytes: u64,
}

impl Progress<'_> {
    fn report(&self, what: &str) {
        let Progress { edges, edges_all, .. } = *self;
        let share = 100.0 * edges as f64 / edges_all.max(1) as f64;
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-9);
        let message = format_args!(
            "{what} {edges} edges of {edges_all}, {share:.1} %, {:.0} edges/s, {:.1} MB/s",
            edges as f64 / seconds,
            self.bytes as f64 / seconds / 1e6,
        );
        tell(PROGRAM, message);
    }
}

impl Write for Progress<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.stops.load(Ordering::Acquire) {
            return Err(io::Error::other("stopped by a signal"));
        }
        let written = self.file.write(text)?;
        // Each line is an edge.
        self.edges += memchr::memchr_iter(b'\n', &text[..written]).count() as u64;
        self.bytes += written as u64;
        if self.reported.elapsed() >= PROGRESS_INTERVAL {
            self.reported = Instant::now();
            self.report("writing");
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
