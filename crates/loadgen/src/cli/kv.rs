//! `knee-load kv`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::common::{Common, Failure, seconds, share};
use super::keyed::Keyed;
use crate::grpc::OverGrpc;
use crate::items::Items;
use crate::keys::KeyFormat;
use crate::kv::{self, BULK_KEYS_MAX, KvCalls, Mix, Part, Shape, Text, Workload};
use crate::on_reactor::OnReactor;
use crate::populate;
use crate::run;
use knee_telemetry::Op;

#[derive(Args, Debug)]
pub(super) struct Kv {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    keyed: Keyed,
    /// Protocol. knee-load checks before the start that the server is a store, but only over gRPC.
    #[arg(long, value_enum, default_value_t = Protocol::Grpc)]
    protocol: Protocol,
    /// Length of the run.
    #[arg(long, value_name = "S", required_unless_present_any = ["populate", "init"],
          value_parser = seconds)]
    seconds: Option<Duration>,
    /// Weights of operations, by which each request is drawn: OPERATION:WEIGHT,… The operations are read, insert,
    /// update, put, append, delete, scan, atomic_scan and bulk_put (the last three over gRPC only).
    #[arg(long, value_name = "MIX", default_value = "read:90,put:10")]
    mix: Mix,
    /// Format of a key's number: padded with zeros to one length, or plain, as for the users of a graph.
    #[arg(long, value_enum, default_value_t = KeyFormat::Padded)]
    key_format: KeyFormat,
    /// Draw N keys once, by --key-choice; every client goes through them over and over.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    key_draws: Option<u32>,
    /// Seed of these draws. Processes with the same seed draw the same keys. Default: --seed.
    #[arg(long, value_name = "SEED", requires = "key_draws")]
    draws_seed: Option<u64>,
    /// Give each client its own keys: KEYS/CLIENTS of them, at least one.
    #[arg(long)]
    own_keys: bool,
    /// This process is number I of N, counted from 1. Its clients' own keys are the I-th of N equal parts.
    #[arg(long, value_name = "I/N", requires = "own_keys")]
    part: Option<Part>,
    /// Write without request ids (gRPC only). The server then cannot recognise a repeated write, so knee-load does not
    /// repeat a write whose connection was lost.
    #[arg(long)]
    no_request_ids: bool,
    /// Length of a scan: K consecutive keys of the key space.
    #[arg(long, value_name = "K", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    scan_keys: u32,
    /// Number of keys of a bulk put, all different.
    #[arg(long, value_name = "K", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(BULK_KEYS_MAX)))]
    bulk_keys: u32,
    /// Count reads of values of at least B bytes as read_large.
    #[arg(long, value_name = "B")]
    large_bytes: Option<u64>,
    /// Only put the first SHARE of the keys (0 to 1) on every server; then exit.
    #[arg(long, value_name = "SHARE", value_parser = share,
          conflicts_with_all = ["seconds", "start_at", "rate", "verify", "hdr_log", "admin"])]
    populate: Option<f64>,
    /// Only make every server load the list of edges in FILE of its --init-dir; then exit (gRPC only). An interrupted
    /// load continues.
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["seconds", "start_at", "rate", "verify", "hdr_log", "admin", "populate"])]
    init: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Grpc,
    Memcached,
}

impl Kv {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let common = &self.common;
        let parent = common.tied_to_parent;
        let workload = self.workload()?;
        if let Some(share) = self.populate {
            let servers = &common.server;
            common.print(&match self.protocol {
                Protocol::Grpc => kv::populate(servers, workload, share, parent)?,
                Protocol::Memcached => populate::populate(servers, workload.items, share, parent)?,
            });
            return Ok(());
        }
        if let Some(file) = &self.init {
            if self.protocol != Protocol::Grpc {
                return Err(Failure::Flags("--init needs gRPC: --protocol grpc".into()));
            }
            common.print(&kv::init(&common.server, file, parent)?);
            return Ok(());
        }
        let plan = common.plan(self.seconds, None);
        let reporter = common.reporter()?;
        match self.protocol {
            Protocol::Grpc => {
                let calls = KvCalls::new(workload, common.clients, !self.no_request_ids);
                run::run(plan, OverGrpc(calls), parent, reporter)?;
            }
            Protocol::Memcached => run::run(plan, OnReactor(Text(workload)), parent, reporter)?,
        }
        Ok(())
    }

    fn workload(&self) -> Result<Workload, String> {
        let only_grpc = [Op::Scan, Op::AtomicScan, Op::BulkPut];
        if self.protocol == Protocol::Memcached
            && let Some(op) = only_grpc.into_iter().find(|op| self.mix.names(*op))
        {
            return Err(format!("the memcached protocol has no {}: --protocol grpc", op.name()));
        }
        if self.protocol == Protocol::Memcached && self.no_request_ids {
            return Err("the memcached protocol has no request ids: --protocol grpc".into());
        }
        if self.protocol == Protocol::Grpc
            && self.keyed.ttl_s.is_some()
            && self.mix.asks_for(Op::Append)
        {
            return Err(
                "over gRPC an append to an expired key makes one that never expires: leave out --ttl-s"
                    .into(),
            );
        }
        Workload::new(self.items()?, self.shape(), self.common.clients)
    }

    fn items(&self) -> Result<Items, String> {
        let common = &self.common;
        let keys = match (self.part, self.keyed.keys) {
            // More keys, as in the next case, would reach into the parts of processes with fewer clients.
            (Some(Part { of, .. }), keys) if keys < common.clients * of => {
                return Err(format!(
                    "{of} parts with a key for each of {} clients need --keys {} or more, not {keys}",
                    common.clients,
                    common.clients * of
                ));
            }
            // Every client has at least one key.
            (None, 1..) if self.own_keys => self.keyed.keys.max(common.clients),
            (_, keys) => keys,
        };
        self.keyed.items(self.key_format, keys)
    }

    fn own_keys(&self) -> Option<Part> {
        self.own_keys.then(|| self.part.unwrap_or(Part::WHOLE))
    }

    fn shape(&self) -> Shape {
        Shape {
            mix: self.mix.clone(),
            choice: self.keyed.key_choice,
            key_draws: self.key_draws,
            own_keys: self.own_keys(),
            scan_keys: self.scan_keys,
            bulk_keys: self.bulk_keys,
            large_bytes: self.large_bytes,
            seed: self.common.seed,
            draws_seed: self.draws_seed.unwrap_or(self.common.seed),
        }
    }
}
