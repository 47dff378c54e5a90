//! `--trace`: a line on standard error for each request.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of lines that wait for standard error; further lines are lost, and it is said how many.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// What still waits at the end has so long.
const PATIENCE: Duration = Duration::from_secs(2);

/// Writes lines on a thread of its own, so that nobody waits for whoever reads standard error.
#[derive(Debug, Clone)]
pub struct Trace(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    program: &'static str,
    waiting: Mutex<Waiting>,
    /// There is something to write, or all is written.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Whole lines.
    text: String,
    lost: u64,
    writing: bool,
}

impl Trace {
    /// A trace on standard error.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(program: &'static str) -> io::Result<Trace> {
        Trace::to_sink(program, Box::new(io::stderr()))
    }

    /// A trace somewhere else.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn to_sink(program: &'static str, sink: Box<dyn Write + Send>) -> io::Result<Trace> {
        let (waiting, changed) = Default::default();
        let shared = Arc::new(Shared { program, waiting, changed });
        let writes = Arc::clone(&shared);
        std::thread::Builder::new().name("trace".to_owned()).spawn(move || write(&writes, sink))?;
        Ok(Trace(shared))
    }

    /// Tells something, on a line of its own.
    pub fn tell(&self, message: fmt::Arguments<'_>) {
        let line = format!("{}: trace {message}\n", self.0.program);
        let mut waiting = self.0.lock();
        if waiting.text.len() + line.len() > WAITING_BYTES_MAX {
            waiting.lost += 1;
            return;
        }
        let was_idle = waiting.text.is_empty();
        waiting.text.push_str(&line);
        drop(waiting);
        if was_idle {
            self.0.changed.notify_all();
        }
    }

    /// Waits until everything is written, unless nobody takes it.
    pub fn finish(&self) {
        let unwritten = |waiting: &mut Waiting| waiting.writing || !waiting.text.is_empty();
        // Whoever does not read it is not waited for.
        let _ = self.0.changed.wait_timeout_while(self.0.lock(), PATIENCE, unwritten);
    }
}

impl Shared {
    /// A line is added whole or not at all: it stays usable whatever a thread that held it did.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(shared: &Shared, mut sink: Box<dyn Write + Send>) {
    loop {
        let idle = |waiting: &mut Waiting| waiting.text.is_empty() && waiting.lost == 0;
        let mut waiting =
            shared.changed.wait_while(shared.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let mut text = std::mem::take(&mut waiting.text);
        let lost = std::mem::take(&mut waiting.lost);
        waiting.writing = true;
        drop(waiting);
        if lost > 0 {
            let program = shared.program;
            text += &format!("{program}: trace lost {lost} lines: nobody read them in time\n");
        }
        // There is nowhere left to tell of a failure.
        let _ = sink.write_all(text.as_bytes());
        shared.lock().writing = false;
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Takes what is written when it is told to.
    struct Slow {
        turns: mpsc::Receiver<()>,
        taken: Arc<Mutex<String>>,
    }

    impl Write for Slow {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.turns.recv().map_err(io::Error::other)?;
            let text = std::str::from_utf8(text).expect("lines are text");
            self.taken.lock().expect("not poisoned").push_str(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_reads_slowly_loses_whole_lines_and_is_told_how_many() {
        let (turn, turns) = mpsc::channel();
        let taken = Arc::<Mutex<String>>::default();
        let slow = Slow { turns, taken: Arc::clone(&taken) };
        let trace = Trace::to_sink("test", Box::new(slow)).expect("a thread");
        let line = "test: trace put \"k\" status=Ok total=85.1us\n";
        let told = 2 * WAITING_BYTES_MAX / line.len();
        for _ in 0..told {
            trace.tell(format_args!("put {:?} status=Ok total={:.1}us", "k", 85.12));
        }
        for _ in 0..3 {
            turn.send(()).expect("it is waited for");
        }
        trace.finish();
        let taken = taken.lock().expect("not poisoned");
        let lost = taken.lines().filter_map(|told| {
            let lost = told.strip_prefix("test: trace lost ")?;
            lost.strip_suffix(" lines: nobody read them in time")?.parse::<usize>().ok()
        });
        let lost: usize = lost.sum();
        let lines = taken.split_inclusive('\n').filter(|told| *told == line).count();
        assert!(lost > 0 && lines * line.len() >= WAITING_BYTES_MAX - line.len());
        assert_eq!(lines + lost, told);
        assert_eq!(taken.lines().count() - lines, 1);
    }
}
