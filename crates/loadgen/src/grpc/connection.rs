//! HTTP/2 on one connection, directly on h2.
//!
//! tonic's own channel passes each call through two tasks. The client below it sends a call's head and message in two
//! packets, for which the server wakes twice. This costs more than half of a small call's time.

use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use h2::{Ping, RecvStream, SendStream};
use http_body::{Body, Frame};
use tokio::net::TcpStream;
use tonic::Status;
use tonic::codegen::http::uri::InvalidUri;
use tonic::codegen::http::{Request, Response, Uri};
use tonic::codegen::{self, BoxFuture};

use super::status::{Service, why};
use crate::error::Unusable;

/// The length of the longest answer: a list of some ten million elements.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The bytes that a server may send before this side reads them: more than a list of a million elements.
const WINDOW_BYTES: u32 = 16 << 20;

const CLOSED: &str = "the server closed the connection";

/// The header in which a gRPC server sends the status of an error.
const GRPC_STATUS: &str = "grpc-status";

/// A connection that makes calls. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    streams: SendRequest<Bytes>,
    lost: Arc<AtomicBool>,
}

impl Connection {
    /// Connects, and waits until the server has answered a ping. The kernel still accepts connections for a process
    /// that is being killed. Also returns the origin for calls. A task of the runtime moves frames until the connection
    /// is lost or no clone of it is left.
    ///
    /// # Errors
    /// When no server that speaks HTTP/2 answers.
    pub(crate) async fn open(
        address: SocketAddr,
        service: &Service,
    ) -> Result<(Connection, Uri), Unusable> {
        let unconnected = |error: &dyn Error| Unusable::Unconnected(why(error));
        let origin: Uri =
            format!("http://{address}").parse().map_err(|error: InvalidUri| unconnected(&error))?;
        let stream = TcpStream::connect(address).await.map_err(|error| unconnected(&error))?;
        stream.set_nodelay(true).map_err(|error| unconnected(&error))?;
        Ok((Connection::on(stream, service).await?, origin))
    }

    async fn on(stream: TcpStream, service: &Service) -> Result<Connection, Unusable> {
        let no_http2 = |why| Unusable::NoHttp2 { wanted: service.program, why };
        let begun = Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(stream)
            .await;
        let (streams, mut frames) = begun.map_err(|error| no_http2(why(&error)))?;
        let Some(mut pings) = frames.ping_pong() else { unreachable!("it is taken once") };
        tokio::select! {
            biased;
            ended = &mut frames => {
                let why = ended.map_or_else(|error| why(&error), |()| CLOSED.to_owned());
                return Err(no_http2(why));
            }
            pong = pings.ping(Ping::opaque()) => pong.map_err(|error| no_http2(why(&error)))?,
        };
        let lost = Arc::<AtomicBool>::default();
        let losing = Arc::clone(&lost);
        tokio::spawn(async move {
            // Waiting calls get the error.
            let _ = frames.await;
            losing.store(true, Ordering::Relaxed);
        });
        Ok(Connection { streams, lost })
    }

    /// Whether the connection takes no more calls: the connection is lost, the server is shutting down (GOAWAY; RFC
    /// 9113, section 6.8), or all stream numbers are used up. Earlier calls may still be answered.
    pub(crate) fn is_lost(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.lost.load(Ordering::Relaxed)
            || matches!(self.streams.poll_ready(&mut context), Poll::Ready(Err(_)))
    }
}

impl codegen::Service<Request<tonic::body::Body>> for Connection {
    type Response = Response<Answer>;
    type Error = Status;
    type Future = BoxFuture<Response<Answer>, Status>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // tonic would drop the cause of an error here, and the error would look like an answer. The following call
        // fails with the same error, and keeps the cause.
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
                // This status comes from a proxy. The proxy cannot know whether the server did the call. tonic would
                // map some of these codes to `Unavailable`.
                return Err(Status::unknown(format!("HTTP status {status}")));
            }
            Ok(response.map(Answer))
        })
    }
}

/// Sends a call's whole message at once, so that it leaves together with the head.
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
