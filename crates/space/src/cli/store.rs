//! `knee-space store`: serves memory.

use std::io;
use std::net::SocketAddr;

use clap::Args;
use knee_server::program::{
    Failure, Observing, address, listen, on_signals, raise_open_files_limit, tie_to_parent,
};

use super::size::bytes;
use crate::PROGRAM;
use crate::session::Limits;
use crate::store::StoreServer;

/// Serves memory, which is zero at the start and lost at the end.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Address for clients; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10809", value_parser = address)]
    listen: SocketAddr,
    /// Size, with a binary unit K, M, G or T. Blocks that were never written take no memory.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    bytes: u64,
    /// Largest number of clients at a time; further ones are refused.
    #[arg(long, value_name = "C", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..))]
    connections_max: u64,
    /// Memory for unread replies of all clients, in MiB. Clients that stand still are then disconnected.
    #[arg(long, value_name = "M", default_value_t = 256,
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory_mb: u64,
    #[command(flatten)]
    observing: Observing,
    /// End with the parent process, which has this id.
    #[arg(long, value_name = "PID")]
    tied_to_parent: Option<u32>,
}

impl Flags {
    pub(super) fn run(&self) -> Result<(), Failure> {
        tie_to_parent(self.tied_to_parent)?;
        let flags = format_args!("--connections-max {}", self.connections_max).to_string();
        raise_open_files_limit(PROGRAM, self.connections_max, flags)?;
        let limits = Limits {
            clients_max: self.connections_max as usize,
            buffered_bytes_max: (self.memory_mb as usize) << 20,
        };
        let listener = listen("--listen", self.listen)?;
        let reporter = self.observing.reporter(PROGRAM)?;
        let trace = self.observing.trace(PROGRAM);
        let bytes = self.bytes as usize;
        let server =
            StoreServer::start(bytes, &limits, listener, reporter, trace.clone(), |shutdown| {
                on_signals(move || shutdown.begin())
                    .map_err(|failure| io::Error::other(failure.message))
            });
        let server = server.map_err(|error| Failure::system("cannot start", &error))?;
        let ended = server.join();
        if let Some(trace) = trace {
            trace.finish();
        }
        ended.map_err(|error| Failure::system("the event loop failed", &error))
    }
}
