//! What a start found damaged, and what a repair lost.

use std::path::PathBuf;

use knee_kv_cache::engine::Version;

use crate::directory::key_sum;

pub(crate) const DOUBTS_MAX: usize = 1000;

/// What a start found damaged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Copies of the manifest that were damaged, and have been made whole.
    pub manifests: Vec<(PathBuf, String)>,
    /// Whether a repair made the manifest from the segments. Such a repair forgets all old versions.
    pub is_rebuilt: bool,
    /// What a repair could not read.
    pub lost: Vec<Lost>,
    /// Number of keys that a repair hid, because their newest record may be lost.
    pub doubts_all: usize,
    /// Up to 1,000 of them. The list has all of them.
    pub doubts: Vec<Doubt>,
    /// Whether further keys may be lost, which no record names.
    pub has_unnamed: bool,
    /// The file with the list of `lost` and all hidden keys.
    pub list: Option<PathBuf>,
}

/// A key whose newest record may be lost. A repair makes it absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The key. If no record with it can be read: a number, which other keys seldom have.
    pub key: Result<Vec<u8>, u32>,
    /// The first version that is lost or unknown.
    pub from: Version,
    /// The last versions before that, oldest first: they can be read as history.
    pub known: Vec<Version>,
    /// Whether the last known version is a delete.
    pub deleted: bool,
}

impl Doubt {
    /// Whether the doubt is about this key.
    pub fn is_about(&self, key: &[u8]) -> bool {
        self.key.as_ref().map_or_else(|&sum| sum == key_sum(key), |of| of == key)
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Doubt { key, from, known, deleted } = self;
        match key {
            Ok(key) => write!(f, "\"{}\"", key.escape_ascii())?,
            Err(sum) => write!(f, "a key without other records ({sum:08x})")?,
        }
        write!(f, " is absent: versions from {from} on are lost or uncertain")?;
        let [before @ .., last] = &known[..] else {
            return f.write_str("; no version is certain");
        };
        let (versions, are) =
            if before.is_empty() { ("version", "is") } else { ("versions", "are") };
        write!(f, "; {versions} ")?;
        before.iter().try_for_each(|version| write!(f, "{version}, "))?;
        write!(f, "{last} {are} certain")?;
        if *deleted { write!(f, "; version {last} deleted the key") } else { Ok(()) }
    }
}

/// A lost part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The file.
    pub file: PathBuf,
    /// Where in the file the damage begins.
    pub offset: u64,
    /// Bytes up to the next record that can be read, or to the end.
    pub bytes: u64,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Lost { file, offset, bytes } = self;
        match bytes {
            0 => write!(f, "{}: nothing from {offset} on can be read", file.display()),
            _ => write!(f, "{}: {bytes} bytes from {offset} on are lost", file.display()),
        }
    }
}
