//! What is said of a command line that cannot be read.

use clap::Error;
use clap::error::{ContextKind, ContextValue};

use crate::plain::is_plain;

/// What stands instead of a word.
const NOT_REPEATED: &str = "(not repeated: it may have a password in it)";

/// The same without words that may have a password in them, as those of an address that was written where none is
/// meant.
pub(super) fn without_passwords(mut error: Error) -> Error {
    let concealed = error.context().filter_map(|(kind, value)| match value {
        ContextValue::String(word) if !is_repeatable(word) => Some(kind),
        _ => None,
    });
    for kind in concealed.collect::<Vec<_>>() {
        error.insert(kind, ContextValue::String(NOT_REPEATED.to_owned()));
        // That, too, may repeat it.
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Whether a word may be repeated: an option, with the name of what it is set to, a subcommand, or a plain value.
fn is_repeatable(word: &str) -> bool {
    is_plain(word, "_.- <>[]")
}
