//! `knee-space manager`: serves a space over several stores.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use clap::{Args, ValueEnum};
use knee_nbd::{Dial, Dialed};
use knee_server::program::{
    Failure, Observing, address, listen, on_signals, raise_open_files_limit, tie_to_parent,
};
use knee_telemetry::{Middleware, Reporter, tell};

use super::size::bytes;
use crate::PROGRAM;
use crate::grpc::GrpcServer;
use crate::layout::Layout as Places;
use crate::manager::{Config, Running, StoreAddress, start};
use crate::session::Limits;

/// Memory of a thread for the data of requests: two of the longest.
const THREAD_MB_MIN: u64 = 64;
const STORES_MAX: usize = 1024;
/// The pause before a store is asked for its size again.
const SIZE_PAUSE: Duration = Duration::from_millis(200);

/// Serves one address space over several stores. It keeps nothing, so there can be any number of managers; all of them
/// must list the same stores in the same order.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Address for clients; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10809", value_parser = address)]
    listen: SocketAddr,
    /// A store: any NBD server with one export, and its size with a binary unit K, M, G or T. Without a size, the
    /// manager asks the store at the start, and waits until it answers.
    #[arg(long = "store", value_name = "HOST:PORT[=SIZE]", required = true, num_args = 1..,
          value_parser = store)]
    stores: Vec<Store>,
    /// How an address is translated.
    #[arg(long, value_enum, default_value_t = Layout::Length)]
    layout: Layout,
    /// Refuse changes.
    #[arg(long)]
    read_only: bool,
    /// Time limit of a store's answer. A store that exceeds it is out until it answers again.
    #[arg(long, value_name = "MS", default_value_t = 5000,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    timeout_ms: u64,
    /// Number of threads. Each has its own connections to every store.
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Largest number of clients at a time; further ones are refused.
    #[arg(long, value_name = "C", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..))]
    connections_max: u64,
    /// Memory for the data of requests, in MiB: so much before the stores have answered, and so much for unfinished
    /// requests and unread replies. Further requests wait; clients that stand still are disconnected.
    #[arg(long, value_name = "M", default_value_t = 256,
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory_mb: u64,
    /// Serve the gRPC interface, knee.space.v1, at this address.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    grpc: Option<SocketAddr>,
    #[command(flatten)]
    observing: Observing,
    /// End with the parent process, which has this id.
    #[arg(long, value_name = "PID")]
    tied_to_parent: Option<u32>,
}

/// The translation of addresses.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Layout {
    /// By base and length: stores of any size follow each other.
    Length,
    /// By a shift: all stores have the same size, a power of two.
    Shift,
}

#[derive(Debug, Clone)]
struct Store {
    at: StoreAddress,
    bytes: Option<u64>,
}

fn store(text: &str) -> Result<Store, String> {
    let (name, size) = match text.split_once('=') {
        Some((name, size)) => (name, Some(bytes(size)?)),
        None => (text, None),
    };
    let mut found = name.to_socket_addrs().map_err(|error| format!("not a HOST:PORT: {error}"))?;
    let address = found.next().ok_or("the host has no address")?;
    Ok(Store { at: StoreAddress { name: name.to_owned(), address }, bytes: size })
}

impl Flags {
    pub(super) fn run(&self) -> Result<(), Failure> {
        tie_to_parent(self.tied_to_parent)?;
        self.check()?;
        let flags = format!("--connections-max {} and the stores", self.connections_max);
        let lanes = 2 * self.threads * self.stores.len() as u64;
        raise_open_files_limit(PROGRAM, self.connections_max.saturating_add(lanes), flags)?;
        let listener = listen("--listen", self.listen)?;
        let mut reporter = self.observing.reporter(PROGRAM)?;
        let trace = self.observing.trace(PROGRAM);
        let memory_bytes = (self.memory_mb as usize) << 20;
        let config = Config {
            stores: self.stores.iter().map(|store| store.at.clone()).collect(),
            layout: self.layout()?,
            read_only: self.read_only,
            threads: self.threads as usize,
            timeout: Duration::from_millis(self.timeout_ms),
            limits: Limits {
                clients_max: self.connections_max as usize,
                buffered_bytes_max: memory_bytes,
            },
            flights_bytes_max: memory_bytes,
            trace: trace.clone(),
        };
        let failed = |error| Failure::system("cannot start", &error);
        let running = start(config, listener, &mut reporter).map_err(failed)?;
        let grpc = self.start_grpc(&running, &mut reporter)?;
        let (shutdown, grpc_shutdown) =
            (running.shutdown(), grpc.as_ref().map(GrpcServer::shutdown));
        on_signals(move || {
            if let Some(grpc) = &grpc_shutdown {
                grpc.begin();
            }
            shutdown.begin();
        })?;
        running.wait_for_machines();
        reporter.ready(running.address());
        let reporting = reporter.start().map_err(failed)?;
        let ended = running.join();
        let grpc_ended = grpc.map_or(Ok(()), |grpc| {
            grpc.shutdown().begin();
            grpc.join()
        });
        reporting.finish(|_| ());
        if let Some(trace) = trace {
            trace.finish();
        }
        ended.map_err(|error| Failure::system("an event loop failed", &error))?;
        grpc_ended.map_err(|error| Failure::system("the gRPC server failed", &error))
    }

    fn check(&self) -> Result<(), Failure> {
        let least = THREAD_MB_MIN * self.threads;
        if self.memory_mb < least {
            return Err(Failure::usage(format!(
                "--memory-mb {} is too little for --threads {}: it takes at least {least}",
                self.memory_mb, self.threads
            )));
        }
        if self.stores.len() > STORES_MAX {
            return Err(Failure::usage(format!("--store: at most {STORES_MAX} stores")));
        }
        for (number, store) in self.stores.iter().enumerate() {
            // Two addresses would have one place.
            let same = |other: &&Store| other.at.address == store.at.address;
            if let Some(same) = self.stores[..number].iter().find(same) {
                let (name, other) = (&store.at.name, &same.at.name);
                return Err(Failure::usage(format!("--store {name}: {other} is the same store")));
            }
        }
        Ok(())
    }

    /// Asks stores without a stated size for it.
    fn layout(&self) -> Result<Places, Failure> {
        let timeout = Duration::from_millis(self.timeout_ms);
        let size = |store: &Store| store.bytes.unwrap_or_else(|| size_of(&store.at, timeout));
        let sizes: Vec<u64> = self.stores.iter().map(size).collect();
        let (layout, name) = match self.layout {
            Layout::Length => (Places::by_length(&sizes), "length"),
            Layout::Shift => (Places::by_shift(&sizes), "shift"),
        };
        layout.map_err(|why| Failure::usage(format!("--layout {name}: {why}")))
    }

    fn start_grpc(
        &self,
        running: &Running,
        reporter: &mut Reporter<Middleware>,
    ) -> Result<Option<GrpcServer>, Failure> {
        let Some(address) = self.grpc else { return Ok(None) };
        let listener = listen("--grpc", address)?;
        let grpc = GrpcServer::start(running.space(), running.doors(), listener, reporter)
            .map_err(|error| Failure::system("cannot serve gRPC", &error))?;
        reporter.serves_grpc(grpc.address);
        // If one server ends, the other one ends, too.
        let shutdown = running.shutdown();
        grpc.on_end(move || shutdown.begin());
        Ok(Some(grpc))
    }
}

/// Waits for the size of a store.
fn size_of(store: &StoreAddress, timeout: Duration) -> u64 {
    let mut is_told = false;
    loop {
        match asked(store.address, timeout) {
            Ok(bytes) => return bytes,
            Err(error) if !is_told => {
                is_told = true;
                let name = &store.name;
                let remedy = "start it, or state its size by --store HOST:PORT=SIZE";
                tell(
                    PROGRAM,
                    format_args!("waiting for the size of store {name}: {error}; {remedy}"),
                );
            }
            Err(_) => {}
        }
        std::thread::sleep(SIZE_PAUSE);
    }
}

fn asked(address: SocketAddr, timeout: Duration) -> io::Result<u64> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let (mut dial, mut heard, mut buffer) = (Dial::default(), Vec::new(), [0; 4096]);
    loop {
        let mut answer = Vec::new();
        match dial.take(&heard, &mut answer).map_err(io::Error::other)? {
            Dialed::Done(_, offer) => return Ok(offer.bytes),
            Dialed::Next(consumed) => drop(heard.drain(..consumed)),
            Dialed::Incomplete => match stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => heard.extend_from_slice(&buffer[..read]),
            },
        }
        stream.write_all(&answer)?;
    }
}
