//! What `--database` says.

use std::path::PathBuf;

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

/// Reads it. What may be a password is in no message.
pub(super) fn parse(text: &str) -> Result<Target, String> {
    if text.starts_with("postgresql://") || text.starts_with("postgres://") {
        return Ok(Target::Postgres(text.to_owned()));
    }
    match text.split_once(':') {
        None if text == "null" => Ok(Target::Null),
        None if text == "sqlite" => Ok(Target::Sqlite(None)),
        Some(("sqlite", file)) if !file.is_empty() => Ok(Target::Sqlite(Some(file.into()))),
        _ => {
            Err("it is one of postgresql://USER@HOST:PORT/NAME, sqlite:FILE, sqlite and null"
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_have_names() {
        let sqlite = |file: &str| Some(Target::Sqlite(Some(file.into())));
        let postgres = |text: &str| Some(Target::Postgres(text.into()));
        for (text, target) in [
            ("null", Some(Target::Null)),
            ("sqlite", Some(Target::Sqlite(None))),
            ("sqlite:messages.db", sqlite("messages.db")),
            ("sqlite:/a:b", sqlite("/a:b")),
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
}
