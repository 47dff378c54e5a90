//! `knee-kv graph`: a synthetic edge list.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use clap::Args;
use knee_server::program::Failure;
use knee_telemetry::tell;

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
        let graph =
            SyntheticGraph::with_largest(self.users, self.largest, self.exponent, self.seed)
                .map_err(|error| Failure::usage(error.to_string()))?;
        let unwritten =
            |error| Failure::system(&format!("cannot write {}", self.file.display()), &error);
        if fs::symlink_metadata(&self.file).is_ok() {
            return Err(unwritten(io::Error::other("the file exists; name another file")));
        }
        // Write to a temporary name, so that the file is complete when it appears.
        let mut part = self.file.clone().into_os_string();
        part.push(".part");
        let written = File::create(&part).and_then(|file| {
            graph.write_to(&file)?;
            file.sync_all()?;
            fs::rename(&part, &self.file)
        });
        written.map_err(unwritten)?;
        tell(PROGRAM, format_args!("wrote {} edges", graph.count()));
        Ok(())
    }
}
