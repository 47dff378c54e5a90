//! HTTP/2 on one connection, with nothing between a call and its frames.
//!
//! tonic's own channel hands every call to a task that hands it to another one, and the client below
//! it writes a call's head and its message apart, which are two packets, and two times that the
//! server wakes: more than half of the time that a small call costs here.

use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
        let stream = Heard { stream, first: Some(first.clone()) };
        let begun = Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(stream)
            .await;
        let (streams, mut frames) = begun.map_err(|error| wanted.ended_after(&[], Err(error)))?;
        let ended = poll_fn(|context| match Pin::new(&mut frames).poll(context) {
            Poll::Pending if !first.is_enough() => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
        });
        let ended = ended.await;
        let said = first.said().clone();
        if let Some(ended) = ended {
            return Err(wanted.ended_after(&said, ended));
        }
        wanted.may_say(&said)?;
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

/// What the server said first, as far as it tells whether that is HTTP/2.
#[derive(Debug, Clone, Default)]
struct First(Arc<Mutex<Vec<u8>>>);

impl First {
    fn said(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it tells.
    fn is_enough(&self) -> bool {
        let said = self.said();
        said.len() >= HEAD_BYTES || !may_be_settings(&said)
    }
}

/// A stream, and what comes first on it.
struct Heard {
    stream: TcpStream,
    /// `None` once that is enough.
    first: Option<First>,
}

impl Heard {
    /// This came.
    fn hears(&mut self, bytes: &[u8]) {
        let Some(first) = &self.first else { return };
        first.said().extend_from_slice(bytes);
        if first.is_enough() {
            self.first = None;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener};
    use std::thread;

    use super::*;

    const QUEUE: Wanted = Wanted { server: "knee-queue", service: "knee.queue.v1" };

    /// How a server goes on once it has said what it says.
    #[derive(Debug, Clone, Copy)]
    enum Then {
        Stays,
        Closes,
        Resets,
    }

    /// What is told of a server that says this, and no more.
    async fn told(says: &'static [u8], then: Then) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            // A client that is still writing when it is reset may not read any more. This is the last that it writes.
            let last = (WINDOW_BYTES - 65_535).to_be_bytes();
            let mut heard = Vec::new();
            while !heard.ends_with(&last) {
                let mut bytes = [0; 64];
                let read = client.read(&mut bytes).unwrap();
                assert_ne!(read, 0, "{heard:?}");
                heard.extend_from_slice(&bytes[..read]);
            }
            client.write_all(says).unwrap();
            match then {
                Then::Stays => {}
                Then::Closes => client.shutdown(Shutdown::Write).unwrap(),
                Then::Resets => {
                    let client = tokio::net::TcpSocket::from_std_stream(client);
                    return client.set_zero_linger().unwrap();
                }
            }
            // Until the client has gone, which may reset what it did not read.
            let _ = client.read_to_end(&mut heard);
        });
        let stream = TcpStream::connect(address).await.unwrap();
        let told = Connection::on(stream, &QUEUE).await.unwrap_err().of(address);
        server.join().unwrap();
        told.replace(&address.to_string(), "it")
    }

    #[tokio::test]
    async fn what_says_less_than_the_head_of_a_frame_is_told_of_as_what_it_is() {
        let foreign =
            |says| format!("it is no knee-queue: it does not speak HTTP/2 but says {says}");
        let encrypted = "it speaks TLS, which knee-load does not";
        for then in [Then::Stays, Then::Closes, Then::Resets] {
            assert_eq!(told(b"OK\n", then).await, foreign("OK\\n"), "{then:?}");
            assert_eq!(told(b"NO", then).await, foreign("NO"), "{then:?}");
            assert_eq!(told(b"\x15\x03\x03", then).await, encrypted, "{then:?}");
            assert_eq!(told(b"\x15\x03\x03\0\x02\x02\x0a", then).await, encrypted, "{then:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_cut_off_in_its_first_frame_was_not_without_a_word() {
        assert_eq!(told(b"\0\0", Then::Resets).await, "no connection to it: connection reset");
    }
}
