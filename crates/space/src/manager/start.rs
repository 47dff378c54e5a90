//! Starts a manager.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use knee_nbd::{EIO, Errno, Export, Request};
use knee_reactor::{Group, Shutdown, Waker};
use knee_server::{Share, Trace};
use knee_telemetry::{Middleware, MiddlewareGauges, Moment, Reporter};
use tokio::sync::oneshot;

use super::flight::Call;
use super::machine::Machine;
use super::{Manager, Space};
use crate::health::Health;
use crate::layout::Layout;
use crate::session::Limits;

/// A machine of the command line.
#[derive(Debug, Clone)]
pub(crate) struct StoreAddress {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

/// The configuration of a manager.
#[derive(Debug)]
pub(crate) struct Config {
    /// In the order of their addresses.
    pub(crate) stores: Vec<StoreAddress>,
    pub(crate) layout: Layout,
    pub(crate) read_only: bool,
    pub(crate) threads: usize,
    pub(crate) timeout: Duration,
    pub(crate) limits: Limits,
    /// Memory for requests that machines have not answered, in bytes.
    pub(crate) flights_bytes_max: usize,
    pub(crate) trace: Option<Trace>,
}

/// A running manager.
#[derive(Debug)]
pub(crate) struct Running {
    group: Group,
    tried: Receiver<()>,
    threads: usize,
    space: Arc<Space>,
    doors: Arc<Doors>,
}

/// The ways into the threads for calls over gRPC.
#[derive(Debug)]
pub(crate) struct Doors {
    doors: Vec<(Sender<Call>, Waker)>,
    next: AtomicUsize,
}

impl Doors {
    /// Executes a request. Returns the data of a read.
    pub(crate) async fn ask(
        &self,
        request: Request,
        data: bytes::Bytes,
        share: Option<Arc<Share>>,
    ) -> Result<Vec<u8>, Errno> {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.doors.len();
        let (door, waker) = &self.doors[next];
        let (answer, answered) = oneshot::channel();
        // A thread that has ended takes no call: then `answered` fails, too.
        let _ = door.send(Call { request, data, answer, share });
        waker.wake();
        answered.await.unwrap_or(Err(EIO))
    }
}

/// Starts the threads of a manager that serves at `listener` and records with `reporter`.
pub(crate) fn start(
    config: Config,
    listener: TcpListener,
    reporter: &mut Reporter<Middleware>,
) -> io::Result<Running> {
    let Config { stores, layout, read_only, threads, timeout, limits, flights_bytes_max, trace } =
        config;
    let names: Vec<String> = stores.iter().map(|store| store.name.clone()).collect();
    let space = Arc::new(Space {
        export: Export { bytes: layout.bytes(), read_only },
        layout,
        health: Health::new(names.clone(), threads),
        timeout,
        flights_bytes_max: flights_bytes_max / threads,
        trace,
    });
    let (starting, tried) = channel();
    let (doors, mut calls): (Vec<_>, Vec<_>) = (0..threads).map(|_| channel()).unzip();
    let mut wakers = Vec::new();
    calls.reverse();
    let group =
        Group::start("net", threads, &limits.loop_config(), Some(listener), |thread, all| {
            wakers = all.to_vec();
            let machines = stores.iter().map(|store| Machine::new(store.address)).collect();
            let now = Moment::now();
            let mut gauges = MiddlewareGauges::new(now.mono, 0, &names);
            gauges.servers.iter_mut().for_each(|server| server.up = false);
            let recorder = reporter.recorder(format!("net-{thread}"), gauges, now);
            let calls = calls.pop().expect("each thread takes one");
            Manager::new(Arc::clone(&space), machines, calls, starting.clone(), recorder)
        })?;
    let doors = Doors { doors: doors.into_iter().zip(wakers).collect(), next: AtomicUsize::new(0) };
    Ok(Running { group, tried, threads, space, doors: Arc::new(doors) })
}

impl Running {
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.group.address()
    }

    pub(crate) fn shutdown(&self) -> Shutdown {
        self.group.shutdown()
    }

    /// Waits until every thread has tried to connect to every machine.
    pub(crate) fn wait_for_machines(&self) {
        for _ in 0..self.threads {
            // A thread that ended early sends no message.
            if self.tried.recv().is_err() {
                return;
            }
        }
    }

    pub(crate) fn space(&self) -> Arc<Space> {
        Arc::clone(&self.space)
    }

    pub(crate) fn doors(&self) -> Arc<Doors> {
        Arc::clone(&self.doors)
    }

    pub(crate) fn join(self) -> io::Result<()> {
        self.group.join()
    }
}
