//! Stores that are killed, stopped, cut off, slow and full, behind the middleware and under load.
//!
//! Values name their key and have a sequence number, so each read shows whether it is wrong, torn or older than the last
//! acknowledged write. Only one store is disturbed at a time, so no plain write may be refused. `KNEE_SOAK=n` lets each
//! test run n seconds longer.

mod clients;
mod wire;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::durable::directory::Directory;
use crate::program::{PROXY, Program};
use clients::{Clients, Random};
use knee_testkit::{Memcached, soak, wait_until};
use wire::Wire;

/// The middleware's time limit of an answer. Each pause is well below it, or well above twice the limit.
const SERVER_TIMEOUT_MS: u64 = 1000;
/// The disturbances of a test without `KNEE_SOAK`.
const SECONDS: u64 = 3;
const CACHE_HITS: &str = "knee_cache_hits_total{role=\"middleware\"} ";

enum Store {
    /// Loses its values with each restart.
    Memcached(Memcached),
    /// Keeps its values. `None` while it is dead.
    Durable(Directory, Option<Program>),
}

impl Store {
    fn durable() -> Store {
        let directory = Directory::new();
        let program = directory.serve(&[]);
        Store::Durable(directory, Some(program))
    }

    fn address(&self) -> SocketAddr {
        match self {
            Store::Memcached(memcached) => memcached.address,
            Store::Durable(_, program) => program.as_ref().unwrap().address().parse().unwrap(),
        }
    }

    fn signal(&self, signal: libc::c_int) {
        match self {
            Store::Memcached(memcached) => memcached.signal(signal),
            Store::Durable(_, program) => program.as_ref().unwrap().signal(signal),
        }
    }

    fn kill(&mut self) {
        match self {
            Store::Memcached(memcached) => memcached.kill(),
            Store::Durable(_, program) => {
                let program = program.take().unwrap();
                program.signal(libc::SIGKILL);
                program.end();
            }
        }
    }

    fn start(&mut self) {
        match self {
            Store::Memcached(memcached) => memcached.restart(),
            Store::Durable(directory, program) => *program = Some(directory.serve(&[])),
        }
    }

    fn stop_for(&self, ms: u64) {
        self.signal(libc::SIGSTOP);
        thread::sleep(Duration::from_millis(ms));
        self.signal(libc::SIGCONT);
    }

    /// Reads that it has answered.
    fn reads(&self) -> u64 {
        let mut stream = crate::program::connect(&self.address().to_string());
        let stats = crate::program::talk(&mut stream, b"stats\r\n", b"END\r\n");
        let stats = String::from_utf8(stats).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("STAT cmd_get ")).unwrap();
        line.parse().unwrap()
    }
}

/// Disturbs a store; says how.
fn disturb(store: &mut Store, wire: &Wire, random: &mut Random) -> &'static str {
    match random.below(6) {
        0 => {
            store.kill();
            store.start();
            wire.lead_to(store.address());
            "restarted"
        }
        1 => {
            store.kill();
            thread::sleep(Duration::from_millis(300));
            store.start();
            wire.lead_to(store.address());
            "killed and started later"
        }
        2 => {
            store.stop_for(SERVER_TIMEOUT_MS / 5);
            "stopped briefly"
        }
        3 => {
            store.stop_for(SERVER_TIMEOUT_MS * 13 / 5);
            "stopped for long"
        }
        4 => {
            for _ in 0..10 {
                store.stop_for(40);
                thread::sleep(Duration::from_millis(10));
            }
            "slow"
        }
        _ => {
            wire.reset();
            "cut off"
        }
    }
}

/// What the middleware says about servers.
#[derive(Default)]
struct Said {
    lines: Vec<String>,
}

impl Said {
    /// Whether the server is out, after all lines so far.
    fn is_out(&mut self, proxy: &Program, server: SocketAddr) -> bool {
        self.lines.extend(proxy.said());
        let about = format!("server {server} is ");
        let last = self.lines.iter().rev().find(|line| line.contains(&about));
        last.is_some_and(|line| line.contains(" is out: "))
    }
}

/// Returns the middleware's metrics at the end.
fn harass(mut stores: [Store; 3], flags: &[&str], may_be_full: bool) -> String {
    let wires = [0, 1, 2].map(|number| Wire::to(stores[number].address()));
    let servers = wires.each_ref().map(|wire| wire.address.to_string());
    let timeout = SERVER_TIMEOUT_MS.to_string();
    let given = ["--server", &servers[0], &servers[1], &servers[2], "--threads", "2"];
    let more = ["--server-timeout-ms", &timeout, "--connections-max", "100", "--stats", "none"];
    let watched = ["--admin", "127.0.0.1:0"];
    let proxy = Program::serve(PROXY, &[&given[..], &more, &watched, flags].concat());
    let mut said = Said::default();
    let (mut random, mut history) = (Random::new(), Vec::new());
    let done = AtomicBool::new(false);
    let clients = Clients::new(proxy.address());
    thread::scope(|scope| {
        // The clients also stop when this thread fails.
        let guard = DoneAtEnd(&done);
        clients.start(scope, &done);
        let until = Instant::now() + Duration::from_secs(SECONDS + u64::from(soak()));
        while Instant::now() < until {
            let victim = random.below(3) as usize;
            let how = disturb(&mut stores[victim], &wires[victim], &mut random);
            history.push((victim, how));
            let (store, server) = (&stores[victim], wires[victim].address);
            // The middleware may notice a failure later than the store is back.
            thread::sleep(Duration::from_millis(50));
            wait_until(&format!("{server} is in after it was {how}"), || {
                !said.is_out(&proxy, server)
            });
            let before = store.reads();
            wait_until(&format!("{server} is read from after it was {how}"), || {
                store.reads() > before + 20
            });
            // Writes that began without this server need both others: they end before the next disturbance.
            let begun = clients.writes();
            wait_until("the writes in flight have their answers", || {
                clients.writes().iter().zip(begun).all(|(&now, then)| now > then)
            });
        }
        drop(guard);
    });
    let metrics = proxy.metrics();
    proxy.signal(libc::SIGTERM);
    said.lines.extend(proxy.said());
    let counts = clients.counts();
    let refused: Vec<_> = (clients.refused().into_iter())
        .filter(|line| !(may_be_full && line.contains("out of memory")))
        .collect();
    println!("{flags:?}: {counts}, {} refused in {} disturbances", refused.len(), history.len());
    let faults = clients.faults();
    assert!(faults.is_empty(), "{faults:#?} in {history:?}\n{:#?}", said.lines);
    // On a busy machine, a store may be slow by itself.
    let is_busy = wires.iter().enumerate().any(|(number, wire)| {
        let late = format!("server {} is out: no answer within", wire.address);
        let times_late = said.lines.iter().filter(|line| line.contains(&late)).count();
        let stop = (number, "stopped for long");
        times_late > history.iter().filter(|&&disturbance| disturbance == stop).count()
    });
    assert!(refused.is_empty() || is_busy, "{refused:#?} in {history:?}\n{:#?}", said.lines);
    metrics
}

/// Sets a flag when it is dropped.
struct DoneAtEnd<'a>(&'a AtomicBool);

impl Drop for DoneAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// With threads that may execute requests of different connections in any order.
fn memcached() -> Store {
    Store::Memcached(Memcached::start(&["-t", "4"]))
}

#[test]
fn workers_with_whole_multigets_serve_nothing_old() {
    harass([memcached(), memcached(), memcached()], &["--workers", "8"], false);
}

#[test]
fn workers_with_sharded_multigets_serve_nothing_old() {
    let flags = ["--workers", "8", "--multiget", "sharded"];
    harass([Store::durable(), Store::durable(), Store::durable()], &flags, false);
}

#[test]
fn pipelines_with_whole_multigets_serve_nothing_old() {
    harass([Store::durable(), Store::durable(), Store::durable()], &["--pipelined"], false);
}

#[test]
fn pipelines_with_sharded_multigets_serve_nothing_old() {
    let flags = ["--pipelined", "--multiget", "sharded"];
    harass([memcached(), memcached(), memcached()], &flags, false);
}

#[test]
fn limited_batches_serve_nothing_old() {
    let flags = ["--pipelined", "--batch-max", "3"];
    harass([memcached(), memcached(), memcached()], &flags, false);
}

/// One middleware, which all writes pass: its cache gives up nothing.
#[test]
fn near_cache_serves_nothing_old() {
    for mode in [&["--pipelined"][..], &["--workers", "8"]] {
        let flags = [mode, &["--cache-mb", "16", "--cache-ms", "60000"]].concat();
        let metrics = harass([memcached(), memcached(), memcached()], &flags, false);
        let hits = metrics.lines().find_map(|line| line.strip_prefix(CACHE_HITS)).unwrap();
        assert!(hits.parse::<f64>().unwrap() > 100.0, "{hits} hits");
    }
}

#[test]
fn full_store_serves_nothing_old() {
    let full = Store::Memcached(Memcached::start(&["-m", "2", "-M"]));
    harass([memcached(), full, memcached()], &["--pipelined"], true);
}
