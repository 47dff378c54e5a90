//! What the tests of databases share, and those of the programs.

// The programs' tests need a part of it.
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
    /// A log that is kept here.
    pub(crate) fn log(&self) -> Trace {
        Trace::to_sink("test", self.clone())
    }

    /// What has been written.
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
