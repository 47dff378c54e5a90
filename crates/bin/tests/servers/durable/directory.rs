//! A directory for the data of successive programs.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::program::{KV, Program, is_progress, refused};

/// The block size of most file systems.
const BLOCK_BYTES: u64 = 4096;

/// A directory, empty at first and removed at the end.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("knee-kv-durable-{}-{number}", std::process::id());
        Directory(std::env::temp_dir().join(name))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub(crate) fn serve(&self, flags: &[&str]) -> Program {
        Program::spawn(&mut self.command(flags))
    }

    pub(crate) fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(KV);
        command.args(["--listen", "127.0.0.1:0", "--stats", "json", "--data", self.path()]);
        command.args(flags);
        command
    }

    /// The message of a start that fails.
    pub(crate) fn refusal(&self, flags: &[&str]) -> String {
        let flags = [&["--listen", "127.0.0.1:0", "--data", self.path()], flags].concat();
        let output = refused(KV, &flags);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        let errors = String::from_utf8(output.stderr).unwrap();
        let message: String =
            errors.split_inclusive('\n').filter(|line| !is_progress(line)).collect();
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    }

    /// Checks the number of blocks. Besides data, each file may have a block for its map; the manifest and the next
    /// manifest have one each.
    pub(crate) fn expect_at_most(&self, bytes_max: u64) {
        let files = std::fs::read_dir(&self.0).unwrap().map(Result::unwrap);
        let mut sizes: Vec<_> =
            files.map(|file| (file.file_name(), file.metadata().unwrap().blocks() * 512)).collect();
        sizes.sort();
        let bytes = sizes.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let bytes_max = bytes_max + (sizes.len() as u64 + 2) * BLOCK_BYTES;
        assert!(bytes <= bytes_max, "{bytes} bytes, more than {bytes_max}: {sizes:?}");
    }

    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let mut logs: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|name| name == "log")).collect();
        logs.sort();
        logs
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
