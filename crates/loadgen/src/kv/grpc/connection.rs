//! HTTP/2 on one connection, with nothing between a call and its frames.
//!
//! tonic's own channel hands every call to a task that hands it to another one, and the client below
//! it writes a call's head and its message apart, which are two packets, and two times that the
//! server wakes: more than half of the time that a small call costs here.

use std::error::Error as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use h2::{RecvStream, SendStream};
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::{Code, Status};

use super::link::{leaves_open, told, why};
use crate::complaints::SHOWN_BYTES_MAX;
use crate::error::Unusable;

/// What a server may send before it has to wait for this side: a list of a million elements does
/// not.
const WINDOW_BYTES: u32 = 16 << 20;

/// With what TLS answers whatever is not TLS (RFC 8446, section 5.1).
const TLS_ALERT: u8 = 21;

/// A connection that makes calls. Its clones make theirs on the same one.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    streams: SendRequest<Bytes>,
    lost: Arc<AtomicBool>,
    first: First,
}

impl Connection {
    /// Begins to speak on `stream`. A task of the runtime moves the frames, until the connection is
    /// lost or of no more use to anybody.
    pub(crate) async fn on(stream: TcpStream) -> Result<Connection, h2::Error> {
        let first = First::default();
        let stream = Heard { stream, first: first.clone() };
        let (streams, frames) = Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(stream)
            .await?;
        let lost = Arc::<AtomicBool>::default();
        let losing = Arc::clone(&lost);
        tokio::spawn(async move {
            // Whoever waits for an answer is told what ended it.
            let _ = frames.await;
            losing.store(true, Ordering::Relaxed);
        });
        Ok(Connection { streams, lost, first })
    }

    /// Why the first call on it has failed, to what ought to be a `wanted` with this service.
    pub(crate) fn first_failure(
        &self,
        status: &Status,
        call: &str,
        wanted: &'static str,
        service: &str,
    ) -> Unusable {
        if status.source().is_none() {
            return match status.code() {
                Code::Unimplemented => {
                    Unusable::Foreign { wanted, why: format!("it does not know {service}") }
                }
                code if leaves_open(code) => Unusable::Unknown(format!("{call}: {}", told(status))),
                _ => Unusable::Refuses(format!("{call}: {}", told(status))),
            };
        }
        match self.first.get().map(Vec::as_slice) {
            None | Some([]) => Unusable::Mute { wanted },
            Some(said) if is_settings(said) => Unusable::Unconnected(why(status)),
            Some([TLS_ALERT, ..]) => Unusable::Encrypted,
            Some(said) => Unusable::Foreign {
                wanted,
                why: format!("it does not speak HTTP/2 but says {}", said.escape_ascii()),
            },
        }
    }

    /// Whether nothing can be asked for any more: it is lost, or the server has said that it goes
    /// away (RFC 9113, section 6.8), or no number is left for a stream. What was asked for before may
    /// still be answered.
    pub(crate) fn is_lost(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.lost.load(Ordering::Relaxed)
            || matches!(self.streams.poll_ready(&mut context), Poll::Ready(Err(_)))
    }
}

/// What the server said first: HTTP/2 begins with settings (RFC 9113, section 3.4).
type First = Arc<OnceLock<Vec<u8>>>;

/// Whether this begins a frame of settings: of that type, on stream 0 (RFC 9113, sections 4.1 and 6.5).
fn is_settings(said: &[u8]) -> bool {
    const SETTINGS: u8 = 4;
    said.get(3) == Some(&SETTINGS) && said.get(5..9).is_none_or(|stream| stream == [0; 4])
}

/// A stream, and what came first on it.
struct Heard {
    stream: TcpStream,
    first: First,
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.first.get_or_init(|| {
            let read = &buffer.filled()[before..];
            read[..read.len().min(SHOWN_BYTES_MAX)].to_vec()
        });
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Heard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Service<Request<tonic::body::Body>> for Connection {
    type Response = Response<Answer>;
    type Error = Status;
    type Future = BoxFuture<Response<Answer>, Status>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // Of an error here tonic tells no cause, without which it looks like an answer. The call
        // that follows has the same error, and tells it.
        self.streams.poll_ready(context).map(|_| Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let (head, body) = request.into_parts();
        let opened = self.streams.send_request(Request::from_parts(head, ()), false);
        Box::pin(async move {
            let (response, stream) = opened?;
            send(stream, body).await?;
            Ok(response.await?.map(Answer))
        })
    }
}

/// Hands over all of a call's message, so that it goes out together with the head.
async fn send(mut stream: SendStream<Bytes>, body: tonic::body::Body) -> Result<(), Status> {
    let mut body = std::pin::pin!(body);
    let mut message = Bytes::new();
    while let Some(frame) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await
    {
        let Ok(part) = frame?.into_data() else { continue };
        message = if message.is_empty() {
            part
        } else {
            let mut whole = BytesMut::from(message);
            whole.extend_from_slice(&part);
            whole.freeze()
        };
    }
    Ok(stream.send_data(message, true)?)
}

/// The message or messages of an answer, and what ends it.
#[derive(Debug)]
pub(crate) struct Answer(RecvStream);

impl Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(data) = ready!(self.0.poll_data(context)) {
            let data = data.and_then(|data| {
                self.0.flow_control().release_capacity(data.len())?;
                Ok(Frame::data(data))
            });
            return Poll::Ready(Some(data.map_err(Status::from)));
        }
        let trailers = ready!(self.0.poll_trailers(context))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn only_what_is_known_not_to_be_done_is_refused() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let connection = Connection::on(TcpStream::connect(address).await.unwrap()).await.unwrap();
        let told = |code| {
            let status = Status::new(code, "why");
            connection.first_failure(&status, "a registration", "knee-queue", "").of(address)
        };
        for code in [Code::Unavailable, Code::ResourceExhausted, Code::FailedPrecondition] {
            assert_eq!(told(code), format!("{address} refused a registration: {code:?}: why"));
        }
        for code in [Code::Unknown, Code::Cancelled, Code::DeadlineExceeded, Code::Internal] {
            let unknown = format!("{address} did not say whether it did a registration");
            assert_eq!(told(code), format!("{unknown}: {code:?}: why"));
        }
    }
}
