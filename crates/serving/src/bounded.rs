//! Calls whose messages are bounded: by what all of them take, and by the time in which they move.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tonic::codegen::{Future, Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

use crate::budget::{Account, CALL_BYTES, Share};
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;

/// Is told of calls that no handler heard of.
pub trait Unserved: fmt::Debug + Send + Sync {
    /// There was no room for a call of this path, or its request was too large or no message, or did
    /// not come; it ended with this code. Nothing was done.
    fn unserved(self: Arc<Self>, path: &str, received: Instant, code: Code);
}

/// What bounds the calls of a service, but for what their connection has left to take.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// How long nothing of a message may move, and several times as long where anything else does on its
    /// connection; without it, as long as its client is there.
    pub idle_max: Option<Duration>,
    /// What a field of a request is decoded to, at most.
    pub field_bytes: usize,
    /// Who tells of calls.
    pub meter: Arc<dyn Unserved>,
}

impl Bounds {
    /// A service with these, behind [`connections`](crate::connections).
    pub fn bound<S>(&self, service: S) -> Bounded<S> {
        Bounded { service, bounds: self.clone() }
    }
}

/// A service each of whose calls has a share of what its connection may take, which its handler finds
/// among the request's extensions.
#[derive(Debug, Clone)]
pub struct Bounded<S> {
    service: S,
    bounds: Bounds,
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
        let account: Arc<Account> =
            request.extensions_mut().remove().expect("a call has a connection");
        let share = Arc::new(account.share());
        share.account().activity.call_begins();
        let path = request.uri().clone();
        let answer = share.take(CALL_BYTES).map(|()| {
            let mut request =
                request.map(|body| Incoming::new(body, Arc::clone(&share), &self.bounds));
            request.extensions_mut().insert(Arc::clone(&share));
            self.service.call(request)
        });
        Answering { answer, share, path, received, bounds: self.bounds.clone() }
    }
}

/// An answer that is being made, or why there is none.
#[derive(Debug)]
pub struct Answering<F> {
    answer: Result<F, Status>,
    share: Arc<Share>,
    path: http::Uri,
    received: Instant,
    bounds: Bounds,
}

impl<F> Future for Answering<F>
where
    F: Future<Output = Result<http::Response<tonic::body::Body>, Infallible>> + Unpin,
{
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Answering { answer, share, path, received, bounds } = &mut *self;
        let mut response = match answer {
            Ok(answer) => match Pin::new(answer).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(response)) => response,
                Poll::Ready(Err(never)) => match never {},
            },
            Err(status) => status.clone().into_http(),
        };
        if !share.is_metered() {
            let mut status = Status::from_header_map(response.headers());
            // No handler has it, so that it is the request that cannot be read. tonic calls that INTERNAL, which
            // is for what may have been done.
            if let Some(internal) = status.as_ref().filter(|one| one.code() == Code::Internal) {
                let why = format!("the request cannot be read: {}", internal.message());
                response = status.insert(Status::invalid_argument(why)).clone().into_http();
            }
            let code = status.map_or(Code::Unknown, |status| status.code());
            Arc::clone(&bounds.meter).unserved(path.path(), *received, code);
        }
        let outgoing = |body| Outgoing::new(body, Arc::clone(share), bounds.idle_max);
        Poll::Ready(Ok(response.map(outgoing)))
    }
}

impl<F> Drop for Answering<F> {
    fn drop(&mut self) {
        self.share.account().activity.call_ends();
    }
}
