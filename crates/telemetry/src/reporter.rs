//! The process's reporter: one thread that merges, prints and keeps totals.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use hdrhistogram::serialization::V2DeflateSerializer;

use crate::admin;
use crate::clock::Moment;
use crate::collate::{Collator, Second};
use crate::csv;
use crate::hdr_log::HdrLog;
use crate::json::{self, ReadyLine};
use crate::output::{Output, tell};
use crate::pool::Pool;
use crate::prometheus;
use crate::recorder::Recorder;
use crate::role::Role;
use crate::stage::Times as _;
use crate::totals::Totals;
use crate::window::Window;

/// The form of standard output (`--stats`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stats {
    /// JSON lines.
    Json,
    /// The seed's columns.
    Csv,
    /// Only the `ready` line.
    None,
}

/// Configures the reports of a process, before its threads run.
#[derive(Debug)]
pub struct Reporter<R: Role> {
    program: &'static str,
    stats: Stats,
    output: Output,
    grpc: Option<SocketAddr>,
    admin: Option<(TcpListener, SocketAddr)>,
    hdr_log: Option<HdrLog>,
    thread_names: Vec<String>,
    sender: Sender<Window<R>>,
    windows: Receiver<Window<R>>,
    pool: Arc<Pool>,
}

impl<R: Role> Reporter<R> {
    /// A reporter that prints on standard output.
    ///
    /// # Errors
    ///
    /// Standard output is closed, or there are no descriptors left.
    pub fn new(program: &'static str, stats: Stats) -> io::Result<Reporter<R>> {
        Ok(Reporter::with_output(program, stats, Output::stdout(program)?))
    }

    /// A reporter that prints somewhere else.
    pub fn to_sink(
        program: &'static str,
        stats: Stats,
        sink: Box<dyn Write + Send>,
    ) -> Reporter<R> {
        Reporter::with_output(program, stats, Output::new(program, "standard output", sink))
    }

    fn with_output(program: &'static str, stats: Stats, output: Output) -> Reporter<R> {
        let (sender, windows) = mpsc::channel();
        Reporter {
            program,
            stats,
            output,
            grpc: None,
            admin: None,
            hdr_log: None,
            thread_names: Vec::new(),
            sender,
            windows,
            pool: Arc::new(Pool::new(R::Times::STAGES.len())),
        }
    }

    /// Adds an address for gRPC to the `ready` line.
    pub fn serves_grpc(&mut self, address: SocketAddr) {
        self.grpc = Some(address);
    }

    /// Serves `GET /metrics` and `GET /healthz` on `listener` from the reporter's start until the process ends.
    ///
    /// # Errors
    ///
    /// The listener has no address.
    pub fn serve_admin(&mut self, listener: TcpListener) -> io::Result<()> {
        let address = listener.local_addr()?;
        self.admin = Some((listener, address));
        Ok(())
    }

    /// Also writes an HdrHistogram interval log to `sink`.
    pub fn log_histograms(&mut self, sink: Box<dyn Write + Send>) {
        let output = Output::new(self.program, "the histogram log", sink);
        self.hdr_log = Some(HdrLog::new(output));
    }

    /// The recorder of one more thread, whose first window begins at `now`.
    ///
    /// The thread ends its windows with [`Recorder::cut`] and its last one with
    /// [`Recorder::finish`].
    pub fn recorder(
        &mut self,
        thread_name: impl Into<String>,
        gauges: R::Gauges,
        now: Moment,
    ) -> Recorder<R> {
        let thread = self.thread_names.len();
        self.thread_names.push(thread_name.into());
        Recorder::new(thread, self.sender.clone(), Arc::clone(&self.pool), gauges, now)
    }

    /// Prints the `ready` line: the program serves at `listen` (`None` for a client).
    ///
    /// With `--stats csv`, standard output has only the rows, so the line becomes a message on standard error.
    pub fn ready(&mut self, listen: Option<SocketAddr>) {
        if self.stats == Stats::Csv {
            return match listen {
                Some(listen) => tell(self.program, format_args!("ready at {listen}")),
                None => tell(self.program, "ready"),
            };
        }
        self.output.line(&json::line(&ReadyLine {
            r#type: "ready",
            role: R::NAME,
            program: self.program,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            listen,
            grpc: self.grpc,
            admin: self.admin.as_ref().map(|(_, address)| *address),
        }));
    }

    /// Starts the reporter's thread. All recorders must exist by now.
    ///
    /// # Errors
    ///
    /// The system cannot start another thread.
    pub fn start(self) -> io::Result<Running<R>> {
        let totals = Arc::new(Mutex::new(Totals::new(self.thread_names.clone())));
        if let Some((listener, _)) = self.admin {
            let totals = Arc::clone(&totals);
            // Write the page from a copy, so that the reporter does not wait for the lock.
            admin::serve(listener, move || {
                let totals = lock(&totals).clone();
                prometheus::page(&totals)
            })?;
        }
        let mut printer = Printer {
            stats: self.stats,
            output: self.output,
            rows: csv::Rows::default(),
            hdr_log: self.hdr_log,
            thread_names: self.thread_names,
            serializer: V2DeflateSerializer::new(),
            pool: self.pool,
        };
        let windows = self.windows;
        let shared = Arc::clone(&totals);
        let thread = thread::Builder::new().name("reporter".to_owned()).spawn(move || {
            printer.begin();
            report(&windows, &shared, &mut printer);
            printer
        })?;
        Ok(Running { thread, totals })
    }
}

/// A running reporter.
#[derive(Debug)]
pub struct Running<R: Role> {
    thread: JoinHandle<Printer>,
    totals: Arc<Mutex<Totals<R>>>,
}

impl<R: Role> Running<R> {
    /// Waits until every recorder is finished (or dropped) and every window is printed. Then prints the summary, with
    /// the fields that `closing` computes from the totals.
    ///
    /// # Panics
    ///
    /// When the reporter's thread panicked.
    pub fn finish(self, closing: impl FnOnce(&Totals<R>) -> R::Closing) {
        let mut printer = self.thread.join().expect("the reporter does not panic");
        let totals = lock(&self.totals);
        let closing = closing(&totals);
        printer.end(&totals, &closing);
    }
}

/// Totals are plain sums, so they stay usable after a panic of a thread that held the lock.
fn lock<R: Role>(totals: &Mutex<Totals<R>>) -> MutexGuard<'_, Totals<R>> {
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Merges and prints until every recorder is gone.
fn report<R: Role>(
    windows: &Receiver<Window<R>>,
    totals: &Mutex<Totals<R>>,
    printer: &mut Printer,
) {
    let mut collator = Collator::new(printer.thread_names.len(), Arc::clone(&printer.pool));
    loop {
        let received = match collator.deadline() {
            Some(deadline) => {
                windows.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            }
            None => windows.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(window) => {
                window.waiting.fetch_sub(1, Ordering::Relaxed);
                lock(totals).add(&window);
                collator.push(window, Instant::now());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        while let Some(second) = collator.pop(Instant::now()) {
            printer.second(second);
        }
    }
    while let Some(second) = collator.pop_first() {
        printer.second(second);
    }
}

/// Prints seconds and the summary in the form that `--stats` asks for.
struct Printer {
    stats: Stats,
    output: Output,
    rows: csv::Rows,
    hdr_log: Option<HdrLog>,
    thread_names: Vec<String>,
    serializer: V2DeflateSerializer,
    pool: Arc<Pool>,
}

impl Printer {
    fn begin(&mut self) {
        if self.stats == Stats::Csv {
            self.output.line(csv::HEADER);
        }
    }

    fn second<R: Role>(&mut self, second: Second<R>) {
        match self.stats {
            Stats::Json => {
                let line = json::window_line(&second, &self.thread_names, &mut self.serializer);
                self.output.line(&line);
            }
            Stats::Csv => {
                if let Some(row) = self.rows.row(&second) {
                    self.output.line(&row);
                }
            }
            Stats::None => {}
        }
        if let Some(log) = &mut self.hdr_log {
            log.second(&second, &mut self.serializer);
        }
        second.recycle(&self.pool);
    }

    fn end<R: Role>(&mut self, totals: &Totals<R>, closing: &R::Closing) {
        match self.stats {
            Stats::Json => self.output.line(&json::summary_line(totals, closing)),
            Stats::Csv => {
                for line in csv::histogram_lines(totals) {
                    self.output.line(&line);
                }
            }
            Stats::None => {}
        }
    }
}
