//! What PostgreSQL's errors mean to who asked (PostgreSQL's documentation, appendix A).

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity};

use super::migrate::too_old;
use crate::database::Failure;

/// What of an address may have a password in it that was meant to stand elsewhere. A server that refuses a connection
/// may repeat it.
#[derive(Debug, Clone)]
pub(super) struct Withheld {
    /// Which of the user, the host and the database are no plain names.
    pub(super) names: Vec<String>,
    /// Whether its options are not plain.
    pub(super) options: bool,
}

impl Withheld {
    /// What is told of a refusal instead of what the server says, where that may have something of this.
    fn instead(&self, code: &str, message: &str) -> Option<String> {
        // These come before the options are read.
        let is_before = ["28", "3D000", "53", "57"].iter().any(|class| code.starts_with(class));
        if self.options && !is_before {
            return Some(format!(
                "it refuses ({code}): why is not repeated, as the options in the address are not plain, and \
                 may have a password in them"
            ));
        }
        if self.names.is_empty() {
            return None;
        }
        let words = match code {
            "28P01" => "the password is refused",
            "3D000" => "there is no such database",
            "42501" => "the user may not connect",
            code if code.starts_with("28") => "the user is not let in",
            // Of too many clients, or of a pooler, it depends on the message.
            _ if self.names.iter().any(|name| message.contains(beginning(name))) => {
                return Some(format!(
                    "it refuses ({code}): why is not repeated, as the user, host or database in the address is \
                     no plain name, and may have a password in it"
                ));
            }
            _ => return None,
        };
        Some(format!("{words} ({code})"))
    }
}

/// What PostgreSQL leaves of a name at least: it has room for 63 bytes.
fn beginning(name: &str) -> &str {
    name.char_indices().nth(15).map_or(name, |(end, _)| &name[..end])
}

/// Of a connection that was asked for; and of what became of it in the clear, where that was tried as well.
pub(super) fn connecting(error: &Error, clear: Option<&Error>, withheld: &Withheld) -> Failure {
    // It refuses what every session is set to first, before it can be asked for its version.
    if error.as_db_error().is_some_and(|said| lacks_setting(said.code().code(), said.message())) {
        return too_old("11 or an earlier one");
    }
    let text = |error: &Error| {
        let said = error.as_db_error();
        let instead = said.and_then(|said| withheld.instead(said.code().code(), said.message()));
        instead.unwrap_or_else(|| text(error))
    };
    let (why, clear) = (text(error), clear.map(text));
    let clear = clear.filter(|clear| *clear != why);
    let clear = clear.map_or(String::new(), |clear| format!("; nor in the clear: {clear}"));
    let lacks = if why.ends_with("password missing") || clear.ends_with("password missing") {
        "; it is looked for in --database-password-file, PGPASSWORD, PGPASSFILE and ~/.pgpass"
    } else {
        ""
    };
    let text = format!("cannot connect to the database: {why}{clear}{lacks}");
    match error.code() {
        Some(code) if is_for_the_administrator(code.code()) => Failure::NotAllowed(text),
        _ => Failure::Unavailable(text),
    }
}

/// Whether a server says, in whichever language, that it has no setting that PostgreSQL has since 12.
fn lacks_setting(code: &str, message: &str) -> bool {
    code == "42704" && message.contains("plan_cache_mode")
}

/// Whether somebody has to do something about it: a user who is not let in or has not the rights, a
/// database that is not there.
fn is_for_the_administrator(code: &str) -> bool {
    code.starts_with("28") || matches!(code, "3D000" | "42501")
}

/// Of what is asked before any call, which has done nothing.
pub(super) fn opening(error: &Error) -> Failure {
    done_nothing(calling(error))
}

/// What is not known of a call that changes nothing is whether it would have been answered.
pub(super) fn done_nothing(failure: Failure) -> Failure {
    match failure {
        Failure::Unknown(text) => Failure::Unavailable(text),
        other => other,
    }
}

/// Of a call.
pub(super) fn calling(error: &Error) -> Failure {
    let text = text(error);
    let Some(code) = error.code() else {
        // The answer was lost, or could not be read.
        return Failure::Unknown(format!("the connection to the database was lost: {text}"));
    };
    // What ends its session, or comes from something in between, may have come after the commit: a log
    // that cannot be written, a server that is shut down. Any other error has undone everything.
    if ends_connection(error) || code.code().starts_with("08") || code.code() == "40003" {
        return Failure::Unknown(text);
    }
    match code.code() {
        "3F000" | "42883" | "42P01" | "42703" => Failure::NotMigrated(format!(
            "the database has not the schema that this server needs ({text}): run \
             `knee-queue migrate`"
        )),
        "53100" => Failure::Full(text),
        code if is_for_the_administrator(code) => Failure::NotAllowed(text),
        // Of a read only server, no resources, a deadlock, a statement that took too long, or a server
        // that is shut down.
        code if matches!(&code[..2], "25" | "40" | "53" | "55" | "57" | "58") => {
            Failure::Unavailable(text)
        }
        "22021" | "22P05" => Failure::Invalid(text),
        "2200H" => Failure::Full(text),
        _ => Failure::Broken(text),
    }
}

/// Whether nothing can be asked on the connection any more.
pub(super) fn ends_connection(error: &Error) -> bool {
    let severity = error.as_db_error().map(DbError::parsed_severity);
    severity.is_none_or(|severity| matches!(severity, Some(Severity::Fatal | Severity::Panic)))
}

/// What the server said, or what happened to the connection.
pub(super) fn text(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => format!("{} ({})", said.message(), said.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
