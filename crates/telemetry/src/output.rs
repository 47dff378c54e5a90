//! Lines to standard output or a log, whether or not anybody takes them.

use std::fmt::{self, Debug, Formatter};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd as _;

/// Writes whole lines, each handed over at once.
///
/// A failure is told on standard error, once, and never ends the program: a reader that went away
/// (`EPIPE`) ends the output; after any other failure (a full disk) the next line is tried again.
pub(crate) struct Output {
    program: &'static str,
    /// What the sink is, for messages.
    what: &'static str,
    sink: Option<Box<dyn Write + Send>>,
    /// The last line may have been written in part.
    torn: bool,
}

impl Debug for Output {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output")
            .field("open", &self.sink.is_some())
            .field("torn", &self.torn)
            .finish_non_exhaustive()
    }
}

impl Output {
    pub(crate) fn new(
        program: &'static str,
        what: &'static str,
        sink: Box<dyn Write + Send>,
    ) -> Output {
        Output { program, what, sink: Some(sink), torn: false }
    }

    /// Standard output without the buffer of [`io::stdout`], which would keep and repeat what
    /// could not be written.
    pub(crate) fn stdout(program: &'static str) -> io::Result<Output> {
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Output::new(program, "standard output", Box::new(stdout)))
    }

    /// Writes `line` and a line feed.
    pub(crate) fn line(&mut self, line: &str) {
        let Some(sink) = &mut self.sink else {
            return;
        };
        let mut bytes = Vec::with_capacity(line.len() + 2);
        if self.torn {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        let (program, what) = (self.program, self.what);
        match sink.write_all(&bytes).and_then(|()| sink.flush()) {
            Ok(()) => self.torn = false,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                eprintln!("{program}: nobody reads {what} any more, nothing more is written to it");
                self.sink = None;
            }
            Err(error) => {
                if !self.torn {
                    eprintln!("{program}: lines are lost, {what} cannot be written: {error}");
                }
                self.torn = true;
            }
        }
    }
}
