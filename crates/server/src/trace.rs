//! `--trace`: a line on standard error for each request.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// The number of lines that wait for the reader of standard error. Further lines are lost, and counted.
const WAITING_LINES_MAX: usize = 16 << 10;

/// Writes lines on its own thread, so that no request waits for the reader of standard error.
#[derive(Debug, Clone)]
pub struct Trace {
    program: &'static str,
    lines: NonBlocking,
    /// Its drop writes the waiting lines, for a second at most.
    flush: Arc<Mutex<Option<WorkerGuard>>>,
}

impl Trace {
    /// A trace on standard error.
    pub fn start(program: &'static str) -> Trace {
        Trace::to_sink(program, io::stderr())
    }

    /// A trace that writes to `sink`.
    pub fn to_sink(program: &'static str, sink: impl Write + Send + 'static) -> Trace {
        let builder = NonBlockingBuilder::default().thread_name("trace");
        let (lines, guard) = builder.buffered_lines_limit(WAITING_LINES_MAX).finish(sink);
        Trace { program, lines, flush: Arc::new(Mutex::new(Some(guard))) }
    }

    /// Writes a line about a request, unless too many lines wait.
    pub fn tell(&self, message: fmt::Arguments<'_>) {
        self.log(format_args!("trace {message}"));
    }

    /// The same for a line that is not about a request.
    pub fn log(&self, message: fmt::Arguments<'_>) {
        let line = format!("{}: {message}\n", self.program);
        // It never fails: a line for which there is no room is counted as lost.
        let _ = self.lines.clone().write_all(line.as_bytes());
    }

    /// Writes the waiting lines, and the number of lost lines.
    pub fn finish(&self) {
        drop(self.flush.lock().unwrap_or_else(PoisonError::into_inner).take());
        let lost = self.lines.error_counter().dropped_lines();
        if lost > 0 {
            let program = self.program;
            eprintln!("{program}: trace lost {lost} lines: standard error was read too slowly");
        }
    }
}
