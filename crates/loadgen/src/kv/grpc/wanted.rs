//! The server that is looked for at an address, and what may be there instead.

use std::io::ErrorKind;

use tonic::{Code, Status};

use super::link::{is_lost, leaves_open, told, why};
use crate::complaints::SHOWN_BYTES_MAX;
use crate::error::Unusable;

/// The head of a frame (RFC 9113, section 4.1).
pub(super) const HEAD_BYTES: usize = 9;

/// With what TLS answers whatever is not TLS (RFC 8446, section 5.1).
const TLS_ALERT: u8 = 21;

/// What is looked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The name of the server.
    pub(crate) server: &'static str,
    pub(crate) service: &'static str,
}

impl Wanted {
    /// Whether a server may begin with this. HTTP/2 begins with settings (RFC 9113, section 3.4).
    pub(super) fn may_say(&self, said: &[u8]) -> Result<(), Unusable> {
        match said {
            said if may_be_settings(said) => Ok(()),
            [TLS_ALERT, ..] => Err(Unusable::Encrypted),
            said => {
                let shown = said[..said.len().min(SHOWN_BYTES_MAX)].escape_ascii();
                let why = format!("it does not speak HTTP/2 but says {shown}");
                Err(Unusable::Foreign { wanted: self.server, why })
            }
        }
    }

    /// Why a connection is of no use that `ended` so after the server has said this.
    pub(super) fn ended_after(&self, said: &[u8], ended: Result<(), h2::Error>) -> Unusable {
        if let Err(instead) = self.may_say(said) {
            return instead;
        }
        match ended {
            Ok(()) if !said.is_empty() => Unusable::Unconnected("the server closed it".into()),
            Err(error) if !said.is_empty() || !is_closed(&error) => {
                Unusable::Unconnected(why(&error))
            }
            _ => Unusable::Mute { wanted: self.server },
        }
    }

    /// Why the first call of a connection has failed.
    pub(crate) fn first_failure(&self, status: &Status, call: &str) -> Unusable {
        if is_lost(status) {
            return Unusable::Unconnected(why(status));
        }
        match status.code() {
            Code::Unimplemented => Unusable::Foreign {
                wanted: self.server,
                why: format!("it does not know {}", self.service),
            },
            _ if leaves_open(status) => Unusable::Unknown(format!("{call}: {}", told(status))),
            _ => Unusable::Refuses(format!("{call}: {}", told(status))),
        }
    }
}

/// Whether this is, or begins, the head of a frame of settings: of that type, on stream 0 (RFC 9113, section 6.5), and
/// no longer than a client takes that has not said otherwise (section 4.2).
pub(super) fn may_be_settings(said: &[u8]) -> bool {
    const SETTINGS: u8 = 4;
    const LENGTH_MAX: [u8; 3] = [0, 0x40, 0];
    // What begins the longest is less than it.
    said[..said.len().min(LENGTH_MAX.len())] <= LENGTH_MAX[..]
        && said.get(3).is_none_or(|kind| *kind == SETTINGS)
        && said.get(5..HEAD_BYTES).is_none_or(|stream| stream == [0; 4])
}

/// Whether the server has ended it, and not the way to it.
fn is_closed(error: &h2::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let closed = [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof];
    error.get_io().is_some_and(|error| closed.contains(&error.kind()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::*;

    const QUEUE: Wanted = Wanted { server: "knee-queue", service: "knee.queue.v1" };

    #[test]
    fn only_what_is_known_not_to_be_done_is_refused() {
        let told = |code| {
            let failure = QUEUE.first_failure(&Status::new(code, "why"), "a registration");
            failure.of(([127, 0, 0, 1], 7).into())
        };
        for code in [Code::Unavailable, Code::ResourceExhausted, Code::FailedPrecondition] {
            assert_eq!(told(code), format!("127.0.0.1:7 refused a registration: {code:?}: why"));
        }
        for code in [Code::Unknown, Code::Cancelled, Code::DeadlineExceeded, Code::Internal] {
            let unknown = "127.0.0.1:7 did not say whether it did a registration";
            assert_eq!(told(code), format!("{unknown}: {code:?}: why"));
        }
    }

    #[test]
    fn a_frame_of_settings_may_come_in_parts() {
        let settings = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64";
        for bytes in 0..settings.len() {
            assert!(may_be_settings(&settings[..bytes]), "{bytes}");
        }
        for longest in [&b"\0\x40"[..], b"\0\x40\0", b"\0\x40\0\x04", b"\0\x3f\xff"] {
            assert!(may_be_settings(longest), "{longest:?}");
        }
        for longer in [&b"\x01"[..], b"\0\x41", b"\0\x40\x01", b"\0\x40\x01\x04"] {
            assert!(!may_be_settings(longer), "{longer:?}");
        }
        for other in [&b"HTTP"[..], b"\x15\x03\x03\0", b"\0\0\0\0", b"\0\0\0\x04\0\0\0\0\x01"] {
            assert!(!may_be_settings(other), "{other:?}");
        }
    }

    /// A stream that fails so.
    struct Failing(ErrorKind);

    impl AsyncRead for Failing {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Err(self.0.into()))
        }
    }

    impl AsyncWrite for Failing {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(self.0.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(self.0.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(self.0.into()))
        }
    }

    async fn error(kind: ErrorKind) -> h2::Error {
        h2::client::handshake(Failing(kind)).await.err().unwrap()
    }

    #[tokio::test]
    async fn who_ends_a_connection_without_a_word_is_told_apart_from_what_is_on_the_way() {
        const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
        let told =
            |said, ended| QUEUE.ended_after(said, ended).again_of(([127, 0, 0, 1], 7).into());
        let mute =
            "127.0.0.1:7 closed the connection without a word: it ends, or takes no more clients";
        for kind in [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof] {
            assert_eq!(told(b"", Err(error(kind).await)), mute);
        }
        assert_eq!(told(b"", Ok(())), mute);
        let unconnected = "no connection to 127.0.0.1:7: ";
        let timed_out = error(ErrorKind::TimedOut).await;
        assert_eq!(told(b"", Err(timed_out)), format!("{unconnected}timed out"));
        assert_eq!(told(SETTINGS, Ok(())), format!("{unconnected}the server closed it"));
        let reset = error(ErrorKind::ConnectionReset).await;
        assert_eq!(told(SETTINGS, Err(reset)), format!("{unconnected}connection reset"));
        let reset = error(ErrorKind::ConnectionReset).await;
        let foreign = "127.0.0.1:7 is no knee-queue: it does not speak HTTP/2 but says ERROR\\r\\n";
        assert_eq!(told(b"ERROR\r\n", Err(reset)), foreign);
    }
}
