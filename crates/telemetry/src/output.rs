//! Lines to standard output or a log, and messages to standard error. A failed write ends no thread.

use std::fmt::{self, Debug, Formatter};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd as _;

/// Prints a line on standard error that begins with the program's name.
///
/// If it cannot be written (full disk, closed pipe), it is lost. `eprintln!` would panic, and end a measurement.
pub fn tell(program: &str, message: impl fmt::Display) {
    let line = format!("{program}: {message}\n");
    // No place is left to report a failure.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes whole lines, without a buffer.
///
/// A failure is printed once on standard error, and never ends the program. A closed pipe (`EPIPE`) ends the output.
/// After any other failure (full disk), the output still tries the next line.
pub(crate) struct Output {
    program: &'static str,
    /// The sink's name in messages.
    what: &'static str,
    sink: Option<Box<dyn Write + Send>>,
    /// Whether the last line may have been written only in part.
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

    /// Standard output without the buffer of [`io::stdout`], which would keep unwritten data and repeat it.
    pub(crate) fn stdout(program: &'static str) -> io::Result<Output> {
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Output::new(program, "standard output", Box::new(stdout)))
    }

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
                tell(
                    program,
                    format_args!("{what} was closed by its reader: further lines are dropped"),
                );
                self.sink = None;
            }
            Err(error) => {
                if !self.torn {
                    tell(program, format_args!("cannot write to {what}: {error}; lines are lost"));
                }
                self.torn = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn closed_reader_ends_the_output_only() {
        let (mut reader, writer) = UnixStream::pair().expect("a socket pair");
        let mut output = Output::new("test", "a pipe", Box::new(writer));
        output.line("one");
        let mut read = [0; 4];
        reader.read_exact(&mut read).expect("the line");
        assert_eq!(&read, b"one\n");
        drop(reader);
        output.line("two");
        assert!(output.sink.is_none());
        output.line("three");
    }

    /// A disk that is full for the second write, after taking three bytes of it.
    struct Full {
        taken: Arc<Mutex<Vec<u8>>>,
        writes: u32,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.writes += 1;
            let room = match self.writes {
                2 => 3,
                3 => return Err(ErrorKind::StorageFull.into()),
                _ => bytes.len(),
            };
            self.taken.lock().expect("not poisoned").extend_from_slice(&bytes[..room]);
            Ok(room)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn torn_line_leaves_the_next_one_whole() {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let disk = Full { taken: Arc::clone(&taken), writes: 0 };
        let mut output = Output::new("test", "a file", Box::new(disk));
        for line in ["first", "second", "third", "fourth"] {
            output.line(line);
        }
        let taken = taken.lock().expect("not poisoned");
        assert_eq!(String::from_utf8_lossy(&taken), "first\nsec\nthird\nfourth\n");
    }
}
