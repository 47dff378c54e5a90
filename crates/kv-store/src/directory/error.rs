//! Why a directory could not be opened.

use std::io;
use std::path::PathBuf;

/// Why a directory could not be opened.
#[derive(Debug)]
pub enum DirectoryError {
    /// Another store has it.
    InUse(PathBuf),
    /// The system refused something.
    Io(PathBuf, io::Error),
    /// A file does not hold what was written to it.
    Damaged(PathBuf, String),
    /// A store of another kind made the directory.
    Other(PathBuf, String),
}

impl std::fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DirectoryError::InUse(path) => {
                write!(f, "{}: another store has it open", path.display())
            }
            DirectoryError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            DirectoryError::Damaged(path, what) | DirectoryError::Other(path, what) => {
                write!(f, "{}: {what}", path.display())
            }
        }
    }
}

impl std::error::Error for DirectoryError {}
