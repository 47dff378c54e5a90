//! `knee-kv` without a subcommand: it serves.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use knee_kv_cache::MemoryLimits;
use knee_kv_store::{Durability, Grouping, History, Keeper, Store, remove_unfinished_copies};
use knee_reactor::Shutdown;
use knee_server::Trace;
use knee_server::program::{
    Failure, Observing, address, listen, on_signals, raise_open_files_limit, tie_to_parent,
};
use knee_telemetry::{Reporter, Store as Recorded, tell};

use super::store::{MIB, Order, Repair, StoreFlags, durability, report_excess, write_out};
use crate::memcached::MemcachedServer;
use crate::settings::MemcachedSettings;
use crate::{PROGRAM, grpc};

/// Longer times than these thirty years are a mistake, and would overflow the clock.
const SECONDS_MAX: u64 = 1_000_000_000;
const THREADS_MAX: u64 = 256;
/// A write that waits longer than a second looks lost to its client.
const DALLY_US_MAX: u64 = 1_000_000;
/// How long old versions are kept by default.
const HISTORY: History = History::Seconds(60);
/// Number of locks of a versioned store per thread.
const STRIPES_PER_THREAD: usize = 8;
/// Least memory for unfinished requests and unread answers.
const BUFFERED_MB_MIN: usize = 16;
/// The default address of gRPC has honu's port.
const GRPC_ADDRESS: &str = "127.0.0.1:3264";

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Address to serve; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211", value_parser = address)]
    listen: SocketAddr,
    /// Number of event loops. With one, nothing is locked.
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    threads: u64,
    /// Memory for items, index and free room together, in MiB; beyond it, items are evicted. For a
    /// store that keeps versions, the largest size of the log; beyond it, writes are refused. Unfinished requests and
    /// unread answers take at most an eighth of it more, and at least 16 MiB.
    #[arg(long, value_name = "M", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory_mb: u64,
    /// Largest value, in bytes.
    #[arg(long, value_name = "B", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    value_bytes_max: u64,
    /// Largest number of connections served at a time; further ones are refused.
    #[arg(long, value_name = "C", default_value_t = 16 * 1024,
          value_parser = clap::value_parser!(u64).range(1..))]
    connections_max: u64,
    /// Close connections after this number of seconds without traffic; 0 keeps them.
    #[arg(long, value_name = "S", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    idle_timeout_s: u64,
    /// Keep versions in this directory, which is made if it is missing; nothing is evicted.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The time at which a write is on the disk. `always`: before its answer; `interval:MS`: at most MS milliseconds
    /// later; `none`: when the system writes its cache. With each, the system has the write before its answer.
    #[arg(long, value_name = "WHEN", default_value = "always", requires = "data",
          value_parser = durability)]
    durability: Durability,
    /// Before a sync, a commit waits up to N microseconds for other commits. Needs --durability always.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "data",
          value_parser = clap::value_parser!(u64).range(..=DALLY_US_MAX))]
    dally_us: u64,
    /// Largest number of commits in one sync; 1 syncs each commit alone. Needs --durability always. [default: all
    /// commits that wait]
    #[arg(long, value_name = "N", requires = "data", value_parser = clap::value_parser!(u64).range(1..))]
    batch_max: Option<u64>,
    /// The order that versions show: of all writes (linearizable, the default), or of each key's writes. The store
    /// keeps versions also without --data.
    #[arg(long, value_name = "ORDER")]
    consistency: Option<Order>,
    /// Serve the gRPC interfaces, knee.kv.v1 and honu's, at this address, or at 127.0.0.1:3264. The store keeps
    /// versions also without --data.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = GRPC_ADDRESS,
          value_parser = address)]
    grpc: Option<SocketAddr>,
    /// Memory for the messages of all gRPC calls, in MiB. A connection may use at most as much memory
    /// as is then left for others; further calls are refused. [default: 256, or four of the largest]
    #[arg(long, value_name = "M", requires = "grpc",
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    grpc_memory_mb: Option<u64>,
    /// Largest number of connections over gRPC; a further one replaces the one that was idle longest.
    #[arg(long, value_name = "C", default_value_t = grpc::CONNECTIONS_MAX as u64, requires = "grpc",
          value_parser = clap::value_parser!(u64).range(1..))]
    grpc_connections_max: u64,
    /// The time for which old versions can be read, in seconds, if space permits. `all` keeps them until a compaction.
    /// [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = history)]
    history_s: Option<History>,
    /// Open the directory without its damaged parts: keys whose newest version may be lost are absent, and listed.
    /// `--repair=dry-run` only lists them, and ends.
    #[arg(long, value_name = "HOW", requires = "data", num_args = 0..=1, require_equals = true,
          default_missing_value = "now")]
    repair: Option<Repair>,
    /// Directory of the edge lists that `Init` may load; without it, none.
    #[arg(long, value_name = "DIR", requires = "grpc")]
    init_dir: Option<PathBuf>,
    /// Directory for the copies that `Backup` makes; without it, none.
    #[arg(long, value_name = "DIR", requires = "grpc")]
    backup_dir: Option<PathBuf>,
    /// Largest number of copies in that directory; further ones are refused.
    #[arg(long, value_name = "N", default_value_t = grpc::COPIES_MAX as u64, requires = "backup_dir",
          value_parser = clap::value_parser!(u64).range(1..))]
    backups_max: u64,
    #[command(flatten)]
    observing: Observing,
    /// End with the parent process, which has this id.
    #[arg(long, value_name = "PID")]
    tied_to_parent: Option<u32>,
}

/// Parses the value of `--history-s`.
fn history(text: &str) -> Result<History, String> {
    match text {
        "all" => Ok(History::All),
        _ => match text.parse() {
            Ok(seconds) => Ok(History::Seconds(seconds)),
            Err(_) => Err("not a number of seconds, nor all".into()),
        },
    }
}

impl Serve {
    pub(super) fn run(&self) -> Result<(), Failure> {
        tie_to_parent(self.tied_to_parent)?;
        let over_grpc = self.grpc.map_or(0, |_| self.grpc_connections_max);
        let mut flags = format!("--connections-max {}", self.connections_max);
        if over_grpc > 0 {
            flags += &format!(" and --grpc-connections-max {over_grpc}");
        }
        raise_open_files_limit(PROGRAM, self.connections_max.saturating_add(over_grpc), flags)?;
        self.check_directories()?;
        // Open the store first, because this may fail or take long.
        let store = self.store()?;
        if self.repair == Some(Repair::DryRun) {
            return Ok(());
        }
        let keeper = match &store {
            Some(store) => {
                let keeper = Keeper::start(store.clone(), self.history_s.unwrap_or(HISTORY));
                Some(keeper.map_err(|error| Failure::system("cannot start the keeper", &error))?)
            }
            None => None,
        };
        if let (Some(store), Some(directory)) = (&store, &self.data) {
            report_excess(store, directory, self.memory_mb);
        }
        let listener = listen("--listen", self.listen)?;
        let mut reporter = self.observing.reporter(PROGRAM)?;
        let trace = self.observing.trace(PROGRAM);
        let grpc = self.start_grpc(store.as_ref(), &mut reporter, trace.clone())?;
        if let Some(grpc) = &grpc {
            reporter.serves_grpc(grpc.address());
        }
        let settings = self.memcached_settings();
        let on_ready = |shutdown: Shutdown| {
            let other = grpc.as_ref().map(grpc::GrpcServer::shutdown);
            if let Some(grpc) = &grpc {
                // If the server of one protocol ends, the other server ends, too.
                let shutdown = shutdown.clone();
                grpc.on_end(move || shutdown.begin());
            }
            on_signals(move || {
                if let Some(other) = &other {
                    other.begin();
                }
                shutdown.begin();
            })
            .map_err(|failure| std::io::Error::other(failure.message))
        };
        let traced = trace.clone();
        let started = match &store {
            None => MemcachedServer::start(&settings, listener, reporter, traced, on_ready),
            Some(store) => {
                MemcachedServer::start_over(store, &settings, listener, reporter, traced, on_ready)
            }
        };
        let server = started.map_err(|error| Failure::system("cannot start", &error))?;
        let mut grpc_ended = Ok(());
        let ended = server.join_with(|| {
            if let Some(grpc) = grpc {
                grpc.shutdown().begin();
                grpc_ended = grpc.join();
            }
        });
        if let Some(trace) = trace {
            trace.finish();
        }
        ended.map_err(|error| Failure { message: error.to_string(), code: 1 })?;
        grpc_ended.map_err(|error| Failure::system("the gRPC server failed", &error))?;
        // The keeper writes as well: it ends before the last write.
        drop(keeper);
        store.map_or(Ok(()), |store| write_out(&store))
    }

    fn memcached_settings(&self) -> MemcachedSettings {
        MemcachedSettings {
            threads: self.threads as usize,
            limits: MemoryLimits {
                memory_bytes_max: self.memory_mb as usize * MIB,
                value_bytes_max: self.value_bytes_max as usize,
            },
            buffered_bytes_max: (self.memory_mb as usize / 8).max(BUFFERED_MB_MIN) * MIB,
            connections_max: self.connections_max as usize,
            idle_timeout: (self.idle_timeout_s > 0)
                .then(|| Duration::from_secs(self.idle_timeout_s)),
        }
    }

    /// Opens the store that keeps versions, if a flag asks for one.
    fn store(&self) -> Result<Option<Store>, Failure> {
        let keeps_versions = self.data.is_some()
            || self.consistency.is_some()
            || self.grpc.is_some()
            || self.history_s.is_some();
        if !keeps_versions {
            let bytes_min = MemoryLimits::memory_bytes_min(self.value_bytes_max as usize);
            if (self.memory_mb as usize * MIB) < bytes_min {
                return Err(Failure::usage(format!(
                    "--memory-mb {} is too little for values of --value-bytes-max {}: it takes at least {}",
                    self.memory_mb,
                    self.value_bytes_max,
                    bytes_min.div_ceil(MIB)
                )));
            }
            return Ok(None);
        }
        let flags = StoreFlags {
            directory: self.data.as_deref(),
            mebibytes: self.memory_mb,
            value_bytes_max: self.value_bytes_max,
            durability: self.durability,
            order: self.consistency,
            repair: self.repair,
            stripes: self.threads as usize * STRIPES_PER_THREAD,
        };
        let grouping = self.grouping()?;
        let opened = flags.open()?;
        if let (Some(store), Some(grouping)) = (&opened, grouping) {
            store.group_commits(grouping);
        }
        Ok(opened)
    }

    /// How commits share syncs, if a flag says so.
    fn grouping(&self) -> Result<Option<Grouping>, Failure> {
        if self.dally_us == 0 && self.batch_max.is_none() {
            return Ok(None);
        }
        if self.durability != Durability::Always {
            return Err(Failure::usage(
                "--dally-us and --batch-max concern syncs before answers: they need --durability always"
                    .to_owned(),
            ));
        }
        let commits_max = self.batch_max.map_or(usize::MAX, |commits| commits as usize);
        Ok(Some(Grouping { dally: Duration::from_micros(self.dally_us), commits_max }))
    }

    /// Refuses directories that cannot be read.
    fn check_directories(&self) -> Result<(), Failure> {
        for (flag, directory) in [("init", &self.init_dir), ("backup", &self.backup_dir)] {
            let Some(directory) = directory else { continue };
            std::fs::read_dir(directory).map_err(|error| Failure {
                message: format!(
                    "cannot read --{flag}-dir {}: {error}; name a directory that this user can read",
                    directory.display()
                ),
                code: 1,
            })?;
        }
        Ok(())
    }

    /// Serves the gRPC interfaces, if a flag asks for them.
    fn start_grpc(
        &self,
        store: Option<&Store>,
        reporter: &mut Reporter<Recorded>,
        trace: Option<Trace>,
    ) -> Result<Option<grpc::GrpcServer>, Failure> {
        let (Some(address), Some(store)) = (self.grpc, store) else { return Ok(None) };
        let settings = self.grpc_settings()?;
        if let Some(directory) = &settings.backup_dir {
            let removed = remove_unfinished_copies(directory).map_err(|error| {
                let what = format!("cannot read --backup-dir {}", directory.display());
                Failure::system(&what, &error)
            })?;
            for path in removed {
                tell(PROGRAM, format_args!("removed {}: an unfinished copy", path.display()));
            }
        }
        let telemetry = grpc::Telemetry::new(reporter, settings.threads, trace);
        let listener = listen("--grpc", address)?;
        let server = grpc::GrpcServer::start(settings, store.clone(), listener, telemetry)
            .map_err(|error| Failure::system("cannot serve gRPC", &error))?;
        tell(PROGRAM, format_args!("gRPC on {}", server.address()));
        Ok(Some(server))
    }

    fn grpc_settings(&self) -> Result<grpc::GrpcSettings, Failure> {
        let mut settings = grpc::GrpcSettings {
            init_dir: self.init_dir.clone(),
            backup_dir: self.backup_dir.clone(),
            copies_max: self.backups_max as usize,
            connections_max: self.grpc_connections_max as usize,
            ..grpc::GrpcSettings::for_values(self.value_bytes_max as usize)
        };
        if let Some(mebibytes) = self.grpc_memory_mb {
            settings.messages_bytes_max = mebibytes as usize * MIB;
        }
        // A largest message arrives while the answer of another connection leaves, and leaves as much memory as it
        // takes.
        let bytes_min = 3 * settings.message_bytes_max;
        if settings.messages_bytes_max < bytes_min {
            return Err(Failure::usage(format!(
                "--grpc-memory-mb {} is too little for values of --value-bytes-max {}: it takes at least {}",
                settings.messages_bytes_max / MIB,
                self.value_bytes_max,
                bytes_min.div_ceil(MIB)
            )));
        }
        Ok(settings)
    }
}
