//! `knee-load memcached`.

use std::time::Duration;

use clap::Args;

use super::common::{Common, Failure, seconds, share};
use super::keyed::Keyed;
use crate::keys::KeyFormat;
use crate::mix::SetGet;
use crate::on_reactor::OnReactor;
use crate::populate;
use crate::run;
use crate::workload::{MULTIGET_MAX, Workload};

/// Largest number of requests in flight per connection.
const PIPELINE_MAX: i64 = 65_536;

#[derive(Args, Debug)]
pub(super) struct Memcached {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    keyed: Keyed,
    /// Length of the run.
    #[arg(long, value_name = "S", required_unless_present = "populate", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Each client sends S sets, then G gets, over and over.
    #[arg(long, value_name = "S:G", default_value = "1:10")]
    set_get: SetGet,
    /// Number of keys of each get.
    #[arg(long, value_name = "K", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MULTIGET_MAX)))]
    multiget: u32,
    /// Number of requests in flight per connection. A closed loop has exactly D (default 1), an open loop at most D
    /// (default 256). The response time of a request includes its wait for room.
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=PIPELINE_MAX))]
    pipeline: Option<u32>,
    /// Only set the first SHARE of the keys (0 to 1) on every server; then exit.
    #[arg(long, value_name = "SHARE", value_parser = share,
          conflicts_with_all = ["seconds", "start_at", "rate", "verify", "hdr_log", "admin"])]
    populate: Option<f64>,
}

impl Memcached {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let common = &self.common;
        let items = self.keyed.items(KeyFormat::Padded, self.keyed.keys)?;
        if let Some(share) = self.populate {
            let parent = common.tied_to_parent;
            common.print(&populate::populate(&common.server, items, share, parent)?);
            return Ok(());
        }
        let workload = Workload {
            items,
            choice: self.keyed.key_choice,
            set_get: self.set_get,
            multiget: self.multiget,
            seed: common.seed,
        };
        let plan = common.plan(self.seconds, self.pipeline.map(|pipeline| pipeline as usize));
        run::run(plan, OnReactor(workload), common.tied_to_parent, common.reporter()?)?;
        Ok(())
    }
}
