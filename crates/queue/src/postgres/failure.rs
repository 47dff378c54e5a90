//! What PostgreSQL's errors mean to who asked (PostgreSQL's documentation, appendix A).

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity};

use crate::database::Failure;

/// Of a connection that was asked for.
pub(super) fn connecting(error: &Error) -> Failure {
    Failure::Unavailable(format!("cannot connect to the database: {}", text(error)))
}

/// Of a call. One that only reads has not done anything.
pub(super) fn calling(error: &Error, reads: bool) -> Failure {
    let text = text(error);
    let Some(code) = error.code() else {
        // The answer was lost, or could not be read.
        let text = format!("the connection to the database was lost: {text}");
        return if reads { Failure::Unavailable(text) } else { Failure::Unknown(text) };
    };
    // What ends its session, or comes from something in between, may have come after the commit: a log
    // that cannot be written, a server that is shut down. Any other error has undone everything.
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    let ends = matches!(severity, Some(Severity::Fatal | Severity::Panic));
    if !reads && (ends || code.code().starts_with("08") || code.code() == "40003") {
        return Failure::Unknown(text);
    }
    match code.code() {
        "3F000" | "42883" | "42P01" | "42703" => Failure::NotMigrated(format!(
            "the database has not the schema that this server needs ({text}): run \
             `knee-queue migrate`"
        )),
        "53100" => Failure::Full(text),
        // Of a read only server, no rights, no resources, a deadlock, a statement that took too long,
        // or a server that is shut down.
        code if matches!(
            &code[..2],
            "08" | "25" | "28" | "40" | "42" | "53" | "55" | "57" | "58"
        ) =>
        {
            Failure::Unavailable(text)
        }
        "22021" | "22P05" => Failure::Invalid(text),
        "2200H" => Failure::Full(text),
        _ => Failure::Broken(text),
    }
}

/// What the server said, or what happened to the connection.
fn text(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => format!("{} ({})", said.message(), said.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
