//! Requests as they come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::codegen::Future;

use crate::bounded::Bounds;
use crate::budget::Share;
use crate::fields::Fields;

/// A request as it comes: each part takes its length, and what its fields will be. One of which
/// nothing comes for too long is given up.
#[derive(Debug)]
pub struct Incoming {
    body: tonic::body::Body,
    fields: Fields,
    /// What each of them is decoded to, at most.
    field_bytes: usize,
    share: Arc<Share>,
    idle_max: Option<Duration>,
    /// When to look whether anything came; most requests come at once.
    watch: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    pub(crate) fn new(body: tonic::body::Body, share: Arc<Share>, bounds: &Bounds) -> Incoming {
        let &Bounds { idle_max, field_bytes, .. } = bounds;
        Incoming { body, fields: Fields::default(), field_bytes, share, idle_max, watch: None }
    }

    fn take(&mut self, part: &[u8]) -> Result<(), Status> {
        self.share.moves();
        self.share.take(part.len() + self.fields.count(part) * self.field_bytes)
    }

    /// Whether nothing came for too long.
    fn is_given_up(&mut self, context: &mut Context<'_>) -> bool {
        let Some(idle_max) = self.idle_max else { return false };
        let share = &self.share;
        let watch = self.watch.get_or_insert_with(|| Box::pin(sleep_until(share.until(idle_max))));
        while watch.as_mut().poll(context).is_ready() {
            let until = share.until(idle_max);
            if until <= Instant::now() {
                return true;
            }
            watch.as_mut().reset(until);
        }
        false
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = Pin::new(&mut self.body).poll_frame(context);
        match &next {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(part) = frame.data_ref()
                    && let Err(status) = self.take(part)
                {
                    return Poll::Ready(Some(Err(status)));
                }
            }
            Poll::Pending if self.is_given_up(context) => {
                let status = Status::aborted(
                    "nothing came of the request for too long: nothing was done; call anew",
                );
                return Poll::Ready(Some(Err(status)));
            }
            Poll::Ready(_) | Poll::Pending => {}
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
