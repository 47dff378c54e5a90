//! Stage times, one-second windows, HDR histograms and their printed forms.
//!
//! The programs only record; this crate prints. `docs/formats.md` is its contract.
//!
//! # From a request to a line
//!
//! ```text
//! event-loop thread                     reporter's thread                   standard output
//! Recorder ──cut, once a second──▶ Window ──▶ Collator ──▶ Second ──▶ JSON line or CSV row
//!   record(op, sample)               │
//!   gauges.queue_length.set(…)       └──▶ Totals ──▶ summary line
//! ```
//!
//! * [`Recorder`] is the hot path, one per thread. It uses plain memory, without locks or atomics. A record allocates
//!   nothing, and reads no clock.
//! * [`Role`] is the kind of a process: [`Middleware`], [`Broker`], [`Store`] or [`Load`]. It decides at compile
//!   time which stages a [`Sample`] has and which gauges a thread keeps.
//! * [`Reporter`] merges all threads' windows of a wall-clock second, and prints them. It merges histograms, and never
//!   averages percentiles. It keeps the totals, and serves them as Prometheus text.
//!
//! # Example
//!
//! ```
//! use std::time::Instant;
//! use knee_telemetry::{
//!     Middleware, MiddlewareGauges, MiddlewareTimes, Moment, Op, Reporter, Sample, Stats,
//! };
//!
//! # fn main() -> std::io::Result<()> {
//! let mut reporter = Reporter::<Middleware>::new("knee-proxy", Stats::Json)?;
//! let now = Moment::now();
//! let gauges = MiddlewareGauges::new(now.mono, 8, &["127.0.0.1:11212".to_owned()]);
//! let mut recorder = reporter.recorder("net-0", gauges, now);
//! reporter.ready(Some("127.0.0.1:11211".parse().expect("an address")));
//! let running = reporter.start()?;
//!
//! std::thread::spawn(move || {
//!     recorder.connections += 1;
//!     recorder.gauges.queue_length.add(Instant::now(), 1);
//!     recorder.gauges.queue_length.add(Instant::now(), -1);
//!     recorder.gauges.servers[0].requests += 1;
//!     recorder.record(
//!         Op::Get,
//!         &Sample {
//!             times: MiddlewareTimes { queueing_ns: 900, service_ns: 81_000, response_ns: 93_000 },
//!             items: 1,
//!             hits: 1,
//!             misses: 0,
//!             bytes_in: 24,
//!             bytes_out: 4131,
//!             error: false,
//!         },
//!     );
//!     // Here a timer set to `Moment::now().next_second()` fires, and is set again.
//!     recorder.cut(Moment::now());
//!     recorder.finish(Moment::now());
//! });
//! running.finish(|_totals| ());
//! # Ok(())
//! # }
//! ```
mod admin;
mod clock;
mod collate;
mod csv;
mod hdr_log;
mod histogram;
mod json;
mod level;
mod metric;
mod op;
mod output;
mod pool;
mod prometheus;
mod recorder;
mod reporter;
mod requests;
mod role;
mod roles;
mod server_counts;
mod stage;
mod totals;
mod window;

pub use clock::{CpuClock, Moment};
pub use histogram::{HIGHEST_NS, SIGNIFICANT_DIGITS};
pub use level::{Level, LevelReading};
pub use metric::Metric;
pub use op::Op;
pub use output::tell;
pub use recorder::{Recorder, Sample};
pub use reporter::{Reporter, Running, Stats};
pub use requests::Counts;
pub use role::{Gauges, Reading, Role};
pub use roles::{
    Bottleneck, BottleneckReason, Broker, BrokerGauges, BrokerReading, CacheCounts, LATE_NS, Load,
    LoadClosing, LoadGauges, Middleware, MiddlewareGauges, MiddlewareReading, RequestSpan, Store,
    StoreGauges, VersionGauges,
};
pub use server_counts::ServerCounts;
pub use stage::{
    BrokerTimes, LoadTimes, MiddlewareTimes, Stage, Stamps, StoreTimes, Times, elapsed_ns,
};
pub use totals::Totals;
pub use window::Window;
