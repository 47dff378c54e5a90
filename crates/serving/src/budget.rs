//! What the messages of all calls take together: each has a share from its first byte on until the
//! last one of its answer has left, and is refused where there is no room for it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;
use tonic::codegen::{Future, Service, http};
use tonic::server::NamedService;

use crate::connections::{Activity, Working};

/// What a call takes beside its messages: what they are read into and written from. A small answer
/// is part of it.
pub const CALL_BYTES: usize = 16 << 10;

/// What may be taken.
#[derive(Debug)]
pub struct Budget {
    taken: AtomicUsize,
    bytes_max: usize,
    /// The flag that says how much.
    flag: &'static str,
}

/// What a call has taken; it is given back when nothing holds it any more.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
}

impl Budget {
    /// So many bytes; `flag` is what a person is told to change that with.
    pub fn new(bytes_max: usize, flag: &'static str) -> Arc<Budget> {
        Arc::new(Budget { taken: AtomicUsize::new(0), bytes_max, flag })
    }

    /// A service each of whose calls has a share.
    pub fn bound<S>(self: &Arc<Budget>, service: S) -> Bounded<S> {
        Bounded { service, budget: Arc::clone(self) }
    }
}

impl Share {
    /// Takes more.
    ///
    /// # Errors
    /// Where there is no room for it.
    pub fn take(&self, bytes: usize) -> Result<(), Status> {
        let Budget { taken, bytes_max, flag } = &*self.budget;
        let sum = |taken: usize| taken.checked_add(bytes).filter(|sum| sum <= bytes_max);
        let room = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        room.map_err(|_| {
            Status::resource_exhausted(format!(
                "the messages of all calls take {bytes_max} bytes, and no more are taken or sent: \
                 come again later, or see {flag}"
            ))
        })?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes more whether there is room or not: for the answer to what was done already. Further calls
    /// are refused meanwhile.
    pub fn overdraw(&self, bytes: usize) {
        self.budget.taken.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many of its bytes as a share of their own, or what there is beside that of every call.
    fn split(&self, bytes: usize) -> Share {
        let split = |all: usize| bytes.min(all.saturating_sub(CALL_BYTES));
        let left = |all: usize| Some(all - split(all));
        let (Ok(all) | Err(all)) =
            self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        Share { budget: Arc::clone(&self.budget), bytes: AtomicUsize::new(split(all)) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// A service each of whose calls has a share of a budget, which its handler finds among the
/// request's extensions.
#[derive(Debug, Clone)]
pub struct Bounded<S> {
    service: S,
    budget: Arc<Budget>,
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

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let share = Share { budget: Arc::clone(&self.budget), bytes: AtomicUsize::new(0) };
        let taken = share.take(CALL_BYTES);
        let share = Arc::new(share);
        let activity = request.extensions().get::<Activity>().cloned();
        let working = activity.as_ref().map(Activity::begins);
        let answer = taken.map(|()| {
            let mut request = request.map(|body| Incoming { body, share: Arc::clone(&share) });
            request.extensions_mut().insert(Arc::clone(&share));
            self.service.call(request)
        });
        Answering { answer, share, activity, _working: working }
    }
}

/// An answer that is being made, or why there is none.
#[derive(Debug)]
pub struct Answering<F> {
    answer: Result<F, Status>,
    share: Arc<Share>,
    /// That of its connection.
    activity: Option<Activity>,
    _working: Option<Working>,
}

impl<F> Future for Answering<F>
where
    F: Future<Output = Result<http::Response<tonic::body::Body>, Infallible>> + Unpin,
{
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Answering { answer, share, activity, .. } = &mut *self;
        let response = match answer {
            Ok(answer) => match Pin::new(answer).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(response)) => response,
                Poll::Ready(Err(never)) => match never {},
            },
            Err(status) => status.clone().into_http(),
        };
        let (share, activity) = (Arc::clone(share), activity.take());
        Poll::Ready(Ok(response.map(|body| Outgoing { body, share, activity })))
    }
}

/// A request as it comes: each part takes its length.
#[derive(Debug)]
pub struct Incoming {
    body: tonic::body::Body,
    share: Arc<Share>,
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &next
            && let Some(part) = frame.data_ref()
            && let Err(status) = self.share.take(part.len())
        {
            return Poll::Ready(Some(Err(status)));
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer as it leaves.
#[derive(Debug)]
pub struct Outgoing {
    body: tonic::body::Body,
    share: Arc<Share>,
    activity: Option<Activity>,
}

/// Part of an answer that waits until its reader has room for it. What it takes is given back with it: the
/// call may go on for long, or have ended.
#[derive(Debug)]
struct Waiting {
    part: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Outgoing { body, share, activity } = &mut *self;
        if let Some(activity) = activity {
            activity.happens();
        }
        let next = Pin::new(body).poll_frame(context);
        next.map_ok(|frame| {
            frame.map_data(|part| match part.len() {
                0..CALL_BYTES => part,
                length => {
                    let _share = share.split(length);
                    Bytes::from_owner(Waiting { part, _share })
                }
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
