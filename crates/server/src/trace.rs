//! `--trace`: a line on standard error for each request.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that wait for the reader of standard error; further lines are lost, and counted.
const WAITING_LINES_MAX: usize = 16 << 10;

/// Writes lines on a thread of its own, so that no request waits for the reader of standard error.
#[derive(Debug, Clone)]
pub struct Trace {
    program: &'static str,
    lines: NonBlocking,
    /// Its drop writes what still waits, for a second at most.
    flush: Arc<Mutex<Option<WorkerGuard>>>,
}

impl Trace {
    /// A trace on standard error.
    #[must_use]
    pub fn start(program: &'static str) -> Trace {
        Trace::to_sink(program, io::stderr())
    }

    /// A trace that `sink` takes.
    pub fn to_sink(program: &'static str, sink: impl Write + Send + 'static) -> Trace {
        let builder = NonBlockingBuilder::default().thread_name("trace");
        let (lines, guard) = builder.buffered_lines_limit(WAITING_LINES_MAX).finish(sink);
        Trace { program, lines, flush: Arc::new(Mutex::new(Some(guard))) }
    }

    /// Writes a message on a line of its own, unless too many wait.
    pub fn tell(&self, message: fmt::Arguments<'_>) {
        self.log(format_args!("trace {message}"));
    }

    /// The same for a message that belongs to no request.
    pub fn log(&self, message: fmt::Arguments<'_>) {
        let line = format!("{}: {message}\n", self.program);
        // It never fails: a line without room is counted as lost.
        let _ = self.lines.clone().write_all(line.as_bytes());
    }

    /// Writes what still waits, and how many lines were lost.
    pub fn finish(&self) {
        drop(self.flush.lock().unwrap_or_else(PoisonError::into_inner).take());
        let lost = self.lines.error_counter().dropped_lines();
        if lost > 0 {
            let program = self.program;
            eprintln!("{program}: trace lost {lost} lines: standard error was read too slowly");
        }
    }
}
