//! Calls whose messages are bounded: by what all of them take, and by the time in which they move.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tonic::codegen::{Future, Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

use super::budget::{Account, CALL_BYTES, Share};
use super::incoming::Incoming;
use super::meter::Meter;
use super::outgoing::Outgoing;

/// What bounds the calls of a service, but for what their connection has left to take.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// How long nothing of a message may move.
    pub(super) idle_max: Duration,
    pub(super) meter: Arc<Meter>,
}

impl Bounds {
    pub(super) fn bound<S>(&self, service: S) -> Bounded<S> {
        Bounded { service, bounds: self.clone() }
    }
}

/// A service each of whose calls has a share of what its connection may take, which its handler finds
/// among the request's extensions.
#[derive(Debug, Clone)]
pub(super) struct Bounded<S> {
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
        let path = request.uri().clone();
        let answer = share.take(CALL_BYTES).map(|()| {
            let idle_max = self.bounds.idle_max;
            let mut request = request.map(|body| Incoming::new(body, Arc::clone(&share), idle_max));
            request.extensions_mut().insert(Arc::clone(&share));
            self.service.call(request)
        });
        Answering { answer, share, path, received, bounds: self.bounds.clone() }
    }
}

/// An answer that is being made, or why there is none.
#[derive(Debug)]
pub(super) struct Answering<F> {
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
        let response = match answer {
            Ok(answer) => match Pin::new(answer).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(response)) => response,
                Poll::Ready(Err(never)) => match never {},
            },
            Err(status) => status.clone().into_http(),
        };
        // Its handler has not heard of it: there was no room for it, it was too large or no message, or
        // did not come.
        if !share.is_metered() {
            let status = Status::from_header_map(response.headers());
            let code = status.map_or(Code::Unknown, |status| status.code());
            bounds.meter.unmade(path.path(), *received, code);
        }
        let outgoing = |body| Outgoing::new(body, Arc::clone(share), bounds.idle_max);
        Poll::Ready(Ok(response.map(outgoing)))
    }
}
