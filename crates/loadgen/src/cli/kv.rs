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
    /// How the server is spoken to. Only over gRPC is it asked before the start whether it is one.
    #[arg(long, value_enum, default_value_t = Protocol::Grpc)]
    protocol: Protocol,
    /// How long to send.
    #[arg(long, value_name = "S", required_unless_present_any = ["populate", "init"],
          value_parser = seconds)]
    seconds: Option<Duration>,
    /// How often each operation is asked for: OPERATION:WEIGHT,… of read, insert, update, put,
    /// append, delete, scan, atomic_scan and bulk_put (the last three over gRPC only). Every request
    /// is drawn by these weights.
    #[arg(long, value_name = "MIX", default_value = "read:90,put:10")]
    mix: Mix,
    /// How a key's number is written: with zeros before it, so that all keys are of one length, or
    /// as people write it, such as the users of a graph.
    #[arg(long, value_enum, default_value_t = KeyFormat::Padded)]
    key_format: KeyFormat,
    /// Draw so many keys once, by --key-choice: every client goes over the same ones again and again.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    key_draws: Option<u32>,
    /// Seed of these draws, which processes side by side have in common; --seed unless given.
    #[arg(long, value_name = "SEED", requires = "key_draws")]
    draws_seed: Option<u64>,
    /// Each client has keys of its own: KEYS/CLIENTS of them, one at least.
    #[arg(long)]
    own_keys: bool,
    /// This is process number I of N that put load on side by side, from 1 on: its clients' own keys are
    /// in the I-th of N equal parts.
    #[arg(long, value_name = "I/N", requires = "own_keys")]
    part: Option<Part>,
    /// Write without request ids (gRPC only): the server then remembers none, and cannot tell a
    /// write that comes again, so that none is sent again when its connection breaks.
    #[arg(long)]
    no_request_ids: bool,
    /// Keys that a scan is about: so many consecutive ones of the key space.
    #[arg(long, value_name = "K", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    scan_keys: u32,
    /// Keys of a bulk put, each once.
    #[arg(long, value_name = "K", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(BULK_KEYS_MAX)))]
    bulk_keys: u32,
    /// Count reads of values of so many bytes or more apart, as read_large.
    #[arg(long, value_name = "B")]
    large_bytes: Option<u64>,
    /// Only put the first keys, this share of all (0 to 1), on every server, and exit.
    #[arg(long, value_name = "SHARE", value_parser = share,
          conflicts_with_all = ["seconds", "start_at", "rate", "verify", "hdr_log", "admin"])]
    populate: Option<f64>,
    /// Only ask every server to load this list of edges, a file of its --init-dir, wait until it has, and
    /// exit (gRPC only). A load that was cut off goes on where it was.
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
                return Err(Failure::Flags("--init is asked for over gRPC only".into()));
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
                "over gRPC an append to a key that has expired makes one that never does: \
                        no --ttl-s with it"
                    .into(),
            );
        }
        Workload::new(self.items()?, self.shape(), self.common.clients)
    }

    fn items(&self) -> Result<Items, String> {
        let common = &self.common;
        let keys = match (self.part, self.keyed.keys) {
            // Other processes may have other numbers of clients: more keys for these would be theirs.
            (Some(Part { of, .. }), keys) if keys < common.clients * of => {
                return Err(format!(
                    "{of} parts with a key for each of {} clients need --keys {} or more, not {keys}",
                    common.clients,
                    common.clients * of
                ));
            }
            // Clients with keys of their own have one at least.
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
