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
        "42704" => "the server lacks a setting; use PostgreSQL 13 or later",
        "53300" => "the server has too many connections",
        "57P03" => "the server is starting or stopping",
        code if code.starts_with("28") => "the server does not admit the user",
        _ => "the server refuses the connection; its log has the reason",
    };
    let text = format!("cannot connect to the database: {why} ({})", code.code());
    if is_for_the_administrator(code.code()) {
        Failure::NotAllowed(text)
    } else {
        Failure::Unavailable(text)
    }
}

/// The reason why a TLS handshake failed, without the names in the certificate.
fn handshake(error: &Error) -> Option<String> {
    let io = error.source()?.downcast_ref::<io::Error>()?;
    let error = io.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the server's certificate names another host than the address".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "sslrootcert has no issuer of the server's certificate".to_owned()
        }
        error => format!("TLS failed: {error}"),
    })
}

/// Whether only an administrator can help: the user lacks access or rights, or the database is missing.
fn is_for_the_administrator(code: &str) -> bool {
    code.starts_with("28") || matches!(code, "3D000" | "42501")
}

/// The failure of a statement before any call: nothing was done.
pub(super) fn opening(error: &Error) -> Failure {
    done_nothing(calling(error))
}

/// The failure of a call that changes nothing: if the answer is lost, nothing was done.
pub(super) fn done_nothing(failure: Failure) -> Failure {
    match failure {
        Failure::Unknown(text) => Failure::Unavailable(text),
        other => other,
    }
}

pub(super) fn calling(error: &Error) -> Failure {
    let text = text(error);
    let Some(code) = error.code() else {
        // The answer was lost, or could not be read.
        return Failure::Unknown(format!("the connection to the database was lost: {text}"));
    };
    // An error that ends the session, or comes from a proxy, may follow the commit. Examples are a log that cannot be
    // written, and a shutdown. After any other error, PostgreSQL has undone the call.
    if ends_connection(error) || code.code().starts_with("08") || code.code() == "40003" {
        return Failure::Unknown(text);
    }
    match code.code() {
        "3F000" | "42883" | "42P01" | "42703" => Failure::NotMigrated(format!(
            "the database lacks this server's schema ({text}): run `knee-queue migrate`"
        )),
        "53100" => Failure::Full(text),
        code if is_for_the_administrator(code) => Failure::NotAllowed(text),
        // Among others: a read-only server, lack of resources, a deadlock, a statement that took too long, a shutdown.
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
