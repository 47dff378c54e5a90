//! Requests as they come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use knee_rpc::kv::Change;
use tokio::time::{Instant, Sleep};
use tonic::Status;
use tonic::codegen::Future;

use super::budget::Share;
use super::fields::Fields;

/// What a field is decoded to, at most, in a vector that has grown to twice of what it holds.
const FIELD_BYTES: usize = 2 * size_of::<Change>();

/// A request as it comes: each part takes its length, and what its fields will be. One of which
/// nothing comes for too long is given up.
#[derive(Debug)]
pub(super) struct Incoming {
    body: tonic::body::Body,
    fields: Fields,
    share: Arc<Share>,
    idle_max: Duration,
    /// Until when something is to come; most requests come at once.
    until: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    pub(super) fn new(body: tonic::body::Body, share: Arc<Share>, idle_max: Duration) -> Incoming {
        Incoming { body, fields: Fields::default(), share, idle_max, until: None }
    }

    fn take(&mut self, part: &[u8]) -> Result<(), Status> {
        if let Some(until) = &mut self.until {
            until.as_mut().reset(Instant::now() + self.idle_max);
        }
        self.share.take(part.len() + self.fields.count(part) * FIELD_BYTES)
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
            Poll::Ready(_) => {}
            Poll::Pending => {
                let idle_max = self.idle_max;
                let until =
                    self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle_max)));
                if until.as_mut().poll(context).is_ready() {
                    let status =
                        Status::aborted("nothing came of the request for too long: call anew");
                    return Poll::Ready(Some(Err(status)));
                }
            }
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
