//! Services with bounded memory for messages.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tonic::codegen::{Future, Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

use crate::budget::{CALL_BYTES, ConnectionMemory, Share};
use crate::messages::{Incoming, Outgoing};

/// Records calls that ended before they reached a handler.
pub trait Unserved: fmt::Debug + Send + Sync {
    /// A call of this path ended with this code before it reached a handler. There was no memory for the call, or its
    /// request was too large, broken or incomplete.
    fn unserved(self: Arc<Self>, path: &str, received: Instant, code: Code);
}

/// A service on [`connections`](crate::connections) whose calls each have a [`Share`] of the budget. The handler finds
/// the share in the request's extensions.
#[derive(Debug, Clone)]
pub struct Bounded<S> {
    service: S,
    meter: Arc<dyn Unserved>,
}

impl<S> Bounded<S> {
    /// Bounds a service. `meter` records its unserved calls.
    pub fn new(service: S, meter: Arc<dyn Unserved>) -> Bounded<S> {
        Bounded { service, meter }
    }
}

impl<S: NamedService> NamedService for Bounded<S> {
    const NAME: &'static str = S::NAME;
}

type Response = http::Response<Outgoing>;

impl<S> Service<http::Request<tonic::body::Body>> for Bounded<S>
where
    S: Service<
            http::Request<Incoming>,
            Response = http::Response<tonic::body::Body>,
            Error = Infallible,
        >,
    S::Future: Unpin,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<tonic::body::Body>) -> Self::Future {
        let received = Instant::now();
        let connection: Arc<ConnectionMemory> =
            request.extensions_mut().remove().expect("a call has a connection");
        let share = Arc::new(connection.share());
        let path = request.uri().clone();
        let answer = share.take(CALL_BYTES).map(|()| {
            let mut request = request.map(|body| Incoming::new(body, Arc::clone(&share)));
            request.extensions_mut().insert(Arc::clone(&share));
            self.service.call(request)
        });
        Answering { answer, share, path, received, meter: Arc::clone(&self.meter) }
    }
}

/// The future of an answer, or of the error if there is no memory for the call.
#[derive(Debug)]
pub struct Answering<F> {
    answer: Result<F, Status>,
    share: Arc<Share>,
    path: http::Uri,
    received: Instant,
    meter: Arc<dyn Unserved>,
}

impl<F> Future for Answering<F>
where
    F: Future<Output = Result<http::Response<tonic::body::Body>, Infallible>> + Unpin,
{
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Answering { answer, share, path, received, meter } = &mut *self;
        let mut response = match answer {
            Ok(answer) => match Pin::new(answer).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(response)) => response,
                Poll::Ready(Err(never)) => match never {},
            },
            Err(status) => status.clone().into_http(),
        };
        share.set_working(false);
        if !share.is_metered() {
            let mut status = Status::from_header_map(response.headers());
            // tonic answers INTERNAL to a request that it cannot decode. To clients, INTERNAL means that the call may
            // have been executed, so the answer becomes INVALID_ARGUMENT.
            if let Some(internal) = status.as_ref().filter(|one| one.code() == Code::Internal) {
                let why = format!("the request cannot be read: {}", internal.message());
                response = status.insert(Status::invalid_argument(why)).clone().into_http();
            }
            let code = status.map_or(Code::Unknown, |status| status.code());
            Arc::clone(meter).unserved(path.path(), *received, code);
        }
        Poll::Ready(Ok(response.map(|body| Outgoing::new(body, Arc::clone(share)))))
    }
}

impl<F> Drop for Answering<F> {
    fn drop(&mut self) {
        self.share.set_working(false);
    }
}
