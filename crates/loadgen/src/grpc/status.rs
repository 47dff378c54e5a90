//! The meaning of a failed call.

use std::error::Error;

use h2::Reason;
use tonic::{Code, Status};

use crate::error::Unusable;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Service {
    pub(crate) program: &'static str,
    pub(crate) name: &'static str,
}

impl Service {
    pub(crate) fn first_failure(&self, status: Status, call: &str) -> Unusable {
        if status.code() == Code::Unimplemented {
            return Unusable::Foreign { wanted: self.program, service: self.name };
        }
        match Failure::from(status) {
            Failure::Lost(why) => Unusable::NoHttp2 { wanted: self.program, why },
            Failure::Refused { said, .. } => Unusable::Refuses(format!("{call}: {said}")),
            Failure::Unknown { said, .. } => Unusable::Unknown(format!("{call}: {said}")),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// The server refused the call, and has not executed it.
    Refused { code: Code, said: String },
    /// The server may or may not have executed the call.
    Unknown { code: Code, said: String },
    /// The connection was lost. The server may or may not have executed the call.
    Lost(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        if is_lost(&status) {
            return Failure::Lost(why(&status));
        }
        let code = status.code();
        let said = match status.message() {
            "" => format!("{code:?}"),
            message => format!("{code:?}: {message}"),
        };
        if leaves_open(&status) {
            Failure::Unknown { code, said }
        } else {
            Failure::Refused { code, said }
        }
    }
}

impl Failure {
    /// The predicate of a message whose subject is the server.
    pub(crate) fn of(&self, call: &str) -> String {
        match self {
            Failure::Refused { said, .. } => format!("refused a {call}: {said}"),
            Failure::Unknown { said, .. } => format!("did not say whether it did a {call}: {said}"),
            Failure::Lost(why) => format!("did not answer a {call}: {why}"),
        }
    }

    /// The same without the server's own text, which may differ each time.
    pub(crate) fn kind(&self, call: &str) -> String {
        match self {
            Failure::Refused { code, .. } => format!("refused a {call}: {code:?}"),
            Failure::Unknown { code, .. } => {
                format!("did not say whether it did a {call}: {code:?}")
            }
            Failure::Lost(_) => format!("did not answer a {call}"),
        }
    }
}

/// Whether a call failed because its connection was lost. A status from the server has no source here, unless the
/// server reset the call's stream.
fn is_lost(status: &Status) -> bool {
    status.source().is_some() && reset(status).is_none()
}

/// Whether the server may have executed the call. Knee's servers answer `Unavailable` only before they execute a call.
/// If a proxy answers 5xx instead, [`Connection`](super::connection::Connection) turns that into `Unknown`.
fn leaves_open(status: &Status) -> bool {
    match reset(status) {
        // A refused stream was not processed (RFC 9113, section 8.7).
        Some(reason) => reason != Reason::REFUSED_STREAM,
        None => matches!(
            status.code(),
            Code::Unknown | Code::Cancelled | Code::DeadlineExceeded | Code::Internal
        ),
    }
}

/// Why a call's stream was reset, if it was.
fn reset(status: &Status) -> Option<Reason> {
    let error = status.source()?.downcast_ref::<h2::Error>()?;
    error.reason().filter(|_| error.is_reset())
}

/// The innermost cause of an error.
pub(super) fn why(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_before_execution_is_a_refusal() {
        const QUEUE: Service = Service { program: "knee-queue", name: "knee.queue.v1" };
        let server = ([127, 0, 0, 1], 7).into();
        let of = |code| QUEUE.first_failure(Status::new(code, "why"), "a registration").of(server);
        for code in [Code::Unavailable, Code::ResourceExhausted, Code::FailedPrecondition] {
            assert_eq!(of(code), format!("127.0.0.1:7 refused a registration: {code:?}: why"));
        }
        for code in [Code::Unknown, Code::Cancelled, Code::DeadlineExceeded, Code::Internal] {
            let unknown = "127.0.0.1:7 did not say whether it did a registration";
            assert_eq!(of(code), format!("{unknown}: {code:?}: why"));
        }
    }
}
