//! The value of `--database`.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

/// A database of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Postgres(String),
    /// SQLite in this file, or in memory.
    Sqlite(Option<PathBuf>),
    Null,
}

/// Parses the value. Unlike clap's own parsers, it never repeats the value, which may have a password.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parser;

impl TypedValueParser for Parser {
    type Value = Target;

    fn parse_ref(
        &self,
        command: &Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Target, Error> {
        value.to_str().and_then(parse).ok_or_else(|| {
            let forms = "--database must be postgresql://USER@HOST:PORT/NAME, sqlite:FILE, sqlite or null\n";
            Error::raw(ErrorKind::ValueValidation, forms).with_cmd(command)
        })
    }
}

fn parse(text: &str) -> Option<Target> {
    if text.starts_with("postgresql://") || text.starts_with("postgres://") {
        return Some(Target::Postgres(text.to_owned()));
    }
    match text.split_once(':') {
        None if text == "null" => Some(Target::Null),
        None if text == "sqlite" => Some(Target::Sqlite(None)),
        Some(("sqlite", file)) if !file.is_empty() => Some(Target::Sqlite(Some(file.into()))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_has_one_of_four_forms() {
        let sqlite = |file: &str| Some(Target::Sqlite(Some(file.into())));
        let postgres = |text: &str| Some(Target::Postgres(text.into()));
        for (text, target) in [
            ("null", Some(Target::Null)),
            ("sqlite", Some(Target::Sqlite(None))),
            ("sqlite:messages.db", sqlite("messages.db")),
            ("sqlite:/a:b", sqlite("/a:b")),
            ("postgresql://me@host/messages", postgres("postgresql://me@host/messages")),
            ("postgres://host", postgres("postgres://host")),
            ("sqlite:", None),
            ("messages.db", None),
            ("", None),
        ] {
            assert_eq!(parse(text), target, "{text}");
        }
    }
}
