//! Converts PostgreSQL's errors for the client (PostgreSQL's documentation, appendix A).

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity};
use tokio_rustls::rustls::{self, CertificateError};

use crate::database::Failure;

/// The failure of a connection attempt. The server's text is left out: it may contain a part of the address.
pub(super) fn connecting(error: &Error) -> Failure {
    let Some(code) = error.code() else {
        let why = handshake(error).unwrap_or_else(|| text(error));
        let lacks = if why.ends_with("password missing") {
            "; --database-password-file, PGPASSWORD, PGPASSFILE and ~/.pgpass have none"
        } else {
            ""
        };
        return Failure::Unavailable(format!("cannot connect to the database: {why}{lacks}"));
    };
    let why = match code.code() {
        "28P01" => "the password is refused",
        "3D000" => "there is no such database",
        "42501" => "the user may not connect",
        "42704" => "it lacks a setting; use PostgreSQL 13 or a later one",
        "53300" => "it has too many connections",
        "57P03" => "it starts or stops",
        code if code.starts_with("28") => "the user is not let in",
        _ => "it refuses the connection; its log says why",
    };
    let text = format!("cannot connect to the database: {why} ({})", code.code());
    if is_for_the_administrator(code.code()) {
        Failure::NotAllowed(text)
    } else {
        Failure::Unavailable(text)
    }
}

/// Why a certificate is refused, without the names in it.
fn handshake(error: &Error) -> Option<String> {
    let io = error.source()?.downcast_ref::<io::Error>()?;
    let error = io.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for another host than the address names".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "sslrootcert has no issuer of its certificate".to_owned()
        }
        error => format!("TLS failed: {error}"),
    })
}

/// Whether the remedy is the administrator's: a user without access or rights, a missing database.
fn is_for_the_administrator(code: &str) -> bool {
    code.starts_with("28") || matches!(code, "3D000" | "42501")
}

/// Of a question before any call, which has done nothing.
pub(super) fn opening(error: &Error) -> Failure {
    done_nothing(calling(error))
}

/// Of a call that changes nothing: a lost answer leaves nothing unknown.
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
    // An error that ends the session, or comes from a proxy, may follow the commit: a log that cannot be written,
    // a server that is shut down. Any other error has undone everything.
    if ends_connection(error) || code.code().starts_with("08") || code.code() == "40003" {
        return Failure::Unknown(text);
    }
    match code.code() {
        "3F000" | "42883" | "42P01" | "42703" => Failure::NotMigrated(format!(
            "the database lacks this server's schema ({text}): run `knee-queue migrate`"
        )),
        "53100" => Failure::Full(text),
        code if is_for_the_administrator(code) => Failure::NotAllowed(text),
        // A read-only server, no resources, a deadlock, a statement that took too long, a server that is shut down.
        code if matches!(&code[..2], "25" | "40" | "53" | "55" | "57" | "58") => {
            Failure::Unavailable(text)
        }
        "22021" | "22P05" => Failure::Invalid(text),
        "2200H" => Failure::Full(text),
        _ => Failure::Broken(text),
    }
}

/// Whether the connection takes no further call.
pub(super) fn ends_connection(error: &Error) -> bool {
    let severity = error.as_db_error().map(DbError::parsed_severity);
    severity.is_none_or(|severity| matches!(severity, Some(Severity::Fatal | Severity::Panic)))
}

/// The server's message, or what happened to the connection.
fn text(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => format!("{} ({})", said.message(), said.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
