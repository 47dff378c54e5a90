//! What `--database` says.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

use crate::plain::is_name;

/// A database of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The address of one of PostgreSQL.
    Postgres(String),
    /// A file of SQLite, or memory.
    Sqlite(Option<PathBuf>),
    /// None.
    Null,
}

/// Reads it. What may be a password is in no message: clap's own would repeat what cannot be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parser;

impl TypedValueParser for Parser {
    type Value = Target;

    fn parse_ref(
        &self,
        command: &Command,
        _argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Target, Error> {
        value.to_str().map_or(Err(FORMS.to_owned()), parse).map_err(|why| {
            Error::raw(ErrorKind::ValueValidation, format!("--database {why}\n")).with_cmd(command)
        })
    }
}

const FORMS: &str = "is one of postgresql://USER@HOST:PORT/NAME, sqlite:FILE, sqlite and null";

fn parse(text: &str) -> Result<Target, String> {
    if text.starts_with("postgresql://") || text.starts_with("postgres://") {
        return Ok(Target::Postgres(text.to_owned()));
    }
    match text.split_once(':') {
        None if text == "null" => Ok(Target::Null),
        None if text == "sqlite" => Ok(Target::Sqlite(None)),
        Some(("sqlite", file)) if !file.is_empty() => match option(file) {
            // Whoever takes it for another kind of database may have written a password.
            None if has_user(file) => Err("sqlite:FILE has no user and no host".to_owned()),
            None => Ok(Target::Sqlite(Some(file.into()))),
            Some(option) if is_name(option) && !file.contains('@') => {
                Err(format!("sqlite:FILE has no options, such as {option}"))
            }
            Some(_) => Err("sqlite:FILE has no options".to_owned()),
        },
        _ => Err(FORMS.to_owned()),
    }
}

/// Whether what is behind `sqlite:` looks like a URL with a user and a host, or like one that lacks its `//`.
fn has_user(file: &str) -> bool {
    match file.strip_prefix("//") {
        Some(rest) => !rest.starts_with('/') && rest.contains('@'),
        None => {
            let first = file.split('/').next().unwrap_or_default();
            first.split_once(':').is_some_and(|(_, behind)| behind.contains('@'))
        }
    }
}

/// The name of what looks like an option of a URL: it would be a part of the file's name, which nobody wants.
fn option(file: &str) -> Option<&str> {
    let (_, options) = file.split_once(['?', '&', ';'])?;
    Some(options.split_once('=')?.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn databases_have_names() {
        let sqlite = |file: &str| Some(Target::Sqlite(Some(file.into())));
        let postgres = |text: &str| Some(Target::Postgres(text.into()));
        for (text, target) in [
            ("null", Some(Target::Null)),
            ("sqlite:what?.db", sqlite("what?.db")),
            ("sqlite", Some(Target::Sqlite(None))),
            ("sqlite:messages.db", sqlite("messages.db")),
            ("sqlite:/a:b", sqlite("/a:b")),
            ("sqlite:///a@b", sqlite("///a@b")),
            ("sqlite:/a@b=c", sqlite("/a@b=c")),
            ("sqlite:a@b:c", sqlite("a@b:c")),
            ("sqlite:./a:b@c", sqlite("./a:b@c")),
            ("sqlite:file:/a@b/c", sqlite("file:/a@b/c")),
            ("postgresql://me@host/messages", postgres("postgresql://me@host/messages")),
            ("postgres://host", postgres("postgres://host")),
            // Nobody says where.
            ("sqlite:", None),
            ("messages.db", None),
            ("", None),
        ] {
            assert_eq!(parse(text).ok(), target, "{text}");
        }
    }

    #[test]
    fn options_of_a_file_are_named_and_what_they_are_set_to_is_not_repeated() {
        for (text, told) in [
            ("sqlite:messages.db?mode=ro", "sqlite:FILE has no options, such as mode"),
            ("sqlite:messages.db?key=x&secret=y", "sqlite:FILE has no options, such as key"),
            ("sqlite:file:messages.db?cache=shared", "sqlite:FILE has no options, such as cache"),
            ("sqlite://me:x@y?secret=z@there/db", "sqlite:FILE has no options"),
            ("sqlite:messages.db;key=x", "sqlite:FILE has no options, such as key"),
            ("sqlite:messages.db?x&secret=y", "sqlite:FILE has no options"),
            ("sqlite://me:secret@there/db", "sqlite:FILE has no user and no host"),
            ("sqlite:me:secret@there/db", "sqlite:FILE has no user and no host"),
            ("sqlite:me:secret@there", "sqlite:FILE has no user and no host"),
            ("mysql://me:x@y?secret=z@there/db", FORMS),
        ] {
            assert_eq!(parse(text).unwrap_err(), told, "{text}");
        }
    }
}
