//! `knee-load nbd`.

use std::time::Duration;

use clap::Args;

use super::common::{Common, Failure, seconds, share};
use crate::blocks::Blocks;
use crate::on_reactor::OnReactor;
use crate::run;
use crate::values::VALUE_BYTES_MAX;

#[derive(Args, Debug)]
pub(super) struct Nbd {
    #[command(flatten)]
    common: Common,
    /// Length of the run.
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Duration,
    /// Size of a block. Each request reads or writes a whole block at a multiple of this size, drawn uniformly. With
    /// --verify, the disk must be zero, or written by earlier runs with the same size.
    #[arg(long, value_name = "BYTES", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(VALUE_BYTES_MAX)))]
    block_bytes: u32,
    /// Share of the requests that write (0 to 1).
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    writes: f64,
}

impl Nbd {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let Nbd { common, seconds, block_bytes, writes } = self;
        let blocks = Blocks { block_bytes: *block_bytes, writes: *writes, seed: common.seed };
        // Replies may come in any order, so a connection has one request.
        let plan = common.plan(Some(*seconds), Some(1));
        run::run(plan, OnReactor(blocks), common.tied_to_parent, common.reporter()?)?;
        Ok(())
    }
}
