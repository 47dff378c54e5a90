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
    /// What has not left of a message, or of several.
    data: Bytes,
    /// Whether its reader waits for it, instead of the other way round.
    is_awaited: bool,
    /// That of its connection, since this one last stood still for too long.
    progress: Progress,
    share: Arc<Share>,
}

impl Large {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.is_awaited = false;
        if self.data.is_empty() {
            let next = Pin::new(&mut self.body).poll_frame(context);
            self.is_awaited = next.is_pending();
            match next {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.data = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                next => return next,
            }
        }
        Poll::Ready(Some(Ok(self.part())))
    }

    /// The next part; copied, for a slice would hold all of it for as long as it is not taken.
    fn part(&mut self) -> Frame<Bytes> {
        let part = self.data.split_to(self.data.len().min(CALL_BYTES)).to_vec();
        self.share.count_part();
        let part = Waiting::of(part.into(), &self.share);
        if self.data.is_empty() {
            self.share.keep(CALL_BYTES);
        }
        part
    }

    /// Gives it up, unless it is what is waited for, or others of its connection go on.
    fn give_up(&mut self) -> bool {
        let is_stalled = !self.is_awaited && self.progress.is_none();
        if is_stalled {
            self.share.keep(CALL_BYTES);
        }
        is_stalled
    }
}

/// A part of an answer that waits until its reader has taken it, perhaps after all else of the call is
/// gone: it has room of its own, beside that of every call.
#[derive(Debug)]
struct Waiting {
    part: Bytes,
    share: Arc<Share>,
}

impl Waiting {
    fn of(part: Bytes, share: &Arc<Share>) -> Frame<Bytes> {
        share.account().overdraw(part.len());
        Frame::data(Bytes::from_owner(Waiting { part, share: Arc::clone(share) }))
    }
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.share.account().give_back(self.part.len());
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
            let data = match frame.into_data() {
                Ok(data) if data.len() > CALL_BYTES => data,
                Ok(data) => {
                    // Nothing else of the call is left: neither its request nor what it was made from.
                    self.share.keep(CALL_BYTES);
                    return Poll::Ready(Some(Ok(Waiting::of(data, &self.share))));
                }
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            };
            let large = Large {
                body: std::mem::take(body),
                data,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::VecDeque;

    use super::*;
    use crate::budget::Budget;

    /// An answer of these messages.
    struct Messages(VecDeque<Bytes>);

    impl Body for Messages {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(|message| Ok(Frame::data(message))))
        }
    }

    /// The answer of a call that has taken so much beside what every call takes.
    fn answer(share: &Arc<Share>, messages: &[usize]) -> Outgoing {
        let messages = messages.iter().map(|&bytes| vec![7; bytes].into()).collect();
        Outgoing::new(tonic::body::Body::new(Messages(messages)), Arc::clone(share), None)
    }

    /// The parts of an answer, as a reader takes them that has room for all but the last one.
    fn last_part(mut answer: Outgoing) -> Bytes {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut last = Bytes::new();
        while let Poll::Ready(Some(frame)) = Pin::new(&mut answer).poll_frame(&mut context) {
            last = frame.unwrap().into_data().unwrap();
        }
        last
    }

    #[test]
    fn what_waits_for_its_reader_behind_its_call_has_its_room_and_no_more() {
        let budget = Budget::new(64 << 20, "--memory-mb");
        // A large answer; a small one, to a large request too; and several.
        for (request, messages) in
            [(0, &[1 << 20][..]), (0, &[15 << 10]), (1 << 20, &[15 << 10]), (0, &[1 << 20, 9, 1 << 20])]
        {
            let share = Arc::new(budget.share());
            share.take(CALL_BYTES + request + messages.iter().sum::<usize>()).unwrap();
            let last = last_part(answer(&share, messages));
            drop(share);
            let taken = budget.taken();
            assert!((last.len()..=CALL_BYTES + last.len()).contains(&taken), "{messages:?}: {taken}");
            drop(last);
            assert_eq!(budget.taken(), 0);
        }
    }
}
