//! Streams all messages of a queue, as fast as the client reads. Between two parts, the call holds neither a worker nor
//! a connection.

use std::sync::Arc;
use std::time::Instant;

use futures_util::Stream;
use futures_util::stream::unfold;
use knee_rpc::Message;
use knee_rpc::queue::ReadAllResponse;
use tokio::task::JoinSet;
use tonic::Status;

use super::asking::Asking;
use super::message::{Page, stored};
use super::meter::Call;
use super::refusal::beside_the_point;
use crate::database::Database;
use crate::operation::Answer;

/// The parts of a call's answer. The first part is read at once, so that its failure becomes the call's status.
pub(super) async fn pages<D: Database>(
    asking: Arc<Asking<D>>,
    call: Call,
    first: Page,
) -> Result<impl Stream<Item = Result<ReadAllResponse, Status>> + use<D>, Status> {
    let received = call.received;
    let (pages, first) = Pages { asking, call, next: None }.part(first, received).await;
    Ok(unfold((Some(pages), Some(first?)), |(pages, first)| async move {
        let mut pages = pages?;
        if let Some(first) = first {
            return Some((Ok(first), (Some(pages), None)));
        }
        let Some(page) = pages.next.take() else {
            pages.call.ends(None);
            return None;
        };
        // Read in a task. While the client has no room, the stream is not polled. A page that is read here would then
        // keep its worker.
        let mut reading = JoinSet::new();
        reading.spawn(pages.part(page, Instant::now()));
        match reading.join_next().await {
            Some(Ok((pages, part))) => Some((part, (Some(pages), None))),
            _ => Some((Err(Status::internal("the server failed to read a page")), (None, None))),
        }
    }))
}

#[derive(Debug)]
struct Pages<D> {
    asking: Arc<Asking<D>>,
    call: Call,
    /// `None` after the last page.
    next: Option<Page>,
}

impl<D: Database> Pages<D> {
    /// Reads a part, for which the client has waited since `since`.
    async fn part(mut self, page: Page, since: Instant) -> (Self, Result<ReadAllResponse, Status>) {
        let part = self.read(page, since).await;
        let part = part.inspect_err(|status| self.call.ends(Some(status)));
        (self, part)
    }

    async fn read(&mut self, page: Page, since: Instant) -> Result<ReadAllResponse, Status> {
        let answer = self.asking.ask_since(&mut self.call, since, page.request()).await?;
        let Answer::Messages(messages) = answer else { return Err(beside_the_point()) };
        self.next = page.next(&messages);
        self.call.carries(messages.len());
        let part = ReadAllResponse { messages: messages.into_iter().map(stored).collect() };
        self.call.shows(part.encoded_len())?;
        Ok(part)
    }
}
