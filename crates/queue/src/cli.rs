//! The command line: flags in, JSON lines out.
//!
//! Without a subcommand it serves. `migrate` makes a PostgreSQL database ready for that.

mod target;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::error::ErrorKind as UsageError;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use knee_server::program::{
    self, Failure, Observing, address, listen, on_signals, raise_open_files_limit, tie_to_parent,
};
use knee_server::{Limits, Shards, Trace, runtime};
use knee_telemetry::{Broker, tell};

use self::target::Target;
use crate::grpc::{self, Serving, Settings, Telemetry, Tls};
use crate::null::Null;
use crate::postgres::{self, Postgres};
use crate::sqlite::{self, Sqlite};

const PROGRAM: &str = "knee-queue";

const OF_POSTGRES: [&str; 6] = [
    "database_password_file",
    "connections",
    "connection_wait_ms",
    "call_max_s",
    "connection_idle_max_s",
    "combine",
];
const OF_SQLITE: [&str; 1] = ["durability"];

/// About thirty years. Longer times are mistakes, and might overflow the clock.
const SECONDS_MAX: u64 = 1_000_000_000;
/// More threads are a mistake.
const THREADS_MAX: u64 = 256;
const MIB: u64 = 1 << 20;
/// The default of `--memory-mb` is at least this.
const MEMORY_BYTES_MIN: usize = 512 << 20;
/// The default of `--memory-mb` has room for this many of the largest requests.
const MESSAGES_MIN: usize = 4;

/// A connection without an HTTP/2 preface or a TLS handshake is closed after this time.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Requests that wait for a message also poll at this interval.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// At shutdown, running calls may take this long.
const GRACE: Duration = Duration::from_secs(5);

/// A message queue over a database: PostgreSQL, SQLite, or none.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, args_conflicts_with_subcommands = true)]
struct Flags {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    Migrate(Migrate),
}

/// Installs the schema of knee-queue in a PostgreSQL database.
#[derive(Debug, Args)]
struct Migrate {
    /// The database: postgresql://USER@HOST:PORT/NAME.
    #[arg(long, value_name = "DATABASE", value_parser = target::Parser)]
    database: Target,
    /// File with the password. Without it: PGPASSWORD, PGPASSFILE or ~/.pgpass.
    #[arg(long, value_name = "FILE")]
    database_password_file: Option<PathBuf>,
    /// Id of the parent process: end when it ends.
    #[arg(long, value_name = "PID")]
    tied_to_parent: Option<u32>,
}

#[derive(Debug, Args)]
struct Serve {
    /// Address to listen on; with port 0, any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3265", value_parser = address)]
    listen: SocketAddr,
    /// Where messages are kept: postgresql://USER@HOST:PORT/NAME, sqlite:FILE, sqlite (in memory), or null, which
    /// keeps only the last message.
    #[arg(long, value_name = "DATABASE", default_value = "sqlite", value_parser = target::Parser)]
    database: Target,
    /// File with the password for PostgreSQL. Without it: PGPASSWORD, PGPASSFILE or ~/.pgpass.
    #[arg(long, value_name = "FILE")]
    database_password_file: Option<PathBuf>,
    /// Number of connections to PostgreSQL for requests. [default: one for each worker]
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u32).range(1..=65536))]
    connections: Option<u32>,
    /// Longest wait of a request for a free connection, in milliseconds. If a connection must be opened, the wait may
    /// be longer, by up to twice the address's `connect_timeout` (default 10 s).
    #[arg(long, value_name = "MS", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    connection_wait_ms: u64,
    /// Longest time of a call, in seconds. PostgreSQL undoes a call that takes longer. If PostgreSQL has not answered
    /// after twice this time, `knee-queue` closes the connection to it.
    #[arg(long, value_name = "S", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    call_max_s: u32,
    /// Close connections to PostgreSQL that were unused for this many seconds, but keep at least one idle connection; 0
    /// closes none.
    #[arg(long, value_name = "S", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    connection_idle_max_s: u64,
    /// Combine at most this many waiting requests into one call to PostgreSQL; 1 combines none.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    combine: u32,
    /// When SQLite's changes reach the disk: `always` before the answer; with `none`, the operating system decides.
    #[arg(long, value_name = "WHEN", default_value = "always")]
    durability: Durability,
    /// Number of worker slots. A request holds a slot while it waits for a connection, and while the database works.
    #[arg(long, value_name = "W", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    workers: u32,
    /// Largest number of requests that wait for a worker; further ones are refused.
    #[arg(long, value_name = "N", default_value_t = 16 * 1024,
          value_parser = clap::value_parser!(u32).range(1..))]
    waiting_max: u32,
    /// Largest number of requests that wait for a message; further ones are refused.
    #[arg(long, value_name = "N", default_value_t = 16 * 1024,
          value_parser = clap::value_parser!(u32).range(1..))]
    waiters_max: u32,
    /// Number of threads that serve clients. [default: one for each processor]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    threads: Option<u64>,
    /// Largest number of clients' connections; a further one replaces the one that was idle longest.
    #[arg(long, value_name = "C", default_value_t = 16 * 1024,
          value_parser = clap::value_parser!(u64).range(1..))]
    clients_max: u64,
    /// Close a client's connection after this many seconds without traffic; 0 keeps it.
    #[arg(long, value_name = "S", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    idle_max_s: u64,
    /// Largest content of a message, in bytes.
    #[arg(long, value_name = "B", default_value_t = MIB,
          value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    message_bytes_max: u64,
    /// Memory for the messages of all calls, in MiB. The server refuses a call if its connection would hold more memory
    /// than it leaves to all other connections. [default: 512, or four of the largest messages]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory_mb: Option<u64>,
    /// PEM file with the server's certificate. With it, the server accepts only TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// PEM file with the certificate's key.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// PEM file with issuers: the server accepts only clients with a certificate of these issuers.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_client_ca: Option<PathBuf>,
    #[command(flatten)]
    observing: Observing,
    /// Id of the parent process: end when it ends.
    #[arg(long, value_name = "PID")]
    tied_to_parent: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Durability {
    Always,
    None,
}

/// Parses the arguments and runs until a signal; returns the exit code.
pub fn main() -> ExitCode {
    let flags = Flags::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let outcome = match &flags.command {
        None => run(&flags.serve),
        Some(Command::Migrate(migrate)) => migrate.run(),
    };
    program::ended(PROGRAM, outcome)
}

impl Flags {
    /// Parses a command line.
    fn read(words: impl IntoIterator<Item: Into<OsString>>) -> Result<Flags, clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        if has_stray_address(&words) {
            let why = "an address is in a wrong place: use --database ADDRESS\n";
            return Err(clap::Error::raw(UsageError::UnknownArgument, why));
        }
        let matches = Flags::command().try_get_matches_from(words);
        matches.and_then(Flags::of)
    }

    /// Refuses flags of other databases than the given one.
    fn of(matches: ArgMatches) -> Result<Flags, clap::Error> {
        let flags = Flags::from_arg_matches(&matches)?;
        let (name, others): (_, &[&[_]]) = match &flags.serve.database {
            Target::Postgres(_) => ("PostgreSQL", &[&OF_SQLITE]),
            Target::Sqlite(_) => ("SQLite", &[&OF_POSTGRES]),
            Target::Null => ("a server without a database", &[&OF_SQLITE, &OF_POSTGRES]),
        };
        let is_given = |flag: &&&str| matches.value_source(flag) == Some(ValueSource::CommandLine);
        match others.iter().copied().flatten().find(is_given) {
            None => Ok(flags),
            Some(flag) => {
                let why =
                    format!("--{} has no meaning for {name}: remove it", flag.replace('_', "-"));
                Err(Flags::command().error(UsageError::ArgumentConflict, why))
            }
        }
    }
}

/// Whether an argument looks like an address, but is not the value of `--database`. clap's message would repeat its
/// password.
fn has_stray_address(words: &[OsString]) -> bool {
    let mut is_database = false;
    words.iter().any(|word| {
        let word = word.to_string_lossy();
        let may_be_address = is_database || word.starts_with("--database=");
        is_database = word == "--database";
        !may_be_address && ["://", "password="].iter().any(|part| word.contains(part))
    })
}

fn run(flags: &Serve) -> Result<(), Failure> {
    tie_to_parent(flags.tied_to_parent)?;
    let settings = settings(flags)?;
    let clients = format_args!("--clients-max {}", flags.clients_max).to_string();
    raise_open_files_limit(PROGRAM, flags.clients_max, clients)?;
    let listener = listen("--listen", flags.listen)?;
    let mut reporter = flags.observing.reporter::<Broker>(PROGRAM)?;
    let log = Trace::start(PROGRAM);
    let trace = flags.observing.trace.then(|| log.clone());
    let threads = threads(flags);
    let recorders = grpc::recorders(&mut reporter, threads, flags.workers);
    let shards = Arc::new(Shards::new(threads, recorders));
    let runtime = runtime(&shards, |builder| builder)
        .map_err(|error| Failure::system("cannot start its threads", &error))?;
    let telemetry = Telemetry { shards, trace };
    let serving = match &flags.database {
        Target::Null => Serving::start(&settings, runtime, Null::default(), listener, telemetry),
        Target::Sqlite(file) => {
            let durable = flags.durability == Durability::Always;
            let options = sqlite::Options { file: file.clone(), durable, log: log.clone() };
            let database = Sqlite::open(&options)?;
            Serving::start(&settings, runtime, database, listener, telemetry)
        }
        Target::Postgres(address) => {
            let options = flags.postgres(address, log.clone());
            let database = runtime.block_on(Postgres::open(&options))?;
            Serving::start(&settings, runtime, database, listener, telemetry)
        }
    }?;
    let shutdown = serving.shutdown();
    // Before the ready line: its reader may send a signal at once.
    on_signals(move || shutdown.begin())?;
    reporter.ready(Some(serving.address()));
    let reporting = reporter.start().map_err(|error| Failure::system("cannot report", &error))?;
    let ended = serving.join();
    reporting.finish(|_| ());
    log.finish();
    ended.map_err(|error| Failure::system("the server failed", &error))
}

impl Migrate {
    fn run(&self) -> Result<(), Failure> {
        tie_to_parent(self.tied_to_parent)?;
        let Target::Postgres(address) = &self.database else {
            let message =
                "--database is not PostgreSQL: only PostgreSQL needs migration".to_owned();
            return Err(Failure { message, code: 2 });
        };
        let options = postgres::Options {
            address: address.clone(),
            password_file: self.database_password_file.clone(),
            connections: 1,
            connection_wait: Duration::ZERO,
            call_max: Duration::ZERO,
            idle_max: None,
            combine_max: 1,
            log: Trace::start(PROGRAM),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::system("cannot start", &error))?;
        let is_new = runtime.block_on(postgres::migrate(&options))?;
        tell(
            PROGRAM,
            if is_new { "installed the schema" } else { "the schema is already installed" },
        );
        Ok(())
    }
}

impl Serve {
    fn postgres(&self, address: &str, log: Trace) -> postgres::Options {
        let idle_max_s = self.connection_idle_max_s;
        postgres::Options {
            address: address.to_owned(),
            password_file: self.database_password_file.clone(),
            connections: self.connections.unwrap_or(self.workers) as usize,
            connection_wait: Duration::from_millis(self.connection_wait_ms),
            call_max: Duration::from_secs(self.call_max_s.into()),
            idle_max: (idle_max_s > 0).then(|| Duration::from_secs(idle_max_s)),
            combine_max: self.combine as usize,
            log,
        }
    }
}

fn threads(flags: &Serve) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    flags.threads.map_or_else(processors, |threads| threads as usize)
}

fn settings(flags: &Serve) -> Result<Settings, Failure> {
    let idle_max = (flags.idle_max_s > 0).then(|| Duration::from_secs(flags.idle_max_s));
    let settings = Settings {
        workers: flags.workers as usize,
        waiting_max: flags.waiting_max as usize,
        waiters_max: flags.waiters_max as usize,
        poll_interval: POLL_INTERVAL,
        content_bytes_max: flags.message_bytes_max as usize,
        messages_bytes_max: 0,
        limits: Limits {
            connections_max: flags.clients_max as usize,
            silence_max: SILENCE_MAX,
            idle_max,
            stall_max: idle_max,
        },
        tls: tls(flags)?,
        grace: GRACE,
    };
    let request_bytes_max = settings.request_bytes_max();
    let default = MEMORY_BYTES_MIN.max(MESSAGES_MIN * request_bytes_max);
    let messages_bytes_max =
        flags.memory_mb.map_or(default, |mebibytes| (mebibytes * MIB) as usize);
    // Two connections must be able to hold a largest request at a time. When the second takes its request, as much must
    // stay free. So there must be room for three.
    let bytes_min = 3 * request_bytes_max;
    if messages_bytes_max < bytes_min {
        return Err(Failure {
            message: format!(
                "--memory-mb {} is too little for messages of --message-bytes-max {}: it takes at \
                 least {}",
                messages_bytes_max as u64 / MIB,
                flags.message_bytes_max,
                (bytes_min as u64).div_ceil(MIB)
            ),
            code: 2,
        });
    }
    Ok(Settings { messages_bytes_max, ..settings })
}

fn tls(flags: &Serve) -> Result<Option<Tls>, Failure> {
    let (Some(certificate), Some(key)) = (&flags.tls_certificate, &flags.tls_key) else {
        return Ok(None);
    };
    let read = |file: &PathBuf| {
        std::fs::read(file)
            .map_err(|error| Failure::system(&format!("cannot read {}", file.display()), &error))
    };
    let client_ca = flags.tls_client_ca.as_ref().map(read).transpose()?;
    Ok(Some(Tls { certificate: read(certificate)?, key: read(key)?, client_ca }))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    #[test]
    fn flags_are_consistent() {
        Flags::command().debug_assert();
    }

    #[test]
    fn flags_of_another_database_are_refused() {
        let of = |words: &[&str]| Flags::read([&[PROGRAM], words].concat());
        let databases = ["postgresql://a@b/c", "sqlite", "sqlite:file", "null"];
        let rows: [(&[&str], Range<usize>); 7] = [
            (&["--database-password-file", "file"], 0..1),
            (&["--connections", "4"], 0..1),
            (&["--connection-wait-ms", "5"], 0..1),
            (&["--call-max-s", "5"], 0..1),
            (&["--connection-idle-max-s", "5"], 0..1),
            (&["--combine", "1"], 0..1),
            (&["--durability", "always"], 1..3),
        ];
        for (given, takes) in rows {
            for (index, database) in databases.iter().enumerate() {
                let flags = of(&[&["--database", database], given].concat());
                assert_eq!(flags.is_ok(), takes.contains(&index), "{given:?} {database}");
                if let Err(error) = flags {
                    assert!(error.to_string().contains(given[0]), "{error}");
                }
            }
        }
        assert!(
            of(&["migrate", "--database", "postgresql://a@b/c", "--database-password-file", "f"])
                .is_ok()
        );
    }

    #[test]
    fn unreadable_database_is_not_repeated() {
        for words in [
            &["--database", "host=there password=secret"][..],
            &["--database", "mysql://me:secret@there/db"],
            &["migrate", "--database", "secret"],
            &["--database=mysql://me:secret@there/db"],
        ] {
            let error = Flags::read([&[PROGRAM], words].concat()).expect_err("it is refused");
            let text = error.to_string();
            assert!(text.contains("--database must be") && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn default_address_is_this_machine() {
        let serve = Flags::parse_from(["knee-queue"]).serve;
        assert!(serve.listen.ip().is_loopback());
        assert_eq!(serve.observing.admin, None);
    }
}
