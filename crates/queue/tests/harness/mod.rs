//! Helpers for tests of databases and programs.

// The programs' tests use only a part.
#![allow(dead_code)]

pub(crate) mod cluster;
pub(crate) mod desk;
pub(crate) mod history;
pub(crate) mod judge;
pub(crate) mod proxy;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io};

use knee_server::Trace;

/// A log without a reader.
pub(crate) fn no_log() -> Trace {
    Trace::to_sink("test", io::sink())
}

/// A directory that is removed after its test.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("knee-queue-{}-{count}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
