//! Bodies of requests and answers that count their bytes in the budget.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use crate::budget::{CALL_BYTES, Share};

type Next = Option<Result<Frame<Bytes>, Status>>;

/// A request's body. Each part takes its length from the budget; if the limit is reached, the call fails.
#[derive(Debug)]
pub struct Incoming {
    body: tonic::body::Body,
    share: Arc<Share>,
}

impl Incoming {
    pub(crate) fn new(body: tonic::body::Body, share: Arc<Share>) -> Incoming {
        Incoming { body, share }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Next> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &next
            && let Some(part) = frame.data_ref()
        {
            self.share.connection().activity.moves();
            if let Err(status) = self.share.take(part.len()) {
                return Poll::Ready(Some(Err(status)));
            }
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body. It sends each message in parts, so that slow but steady reading counts as activity.
#[derive(Debug)]
pub struct Outgoing {
    body: tonic::body::Body,
    /// The rest of the current message.
    message: Bytes,
    share: Arc<Share>,
}

impl Outgoing {
    pub(crate) fn new(body: tonic::body::Body, share: Arc<Share>) -> Outgoing {
        Outgoing { body, message: Bytes::new(), share }
    }

    fn part(&mut self) -> Frame<Bytes> {
        self.share.connection().activity.moves();
        Frame::data(self.message.split_to(self.message.len().min(CALL_BYTES)))
    }
}

impl From<Outgoing> for tonic::body::Body {
    fn from(outgoing: Outgoing) -> tonic::body::Body {
        tonic::body::Body::new(outgoing)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.share.set_working(false);
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Next> {
        if self.message.is_empty() {
            let next = Pin::new(&mut self.body).poll_frame(context);
            self.share.set_working(next.is_pending());
            match ready!(next).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.message = Unsent::message(data, &self.share),
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                None => return Poll::Ready(None),
            }
        }
        Poll::Ready(Some(Ok(self.part())))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.message.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}

/// The bytes of a message, counted until its last part has left. The call may end before that.
#[derive(Debug)]
struct Unsent {
    data: Bytes,
    share: Arc<Share>,
}

impl Unsent {
    /// Gives back the call's bytes for the request and the message, and counts the message's bytes until it has left.
    fn message(data: Bytes, share: &Arc<Share>) -> Bytes {
        share.keep(CALL_BYTES);
        share.connection().overdraw(data.len());
        Bytes::from_owner(Unsent { data, share: Arc::clone(share) })
    }
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.share.connection().give_back(self.data.len());
        self.share.connection().activity.moves();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::budget::Budget;

    /// An answer of one message that does not end.
    struct Unfinished(Option<Bytes>);

    impl Body for Unfinished {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Next> {
            self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
        }
    }

    #[test]
    fn answer_counts_until_its_last_part_left() {
        const BYTES: usize = 100 << 10;
        let budget = Budget::new(1 << 20, "--memory-mb");
        let share = Arc::new(budget.share());
        share.take(CALL_BYTES + 2 * BYTES).unwrap();
        let body = tonic::body::Body::new(Unfinished(Some(vec![7; BYTES].into())));
        let mut answer = Outgoing::new(body, Arc::clone(&share));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut parts = Vec::new();
        while let Poll::Ready(frame) = Pin::new(&mut answer).poll_frame(&mut context) {
            parts.push(frame.unwrap().unwrap().into_data().unwrap());
        }
        assert!(parts.iter().all(|part| part.len() <= CALL_BYTES));
        assert_eq!(parts.iter().map(Bytes::len).sum::<usize>(), BYTES);
        // The call waits for the server's next message, so it counts as active.
        assert_eq!(share.connection().activity.quiet_since(), None);
        drop(answer);
        drop(share);
        let last = parts.pop().unwrap();
        drop(parts);
        assert_eq!(budget.taken(), CALL_BYTES + BYTES);
        drop(last);
        assert_eq!(budget.taken(), 0);
    }
}
