//! A directory that programs keep their data in, one after the other.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::program::{KV, Program, is_progress, refused};

/// Of most file systems.
const BLOCK_BYTES: u64 = 4096;

/// A directory's path, which is empty at first and gone at the end.
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

    /// What it says when it does not start.
    pub(crate) fn refusal(&self, flags: &[&str]) -> String {
        let flags = [&["--listen", "127.0.0.1:0", "--data", self.path()], flags].concat();
        let output = refused(KV, &flags);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        let told = String::from_utf8(output.stderr).unwrap();
        let message: String =
            told.split_inclusive('\n').filter(|line| !is_progress(line)).collect();
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    }

    /// Checks what the files take of the disk; of the file system's own, a block for each says where its
    /// pieces are, and the manifest and the next one have one.
    pub(crate) fn expect_at_most(&self, bytes_max: u64) {
        let files = std::fs::read_dir(&self.0).unwrap();
        let blocks: Vec<_> = files.map(|file| file.unwrap().metadata().unwrap().blocks()).collect();
        let (bytes, files) = (blocks.iter().sum::<u64>() * 512, blocks.len() as u64);
        let bytes_max = bytes_max + (files + 2) * BLOCK_BYTES;
        assert!(bytes <= bytes_max, "{bytes} bytes in {files} files, more than {bytes_max}");
    }

    /// Segments that have all their space.
    pub(crate) fn made(&self) -> usize {
        let sizes = self.segments().into_iter().filter_map(|path| path.metadata().ok());
        sizes.filter(|metadata| metadata.blocks() * 512 > 1 << 20).count()
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
