//! Answers as they leave.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic::codegen::http;

use crate::budget::{CALL_BYTES, Share};

type Next = Option<Result<Frame<Bytes>, Status>>;

/// An answer as it leaves: a large message in parts, each when its reader has taken most of the one
/// before. A large one, or a stream, that is not read for too long is given up, and with it all that
/// it was to be made from: nothing else could end it, for what is not read is not asked for either,
/// and a connection whose reader hangs answers pings all the same.
#[derive(Debug)]
pub struct Outgoing {
    answer: Answer,
    share: Arc<Share>,
    idle_max: Option<Duration>,
}

#[derive(Debug)]
enum Answer {
    /// Nothing of it was asked for yet.
    Begun(tonic::body::Body),
    /// It goes on for as long as it is read.
    Leaving(Lent),
    /// What is left is how it ended, where that was not told yet.
    Ended(Next),
}

/// What of an answer has not left, and what makes more of it.
#[derive(Debug)]
struct Leaving {
    body: tonic::body::Body,
    /// Of a message, or of several.
    data: Bytes,
    /// Whether its reader waits for it, instead of the other way round.
    is_awaited: bool,
    share: Arc<Share>,
}

impl Leaving {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        if self.data.is_empty() {
            let next = Pin::new(&mut self.body).poll_frame(context);
            self.is_awaited = next.is_pending();
            match ready!(next) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.data = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        Poll::Ready(Some(Ok(self.part())))
    }

    /// The next part; copied, for a slice would hold all of it for as long as it is not taken.
    fn part(&mut self) -> Frame<Bytes> {
        let part = self.data.split_to(self.data.len().min(CALL_BYTES)).to_vec();
        self.share.moves();
        let part = Waiting::frame(part, &self.share);
        if self.data.is_empty() {
            // What makes a stream's next message holds nothing of the request.
            self.share.keep(CALL_BYTES);
        }
        part
    }

    /// How it ended, if nothing of it is left.
    fn end(&mut self, context: &mut Context<'_>) -> Option<Next> {
        if !self.data.is_empty() {
            return None;
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    self.data = data;
                    None
                }
                Err(end) => Some(Some(Ok(end))),
            },
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    /// When to look again whether it is read; nothing where it has not been for too long.
    fn look_again(&self, now: Instant, idle_max: Duration) -> Option<Instant> {
        let until = if self.is_awaited { now + idle_max } else { self.share.until(idle_max) };
        (until > now).then_some(until)
    }
}

impl Drop for Leaving {
    /// Of its call nothing else is left: neither its request nor what the answer was made from.
    fn drop(&mut self) {
        self.share.keep(CALL_BYTES);
    }
}

/// A part of an answer that waits until its reader has taken it, perhaps after all else of the call is
/// gone: it has room of its own, beside that of every call.
#[derive(Debug)]
struct Waiting {
    part: Vec<u8>,
    share: Arc<Share>,
}

impl Waiting {
    fn frame(part: Vec<u8>, share: &Arc<Share>) -> Frame<Bytes> {
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
        self.share.moves();
    }
}

/// An answer that is its reader's for as long as it is read.
#[derive(Debug)]
struct Lent {
    leaving: Arc<Mutex<Option<Leaving>>>,
    watch: Option<AbortHandle>,
}

impl Lent {
    fn new(leaving: Leaving, idle_max: Option<Duration>) -> Lent {
        let leaving = Arc::new(Mutex::new(Some(leaving)));
        let watch = |idle_max| tokio::spawn(watch(Arc::downgrade(&leaving), idle_max));
        let watch = idle_max.map(|idle_max| watch(idle_max).abort_handle());
        Lent { leaving, watch }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.watch.iter().for_each(AbortHandle::abort);
    }
}

/// Gives an answer up when it is not read for too long.
async fn watch(leaving: Weak<Mutex<Option<Leaving>>>, idle_max: Duration) {
    let mut next = Instant::now() + idle_max;
    loop {
        sleep_until(next).await;
        let Some(leaving) = leaving.upgrade() else { return };
        let mut leaving = lock(&leaving);
        let again = leaving.as_ref().and_then(|held| held.look_again(Instant::now(), idle_max));
        let Some(again) = again else {
            *leaving = None;
            return;
        };
        next = again;
    }
}

/// A part leaves whole or not at all: it stays usable whatever a thread that held it did.
fn lock(leaving: &Mutex<Option<Leaving>>) -> MutexGuard<'_, Option<Leaving>> {
    leaving.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outgoing {
    pub(crate) fn new(
        body: tonic::body::Body,
        share: Arc<Share>,
        idle_max: Option<Duration>,
    ) -> Outgoing {
        Outgoing { answer: Answer::Begun(body), share, idle_max }
    }

    /// Its first part, and what comes of the rest: one that is small is over with that.
    fn begin(&mut self, body: tonic::body::Body, context: &mut Context<'_>) -> Poll<Next> {
        let (data, share) = (Bytes::new(), Arc::clone(&self.share));
        let mut leaving = Leaving { body, data, is_awaited: false, share };
        let first = leaving.poll_frame(context);
        let end = match &first {
            Poll::Ready(Some(Ok(frame))) if frame.is_data() => leaving.end(context),
            Poll::Ready(_) => Some(None),
            Poll::Pending => None,
        };
        self.answer = match end {
            Some(end) => Answer::Ended(end),
            None => Answer::Leaving(Lent::new(leaving, self.idle_max)),
        };
        first
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Next> {
        let next = match &mut self.answer {
            Answer::Begun(body) => {
                let body = std::mem::take(body);
                return self.begin(body, context);
            }
            Answer::Leaving(Lent { leaving, .. }) => {
                lock(leaving).as_mut().map(|leaving| leaving.poll_frame(context))
            }
            Answer::Ended(end) => Some(Poll::Ready(end.take())),
        };
        next.unwrap_or_else(|| {
            self.answer = Answer::Ended(None);
            // It may tell of what is nowhere else any more: to call anew would have something else.
            let status = Status::aborted(
                "nothing was read for too long: the rest of the answer was given up, and what it tells of \
                 stays done",
            );
            let mut trailers = http::HeaderMap::new();
            Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.answer {
            Answer::Begun(body) => body.is_end_stream(),
            // It ends with what says how it ended.
            Answer::Leaving(_) => false,
            Answer::Ended(end) => end.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.answer {
            Answer::Begun(body) => body.size_hint(),
            Answer::Leaving(_) | Answer::Ended(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::VecDeque;

    use super::*;
    use crate::budget::Budget;

    /// An answer of these messages; nothing is one that is not there yet.
    struct Messages(VecDeque<Option<Bytes>>);

    impl Body for Messages {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.0.pop_front() {
                Some(Some(message)) => Poll::Ready(Some(Ok(Frame::data(message)))),
                Some(None) => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    fn messages(bytes: &[Option<usize>]) -> tonic::body::Body {
        let messages = bytes.iter().map(|bytes| bytes.map(|bytes| vec![7; bytes].into()));
        tonic::body::Body::new(Messages(messages.collect()))
    }

    fn context() -> Context<'static> {
        Context::from_waker(std::task::Waker::noop())
    }

    /// An answer that goes on.
    fn leaving(share: &Arc<Share>, bytes: &[Option<usize>]) -> Leaving {
        let (body, share) = (messages(bytes), Arc::clone(share));
        Leaving { body, data: Bytes::new(), is_awaited: false, share }
    }

    /// The parts of an answer, as a reader takes them that has room for all but the last one.
    fn last_part(mut answer: Outgoing) -> Bytes {
        let mut last = Bytes::new();
        while let Poll::Ready(Some(frame)) = Pin::new(&mut answer).poll_frame(&mut context()) {
            last = frame.unwrap().into_data().unwrap();
        }
        last
    }

    #[test]
    fn what_waits_for_its_reader_behind_its_call_has_its_room_and_no_more() {
        let budget = Budget::new(64 << 20, "--memory-mb");
        // A large answer; a small one, to a large request too; and several.
        for (request, messages) in [
            (0, &[1 << 20][..]),
            (0, &[15 << 10]),
            (1 << 20, &[15 << 10]),
            (0, &[1 << 20, 9, 1 << 20]),
        ] {
            let share = Arc::new(budget.share());
            share.take(CALL_BYTES + request + messages.iter().sum::<usize>()).unwrap();
            let bytes: Vec<_> = messages.iter().map(|&bytes| Some(bytes)).collect();
            let answer = Outgoing::new(self::messages(&bytes), Arc::clone(&share), None);
            let last = last_part(answer);
            drop(share);
            let taken = budget.taken();
            assert!(
                (last.len()..=CALL_BYTES + last.len()).contains(&taken),
                "{messages:?}: {taken}"
            );
            drop(last);
            assert_eq!(budget.taken(), 0);
        }
    }

    /// No test takes nearly as long.
    const IDLE_MAX: Duration = Duration::from_secs(3600);

    #[test]
    fn an_answer_that_stands_still_is_given_up_and_one_that_is_being_made_is_not() {
        let share = Arc::new(Budget::new(64 << 20, "--memory-mb").share());
        let mut leaving = leaving(&share, &[None, Some(1 << 20), None]);
        let later = |times: u32| Instant::now() + times * IDLE_MAX;
        // Nothing was asked for.
        assert!(leaving.look_again(later(0), IDLE_MAX).is_some());
        assert!(leaving.look_again(later(1), IDLE_MAX).is_none());
        assert!(leaving.poll_frame(&mut context()).is_pending());
        assert!(leaving.look_again(later(100), IDLE_MAX).is_some());
        for _ in 0..64 {
            assert!(leaving.poll_frame(&mut context()).is_ready());
            // As soon behind its last part as behind its first.
            assert!(leaving.look_again(later(0), IDLE_MAX).is_some());
            assert!(leaving.look_again(later(1), IDLE_MAX).is_none());
        }
        assert!(leaving.poll_frame(&mut context()).is_pending());
        assert!(leaving.look_again(later(100), IDLE_MAX).is_some());
    }

    #[test]
    fn a_part_that_leaves_says_that_its_call_moves() {
        let share = Arc::new(Budget::new(64 << 20, "--memory-mb").share());
        let mut leaving = leaving(&share, &[Some(1 << 20)]);
        let part = leaving.poll_frame(&mut context());
        let before = share.until(IDLE_MAX);
        while before >= Instant::now() + IDLE_MAX {}
        drop(part);
        assert!(share.until(IDLE_MAX) > before);
    }

    #[tokio::test]
    async fn what_is_given_up_has_nothing_but_what_waits_and_what_every_call_has() {
        let budget = Budget::new(64 << 20, "--memory-mb");
        let share = Arc::new(budget.share());
        share.take(CALL_BYTES + (1 << 20)).unwrap();
        // A stream, as far as anybody knows, and a large message.
        for bytes in [9, 1 << 20] {
            let messages = messages(&[Some(bytes), None]);
            let idle_max = Some(Duration::from_nanos(1));
            let mut answer = Outgoing::new(messages, Arc::clone(&share), idle_max);
            let part = Pin::new(&mut answer).poll_frame(&mut context());
            let Answer::Leaving(Lent { leaving, .. }) = &answer.answer else {
                panic!("it goes on: {answer:?}");
            };
            while lock(leaving).is_some() {
                tokio::task::yield_now().await;
            }
            assert_eq!(budget.taken(), CALL_BYTES + bytes.min(CALL_BYTES));
            drop(part);
            assert_eq!(budget.taken(), CALL_BYTES);
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut answer).poll_frame(&mut context())
            else {
                panic!("it ends: {answer:?}");
            };
            let status = Status::from_header_map(&frame.into_trailers().unwrap()).unwrap();
            assert_eq!(status.code(), tonic::Code::Aborted);
            assert!(status.message().contains("what it tells of stays done"), "{status}");
            assert!(answer.is_end_stream());
        }
    }
}
