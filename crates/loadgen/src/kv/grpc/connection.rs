//! HTTP/2 on one connection, with nothing between a call and its frames.
//!
//! tonic's own channel hands every call to a task that hands it to another one, and the client below
//! it writes a call's head and its message apart, which are two packets, and two times that the
//! server wakes: more than half of the time that a small call costs here.

use std::future::{Future as _, poll_fn};
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
use tonic::Status;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};

use super::wanted::{HEAD_BYTES, Wanted, may_be_settings};
use crate::error::Unusable;

/// What a server may send before it has to wait for this side: a list of a million elements does
/// not.
const WINDOW_BYTES: u32 = 16 << 20;

/// What a server of gRPC says of a call, where it says no more than that.
const GRPC_STATUS: &str = "grpc-status";

/// A connection that makes calls. Its clones make theirs on the same one.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    streams: SendRequest<Bytes>,
    lost: Arc<AtomicBool>,
}

impl Connection {
    /// Speaks on `stream` until the server has spoken too: that it is accepted tells nothing of a server, as the kernel
    /// also accepts for one that is being killed. From then on a task of the runtime moves the frames, until the
    /// connection is lost or of no more use to anybody.
    pub(crate) async fn on(stream: TcpStream, wanted: &Wanted) -> Result<Connection, Unusable> {
        let first = First::default();
        let stream = Heard { stream, begun: Some(Vec::new()), first: Arc::clone(&first) };
        let begun = Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(stream)
            .await;
        let (streams, mut frames) = begun.map_err(|error| wanted.ended_after(&[], Err(error)))?;
        let ended = poll_fn(|context| match Pin::new(&mut frames).poll(context) {
            Poll::Pending if first.get().is_none() => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
        });
        let ended = ended.await;
        let said = first.get().map_or(&[][..], Vec::as_slice);
        if let Some(ended) = ended {
            return Err(wanted.ended_after(said, ended));
        }
        wanted.may_say(said)?;
        let lost = Arc::<AtomicBool>::default();
        let losing = Arc::clone(&lost);
        tokio::spawn(async move {
            // Whoever waits for an answer is told what ended it.
            let _ = frames.await;
            losing.store(true, Ordering::Relaxed);
        });
        Ok(Connection { streams, lost })
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

/// What the server said first, once it is enough to tell whether it is HTTP/2.
type First = Arc<OnceLock<Vec<u8>>>;

/// A stream, and what comes first on it.
struct Heard {
    stream: TcpStream,
    /// `None` once that is known.
    begun: Option<Vec<u8>>,
    first: First,
}

impl Heard {
    /// This came.
    fn hears(&mut self, bytes: &[u8]) {
        let Some(begun) = &mut self.begun else { return };
        begun.extend_from_slice(bytes);
        if begun.len() >= HEAD_BYTES || !may_be_settings(begun) {
            let first = self.begun.take().unwrap_or_default();
            // Set once, here.
            let _ = self.first.set(first);
        }
    }
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.hears(&buffer.filled()[before..]);
        Poll::Ready(read)
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
            let response = response.await?;
            let status = response.status();
            if status.is_server_error() && !response.headers().contains_key(GRPC_STATUS) {
                // What is between here and the server says so, and cannot know what the server did. tonic would make some
                // of these `Unavailable`.
                return Err(Status::unknown(format!("HTTP status {status}")));
            }
            Ok(response.map(Answer))
        })
    }
}

/// Hands over all of a call's message, so that it goes out together with the head.
async fn send(mut stream: SendStream<Bytes>, body: tonic::body::Body) -> Result<(), Status> {
    let mut body = std::pin::pin!(body);
    let mut message = Bytes::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
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
