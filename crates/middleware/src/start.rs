//! Starts a middleware, for the program or a test.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use knee_reactor::{Group, Shutdown};
use knee_telemetry::{CacheCounts, Middleware, MiddlewareGauges, Moment, Reporter};

use crate::config::{Config, Mode};
use crate::health::Health;
use crate::near::Near;
use crate::proxy::{Proxy, lanes_of};
use crate::queue::Shared;

/// The answer to a client beyond [`Config::connections_max`], in memcached's words.
const REFUSAL: &[u8] = b"SERVER_ERROR too many open connections\r\n";
/// How long a shutdown waits for missing answers, and for clients that read slowly.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Unread output at which no further request of a client is taken, and at which taking resumes.
const OUTPUT_HIGH_WATER_BYTES: usize = 1024 * 1024;
const OUTPUT_LOW_WATER_BYTES: usize = 256 * 1024;

/// A running middleware.
#[derive(Debug)]
pub struct Running {
    group: Group,
    tried: Receiver<()>,
    threads: usize,
}

/// Starts the threads of a middleware that serves at `listener` and records with `reporter`.
///
/// # Errors
/// When the kernel refuses a poll, a timer or a thread.
///
/// # Panics
/// When the configuration has no threads, no servers, or more than [`Config::SERVERS_MAX`].
pub fn start(
    config: &Config,
    listener: TcpListener,
    reporter: &mut Reporter<Middleware>,
) -> io::Result<Running> {
    assert!((1..=Config::SERVERS_MAX).contains(&config.servers.len()));
    let loop_config = knee_reactor::Config {
        // The longest input of a client is a request; of a server, an answer with its line ends.
        input_bytes_max: config.limits.retrieval_line_bytes_max
            + config.limits.value_bytes_max.max(config.reply_bytes_max)
            + config.limits.line_bytes_max,
        output_high_water_bytes: OUTPUT_HIGH_WATER_BYTES,
        output_low_water_bytes: OUTPUT_LOW_WATER_BYTES,
        buffered_bytes_max: config.buffered_bytes_max,
        request_bytes_max: config
            .limits
            .value_bytes_max
            .max(config.limits.retrieval_line_bytes_max)
            + config.limits.line_bytes_max,
        connections_max: config.connections_max,
        refusal: REFUSAL,
        idle_timeout: config.idle_timeout,
        shutdown_grace: SHUTDOWN_GRACE,
        ..knee_reactor::Config::default()
    };
    let config = Arc::new(config.clone());
    let names: Vec<String> = config.servers.iter().map(|server| server.name.clone()).collect();
    let (starting, tried) = channel();
    let mut shared = None;
    let health =
        Arc::new(Health::new(config.servers.len(), config.threads, config.missed_bytes_max));
    let near = config.cache.as_ref().map(|cache| {
        Near::new(cache.bytes_max, cache.lifetime, config.limits.value_bytes_max, config.threads)
    });
    let group = Group::start("net", config.threads, &loop_config, Some(listener), {
        |thread, wakers| {
            let shared = shared.get_or_insert_with(|| Shared::new(wakers, config.connections_max));
            let workers = match config.mode {
                Mode::Pipelined => 0,
                Mode::Workers(_) => lanes_of(&config, thread) as u32,
            };
            let now = Moment::now();
            let mut gauges = MiddlewareGauges::new(now.mono, workers, &names);
            gauges.cache = near.as_ref().map(|_| CacheCounts::default());
            let recorder = reporter.recorder(format!("net-{thread}"), gauges, now);
            let (config, shared) = (Arc::clone(&config), Arc::clone(shared));
            let (health, near) = (Arc::clone(&health), near.clone());
            Proxy::new(config, shared, health, near, thread, recorder, starting.clone())
        }
    })?;
    Ok(Running { group, tried, threads: config.threads })
}

impl Running {
    /// The address of the middleware.
    pub fn address(&self) -> Option<SocketAddr> {
        self.group.address()
    }

    /// A handle that ends the middleware. Requests in flight are completed first.
    pub fn shutdown(&self) -> Shutdown {
        self.group.shutdown()
    }

    /// Waits until the first connections to every server are open or have failed.
    pub fn wait_for_servers(&self) {
        for _ in 0..self.threads {
            // A thread that ended early sends no message.
            if self.tried.recv().is_err() {
                return;
            }
        }
    }

    /// Waits until the middleware has ended.
    ///
    /// # Errors
    /// The failure that ended a thread before a shutdown.
    pub fn join(self) -> io::Result<()> {
        self.group.join()
    }
}
