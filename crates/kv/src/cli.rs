//! The command line: flags in, JSON lines out.
//!
//! Without a subcommand it serves. `load` puts edge lists into a directory, `graph` makes one.

mod graph;
mod load;

use std::ffi::CString;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use knee_reactor::{Shutdown, bind, process};
use knee_server::Trace;
use knee_telemetry::{Reporter, Stats, Store, tell};

use crate::grpc;
use crate::memory::MemoryLimits;
use crate::serving::{Serving, Settings, StartError};
use crate::versioned::{
    self, Consistency, DirectoryError, DirectoryOptions, Durability, History, Keeper, Opening,
    Pass, StoreOptions,
};

pub(crate) const PROGRAM: &str = "knee-kv";

/// Longer times than these thirty years are a mistake, and would overflow the clock.
const SECONDS_MAX: u64 = 1_000_000_000;
/// Threads that make sense to ask for.
const THREADS_MAX: u64 = 256;
/// Descriptors that are not clients' connections: listener, polls, timers, standard streams.
const DESCRIPTORS_OWN: u64 = 64;
const MIB: usize = 1 << 20;

/// How often it is told how far something is that takes long.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// For how long old versions are kept unless somebody says otherwise.
const HISTORY: History = History::Seconds(60);
/// Locks of a versioned store for each thread.
const STRIPES_PER_THREAD: usize = 8;
/// Sizes of a log's segments: the smallest takes the largest piece of a value.
const SEGMENT_BYTES_MIN: usize = 2 << 20;
const SEGMENT_BYTES_MAX: usize = 64 << 20;
/// The log is divided into at least so many segments, as long as they are not too small.
const SEGMENTS_MIN: usize = 64;

/// Where gRPC is served unless somebody says otherwise: at honu's port.
const GRPC_ADDRESS: &str = "127.0.0.1:3264";

/// What the exit code is when a signal ended it before it was done, as shells say it of SIGINT.
const STOPPED: u8 = 130;

/// A key-value store over the memcached protocol and gRPC: a cache, or a store that keeps versions, in
/// memory or in a directory.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, args_conflicts_with_subcommands = true)]
struct Flags {
    #[command(subcommand)]
    command: Option<Command>,
    /// Address to serve; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211", value_parser = address)]
    listen: SocketAddr,
    /// Event loops. With one, nothing is locked.
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    threads: u64,
    /// Memory for items, index and free room together, in MiB; beyond it, items are evicted. Of a
    /// store that keeps versions it is the log's size, beyond which nothing is taken.
    #[arg(long, value_name = "M", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory_mb: u64,
    /// Largest value, in bytes.
    #[arg(long, value_name = "B", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    value_bytes_max: u64,
    /// Connections served at a time; further ones are refused.
    #[arg(long, value_name = "C", default_value_t = 16 * 1024,
          value_parser = clap::value_parser!(u64).range(1..))]
    connections_max: u64,
    /// Connections without traffic for so many seconds are closed; 0 keeps them.
    #[arg(long, value_name = "S", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    idle_timeout_s: u64,
    /// Address of `GET /metrics` (Prometheus text).
    #[arg(long, value_name = "ADDR", value_parser = address)]
    admin: Option<SocketAddr>,
    /// Keeps everything in this directory, which is made if it is not there; nothing is evicted.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// When a write is on the disk: `always`, before it is answered; `interval:MS`, at most so
    /// many milliseconds later; `none`, whenever the system likes.
    #[arg(long, value_name = "WHEN", default_value = "always", requires = "data",
          value_parser = durability)]
    durability: Durability,
    /// What versions order: all writes (linearizable, the default), or each key's. Keeps versions also
    /// without --data.
    #[arg(long, value_name = "ORDER")]
    consistency: Option<Order>,
    /// Address of the gRPC interfaces, knee.kv.v1 and honu's; without one 127.0.0.1 and honu's port,
    /// 3264. Keeps versions also without --data.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = GRPC_ADDRESS,
          value_parser = address)]
    grpc: Option<SocketAddr>,
    /// What the messages of all gRPC calls may take together, in MiB, and those of a connection no more
    /// than they leave to others; what is beyond it is refused. [default: 256, or four of the largest]
    #[arg(long, value_name = "M", requires = "grpc",
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    grpc_memory_mb: Option<u64>,
    /// For how long old versions can be asked for: so many seconds, as long as there is space, or
    /// `all`, until a compaction. [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = history)]
    history_s: Option<History>,
    /// Goes on without what is damaged in the directory.
    #[arg(long, requires = "data")]
    repair: bool,
    /// Where the edge lists are that clients may have loaded with `Init`; without it, none.
    #[arg(long, value_name = "DIR", requires = "grpc")]
    init_dir: Option<PathBuf>,
    /// Where clients may have copies of the store made with `Backup`; without it, nowhere.
    #[arg(long, value_name = "DIR", requires = "grpc")]
    backup_dir: Option<PathBuf>,
    /// Directories that there may be in it: beyond it, `Backup` is refused.
    #[arg(long, value_name = "N", default_value_t = grpc::COPIES_MAX as u64, requires = "backup_dir",
          value_parser = clap::value_parser!(u64).range(1..))]
    backups_max: u64,
    /// What is printed on standard output.
    #[arg(long, value_name = "WHAT", default_value = "json")]
    stats: Output,
    /// Tells of each request on standard error, on one line.
    #[arg(long)]
    trace: bool,
    /// End when the parent process, which has this id, does.
    #[arg(long, value_name = "PID")]
    tied_to_parent: Option<u32>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Load(load::Load),
    Graph(graph::Graph),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
    None,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Order {
    Linearizable,
    Sequential,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it is an IP address and a port, as in 127.0.0.1:3264".into())
}

fn durability(text: &str) -> Result<Durability, String> {
    match text.split_once(':') {
        None if text == "always" => Ok(Durability::Always),
        None if text == "none" => Ok(Durability::None),
        Some(("interval", ms)) => match ms.parse() {
            Ok(1..) => Ok(Durability::Interval(ms.parse().unwrap_or(u32::MAX))),
            _ => Err(format!("{ms:?} is no number of milliseconds from 1 on")),
        },
        _ => Err("it is one of always, interval:MS and none, as in interval:100".into()),
    }
}

fn history(text: &str) -> Result<History, String> {
    match text {
        "all" => Ok(History::All),
        _ => match text.parse() {
            Ok(seconds) => Ok(History::Seconds(seconds)),
            Err(_) => Err("it is a number of seconds, or all".into()),
        },
    }
}

impl Flags {
    /// Whether a store that keeps versions was asked for.
    fn keeps_versions(&self) -> bool {
        self.data.is_some()
            || self.consistency.is_some()
            || self.grpc.is_some()
            || self.history_s.is_some()
    }

    fn settings(&self) -> Settings {
        Settings {
            threads: self.threads as usize,
            limits: MemoryLimits {
                memory_bytes_max: self.memory_mb as usize * MIB,
                value_bytes_max: self.value_bytes_max as usize,
            },
            connections_max: self.connections_max as usize,
            idle_timeout: (self.idle_timeout_s > 0)
                .then(|| Duration::from_secs(self.idle_timeout_s)),
        }
    }
}

/// Parses the arguments, runs until told to stop, returns the exit code.
pub fn main() -> ExitCode {
    let flags = Flags::parse();
    let outcome = match &flags.command {
        None => run(&flags),
        Some(Command::Load(load)) => load.run(),
        Some(Command::Graph(graph)) => graph.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            tell(PROGRAM, message);
            ExitCode::from(code)
        }
    }
}

/// Why the program did not run, and the exit code that says so.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    fn start(what: &str, error: &std::io::Error) -> Failure {
        Failure { message: format!("{what}: {error}"), code: 1 }
    }
}

fn run(flags: &Flags) -> Result<(), Failure> {
    if let Some(parent) = flags.tied_to_parent {
        process::tie_to_parent(parent)
            .map_err(|error| Failure::start("cannot be tied to its parent", &error))?;
    }
    let files = process::raise_open_files_limit()
        .map_err(|error| Failure::start("cannot raise the limit of open files", &error))?;
    let over_grpc = flags.grpc.map_or(0, |_| grpc::CONNECTIONS_MAX as u64);
    if files < flags.connections_max + over_grpc + DESCRIPTORS_OWN {
        let message = format_args!(
            "the limit of {files} open files is less than --connections-max {} and {over_grpc} over \
             gRPC need: clients beyond it wait until others leave",
            flags.connections_max
        );
        tell(PROGRAM, message);
    }
    check_directories(flags)?;
    // Before anything is served or printed: this is what fails, and what takes its time.
    let store = store(flags)?;
    let keeper = match &store {
        Some(store) => {
            let history = flags.history_s.unwrap_or(HISTORY);
            let keeper = Keeper::start(store.clone(), history);
            Some(keeper.map_err(|error| Failure::start("cannot start the keeper", &error))?)
        }
        None => None,
    };
    let listener = listen("--listen", flags.listen)?;
    let stats = match flags.stats {
        Output::Json => Stats::Json,
        Output::None => Stats::None,
    };
    let mut reporter = Reporter::<Store>::new(PROGRAM, stats)
        .map_err(|error| Failure::start("cannot print", &error))?;
    if let Some(admin) = flags.admin {
        reporter
            .serve_admin(listen("--admin", admin)?)
            .map_err(|error| Failure::start("cannot serve the admin address", &error))?;
    }
    let trace = flags.trace.then(|| Trace::start(PROGRAM));
    let grpc = grpc(flags, store.as_ref(), &mut reporter, trace.clone())?;
    let settings = flags.settings();
    if let Some(grpc) = &grpc {
        reporter.serves_grpc(grpc.address());
    }
    let traced = trace.clone();
    let on_ready = |shutdown: Shutdown| {
        let other = grpc.as_ref().map(grpc::Serving::shutdown);
        if let Some(grpc) = &grpc {
            // Neither is served without the other.
            let shutdown = shutdown.clone();
            grpc.on_end(move || shutdown.begin());
        }
        process::on_signals(move || {
            if let Some(other) = &other {
                other.begin();
            }
            shutdown.begin();
        })
    };
    let started = match &store {
        None => Serving::start(&settings, listener, reporter, traced, on_ready),
        Some(store) => Serving::start_over(store, &settings, listener, reporter, traced, on_ready),
    };
    let serving = started.map_err(|error| match error {
        StartError::TooLittleMemory => Failure {
            message: format!(
                "--memory-mb {} is too little for values of --value-bytes-max {}: \
                 it takes at least {}",
                flags.memory_mb,
                flags.value_bytes_max,
                MemoryLimits::memory_bytes_min(settings.limits.value_bytes_max).div_ceil(MIB)
            ),
            code: 2,
        },
        StartError::Io(error) => Failure::start("cannot start", &error),
    })?;
    let mut grpc_ended = Ok(());
    let ended = serving.join_with(|| {
        if let Some(grpc) = grpc {
            grpc.shutdown().begin();
            grpc_ended = grpc.join();
        }
    });
    if let Some(trace) = trace {
        trace.finish();
    }
    ended.map_err(|error| Failure { message: error.to_string(), code: 1 })?;
    grpc_ended.map_err(|error| Failure::start("the gRPC server failed", &error))?;
    // Before it is written out for the last time: it writes as well.
    drop(keeper);
    store.map_or(Ok(()), |store| write_out(&store))
}

/// Writes what nobody waited for.
fn write_out(store: &versioned::Store) -> Result<(), Failure> {
    store.write_out().map_err(|error| Failure {
        message: format!("the log cannot be written: {error}; what was written last may be lost"),
        code: 1,
    })
}

/// Refuses directories that clients could do nothing with.
fn check_directories(flags: &Flags) -> Result<(), Failure> {
    for (flag, directory) in [("init", &flags.init_dir), ("backup", &flags.backup_dir)] {
        let Some(directory) = directory else { continue };
        let refused = |what: &str, error, remedy: &str| {
            let shown = directory.display();
            let message = format!("cannot {what} --{flag}-dir {shown}: {error}; {remedy}");
            Failure { message, code: 1 }
        };
        std::fs::read_dir(directory).map_err(|error| {
            refused("read", error, "it is to be a directory that is there, and may be read")
        })?;
        if flag == "backup" {
            check_writable(directory).map_err(|error| {
                refused("write to", error, "the user who starts this is to be allowed to")
            })?;
        }
    }
    Ok(())
}

/// Whether files can be made in a directory.
fn check_writable(directory: &Path) -> std::io::Result<()> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let how = libc::W_OK | libc::X_OK;
    // SAFETY: the path ends with a zero and outlives the call.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), how, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Serves the gRPC interfaces, if they were asked for.
fn grpc(
    flags: &Flags,
    store: Option<&versioned::Store>,
    reporter: &mut Reporter<Store>,
    trace: Option<Trace>,
) -> Result<Option<grpc::Serving>, Failure> {
    let (Some(address), Some(store)) = (flags.grpc, store) else { return Ok(None) };
    let mut settings = grpc::Settings {
        init_dir: flags.init_dir.clone(),
        backup_dir: flags.backup_dir.clone(),
        copies_max: flags.backups_max as usize,
        ..grpc::Settings::for_values(flags.value_bytes_max as usize)
    };
    if let Some(mebibytes) = flags.grpc_memory_mb {
        settings.messages_bytes_max = mebibytes as usize * MIB;
    }
    // So that one of the largest can come while one of another connection is answered, and as much is
    // left as it has itself.
    let bytes_min = 3 * settings.message_bytes_max;
    if settings.messages_bytes_max < bytes_min {
        return Err(Failure {
            message: format!(
                "--grpc-memory-mb {} is too little for values of --value-bytes-max {}: it takes at \
                 least {}",
                settings.messages_bytes_max / MIB,
                flags.value_bytes_max,
                bytes_min.div_ceil(MIB)
            ),
            code: 2,
        });
    }
    if let Some(directory) = &settings.backup_dir {
        let found = versioned::remove_unfinished_copies(directory).map_err(|error| {
            let message = format!("cannot read --backup-dir {}: {error}", directory.display());
            Failure { message, code: 1 }
        })?;
        for path in found.removed {
            tell(PROGRAM, format_args!("removed {}: a copy that was not finished", path.display()));
        }
        for (path, error) in found.left {
            let message = format_args!(
                "left {}: it is named as a copy that was not finished, and cannot be removed: {error}; \
                 until it is, no copy can have that name",
                path.display()
            );
            tell(PROGRAM, message);
        }
    }
    let telemetry = grpc::Telemetry::new(reporter, settings.threads, trace);
    let serving =
        grpc::Serving::start(settings, store.clone(), listen("--grpc", address)?, telemetry)
            .map_err(|error| Failure::start("cannot serve gRPC", &error))?;
    tell(PROGRAM, format_args!("gRPC on {}", serving.address()));
    Ok(Some(serving))
}

/// The store that keeps versions, if one was asked for.
fn store(flags: &Flags) -> Result<Option<versioned::Store>, Failure> {
    if !flags.keeps_versions() {
        return Ok(None);
    }
    let log = Log {
        directory: flags.data.as_deref(),
        mebibytes: flags.memory_mb,
        value_bytes_max: flags.value_bytes_max,
        durability: flags.durability,
        order: flags.consistency,
        repair: flags.repair,
        stripes: flags.threads as usize * STRIPES_PER_THREAD,
    };
    log.open().map(Some)
}

/// What a store that keeps versions is opened with.
struct Log<'a> {
    directory: Option<&'a Path>,
    mebibytes: u64,
    value_bytes_max: u64,
    durability: Durability,
    order: Option<Order>,
    repair: bool,
    stripes: usize,
}

impl Log<'_> {
    /// Opens it; what was lost of it is told.
    fn open(&self) -> Result<versioned::Store, Failure> {
        let bytes_max = self.mebibytes as usize * MIB;
        let value_bytes_max = self.value_bytes_max as usize;
        let share = 1 << (bytes_max / SEGMENTS_MIN).ilog2();
        let options = StoreOptions {
            consistency: match self.order {
                Some(Order::Sequential) => Consistency::Sequential,
                Some(Order::Linearizable) | None => Consistency::Linearizable,
            },
            stripes: self.stripes,
            value_bytes_max,
            segment_bytes: share.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
        };
        // Two of the largest values, so that one can take the place of the other.
        let bytes_min = 2 * (value_bytes_max + options.segment_bytes);
        if bytes_max < bytes_min {
            return Err(Failure {
                message: format!(
                    "--memory-mb {} is too little for a log with values of --value-bytes-max \
                     {value_bytes_max}: it takes at least {}",
                    self.mebibytes,
                    bytes_min.div_ceil(MIB)
                ),
                code: 2,
            });
        }
        let Some(path) = self.directory else {
            let made = versioned::Store::in_memory(options, bytes_max as u64);
            return made.map_err(|error| Failure::start("cannot make the log", &error));
        };
        let directory = DirectoryOptions {
            path: path.to_owned(),
            durability: self.durability,
            repair: self.repair,
        };
        let opened = versioned::Store::open_and_tell(
            options,
            &directory,
            bytes_max as u64,
            &mut tell_of_opening(path),
        );
        let (store, lost) = opened.map_err(|error| {
            let remedy = remedy(&error, self.repair);
            Failure { message: format!("cannot open --data {error}{remedy}"), code: 1 }
        })?;
        for lost in lost {
            let message = format_args!("repaired: {lost}");
            tell(PROGRAM, message);
        }
        let (taken, bytes_max) = store.log_bytes();
        if taken > bytes_max {
            let message = format_args!(
                "the log in {} takes {} MiB, more than --memory-mb {}: writes are refused until it \
                 takes less; raise --memory-mb, or delete",
                path.display(),
                taken.div_ceil(MIB as u64),
                self.mebibytes
            );
            tell(PROGRAM, message);
        }
        Ok(store)
    }
}

/// Tells on standard error how far a directory has been read, where that takes long.
fn tell_of_opening(path: &Path) -> impl FnMut(Opening) {
    let mut told = Instant::now();
    let mut began = (Pass::Check, told);
    let mut last = told;
    move |Opening { pass, bytes, bytes_all }| {
        if pass != began.0 {
            // What is told of first has been done with.
            began = (pass, last);
        }
        last = Instant::now();
        if told.elapsed() < TOLD_EVERY {
            return;
        }
        told = Instant::now();
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

/// What to do about a directory that does not open.
fn remedy(error: &DirectoryError, repairs: bool) -> &'static str {
    match error {
        DirectoryError::Damaged(file, _) if file.ends_with("MANIFEST") => {
            "; without it nobody knows what the segments are: start on a copy"
        }
        DirectoryError::Damaged(..) if !repairs => "; --repair goes on without that",
        DirectoryError::Damaged(..) => "",
        DirectoryError::InUse(_) => "; end that one, or name another directory",
        DirectoryError::Other(..) => "; start it as that was made, or name another directory",
        DirectoryError::Io(_, error) => match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                "; it is to be a directory, or not to be there: name another one"
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "; the user who starts this is to own it: change that, or name another directory"
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                "; make room, or name a directory on another disk"
            }
            _ => "",
        },
    }
}

/// Whether the process was told to end. Told twice, it ends at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stops = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stops);
    process::on_signals(move || stop.store(true, Ordering::Release))
        .map_err(|error| Failure::start("cannot wait for signals", &error))?;
    Ok(stops)
}

fn listen(flag: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    bind(address).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "end what listens there, or name another address",
            ErrorKind::AddrNotAvailable => "name an address that this machine has",
            ErrorKind::PermissionDenied => "name a port from 1024 on",
            _ => "name another address",
        };
        Failure {
            message: format!("cannot listen on {address}: {error}; {remedy} by {flag}"),
            code: 1,
        }
    })
}
