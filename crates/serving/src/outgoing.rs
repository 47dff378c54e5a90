//! Answers as they leave.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;
use tonic::codegen::http;

use crate::budget::{CALL_BYTES, Share};
use crate::lease::Lease;
use crate::progress::Progress;

/// What stays of an answer that was given up, until its reader goes or takes it: a part that waits for
/// room at the reader's, and one in front of it.
const GIVEN_UP_BYTES: usize = 2 * CALL_BYTES;

/// An answer as it leaves: a large one in parts, each when its reader has taken most of the one
/// before. When its connection takes none of any answer for too long, the rest goes: nothing else could
/// end it, for what is not read is not asked for either. As long as others move, this one may wait its turn.
#[derive(Debug)]
pub struct Outgoing {
    answer: Answer,
    share: Arc<Share>,
    idle_max: Option<Duration>,
}

#[derive(Debug)]
enum Answer {
    /// So far all of it was small.
    Small(tonic::body::Body),
    Large(Lease<Large>),
    GivenUp,
}

/// A large answer, and what of it leaves.
#[derive(Debug)]
struct Large {
    body: tonic::body::Body,
    leaving: Leaving,
    /// Whether its reader waits for it, instead of the other way round.
    is_awaited: bool,
    /// That of its connection, since this one last stood still for too long.
    progress: Progress,
    share: Arc<Share>,
}

/// A message, or several, and what they take: given back with their last part, for the call may go on
/// for long, or have ended.
#[derive(Debug)]
struct Leaving {
    data: Bytes,
    share: Arc<Share>,
}

impl Leaving {
    fn of(call: &Share, data: Bytes) -> Leaving {
        let share = Arc::new(call.split(data.len()));
        Leaving { data, share }
    }

    /// The next part; copied, for a slice would hold all of it for as long as it is not taken.
    fn part(&mut self) -> Frame<Bytes> {
        let part = self.data.split_to(self.data.len().min(CALL_BYTES)).to_vec();
        self.share.count_part();
        Frame::data(Bytes::from_owner(Waiting { part, _share: Arc::clone(&self.share) }))
    }
}

impl Large {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.is_awaited = false;
        if self.leaving.data.is_empty() {
            let next = Pin::new(&mut self.body).poll_frame(context);
            self.is_awaited = next.is_pending();
            match next {
                Poll::Ready(Some(Ok(frame))) if is_large(&frame) => match frame.into_data() {
                    Ok(data) => self.leaving = Leaving::of(&self.share, data),
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                next => return next,
            }
        }
        Poll::Ready(Some(Ok(self.leaving.part())))
    }

    /// Gives it up, unless it is what is waited for, or others of its connection go on.
    fn give_up(&mut self) -> bool {
        let is_stalled = !self.is_awaited && self.progress.is_none();
        if is_stalled {
            self.leaving.share.keep(GIVEN_UP_BYTES);
            self.share.keep(CALL_BYTES);
        }
        is_stalled
    }
}

fn is_large(frame: &Frame<Bytes>) -> bool {
    frame.data_ref().is_some_and(|data| data.len() > CALL_BYTES)
}

/// Part of an answer that waits until its reader has room for it, perhaps after all else of the call
/// is gone.
#[derive(Debug)]
struct Waiting {
    part: Vec<u8>,
    _share: Arc<Share>,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

impl Outgoing {
    pub(crate) fn new(
        body: tonic::body::Body,
        share: Arc<Share>,
        idle_max: Option<Duration>,
    ) -> Outgoing {
        Outgoing { answer: Answer::Small(body), share, idle_max }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.share.activity().inspect(|activity| activity.happens());
        if let Answer::Small(body) = &mut self.answer {
            let next = Pin::new(&mut *body).poll_frame(context);
            let Poll::Ready(Some(Ok(frame))) = next else { return next };
            if !is_large(&frame) {
                return Poll::Ready(Some(Ok(frame)));
            }
            let large = Large {
                body: std::mem::take(body),
                leaving: Leaving::of(&self.share, frame.into_data().unwrap_or_default()),
                is_awaited: false,
                progress: Progress::of(&self.share),
                share: Arc::clone(&self.share),
            };
            self.answer = Answer::Large(Lease::new(large, self.idle_max, Large::give_up));
        }
        let Answer::Large(large) = &self.answer else { return Poll::Ready(None) };
        large.with(|large| large.poll_frame(context)).unwrap_or_else(|| {
            self.answer = Answer::GivenUp;
            let status = Status::aborted(
                "nothing was read for too long, and the answer was given up: call anew",
            );
            let mut trailers = http::HeaderMap::new();
            Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.answer {
            Answer::Small(body) => body.is_end_stream(),
            // It ends with what says how it ended.
            Answer::Large(_) => false,
            Answer::GivenUp => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.answer {
            Answer::Small(body) => body.size_hint(),
            Answer::Large(_) | Answer::GivenUp => SizeHint::default(),
        }
    }
}
