//! Helpers for tests of databases and programs.

// The programs' tests use only a part.
#![allow(dead_code)]

pub(crate) mod cluster;
pub(crate) mod desk;
pub(crate) mod history;
pub(crate) mod judge;
pub(crate) mod proxy;

use std::io;
use std::sync::{Arc, Mutex};

use knee_server::Trace;

/// A log without a reader.
pub(crate) fn no_log() -> Trace {
    Trace::to_sink("test", io::sink())
}

/// The lines of a log.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// A log that writes here.
    pub(crate) fn log(&self) -> Trace {
        Trace::to_sink("test", self.clone())
    }

    /// The lines written so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
