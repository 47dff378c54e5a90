//! The service `knee.queue.v1.Queue`.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use knee_rpc::queue::queue_server::Queue;
use knee_rpc::queue::{
    AcknowledgeRequest, AcknowledgeResponse, CountsRequest, CountsResponse, CreateQueueRequest,
    CreateQueueResponse, DeleteQueueRequest, DeleteQueueResponse, ExtendRequest, ExtendResponse,
    LeaseRequest, LeaseResponse, ListQueuesRequest, ListQueuesResponse, ReadAllRequest,
    ReadAllResponse, ReadFromRequest, ReadFromResponse, RegisterClientRequest,
    RegisterClientResponse, RegisterMiddlewareRequest, RegisterMiddlewareResponse, ReleaseRequest,
    ReleaseResponse, RemoveRequest, RemoveResponse, SendRequest, SendResponse, Stored,
};
use knee_telemetry::Op;
use tonic::{Request, Response, Status};

use super::asking::Asking;
use super::awaiting::{Awaiting, Wanted};
use super::message::{
    Page, Taking, acknowledged, created, ended, extended, leased, listed, read_from, registered,
    released, sent, stored,
};
use super::meter::Call;
use super::pages::pages;
use super::refusal::beside_the_point;
use crate::database::Database;
use crate::operation::{self, Answer, MiddlewareId};

#[derive(Debug)]
pub(super) struct Service<D> {
    pub(super) asking: Arc<Asking<D>>,
    pub(super) awaiting: Awaiting<D>,
    /// This server's number.
    pub(super) middleware: MiddlewareId,
    /// Longer content is refused.
    pub(super) content_bytes_max: usize,
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The content of an answer that must be of this variant.
macro_rules! answer {
    ($answer:expr, $variant:ident) => {
        match $answer {
            Ok(Answer::$variant(answer)) => Ok(answer),
            Ok(_) => Err(beside_the_point()),
            Err(status) => Err(status),
        }
    };
}

impl<D: Database> Service<D> {
    async fn ask(
        &self,
        call: &mut Call,
        request: Result<operation::Request, Status>,
    ) -> Result<Answer, Status> {
        self.asking.ask(call, request?).await
    }

    async fn made(
        &self,
        call: &mut Call,
        request: Result<operation::Request, Status>,
    ) -> Result<u32, Status> {
        answer!(self.ask(call, request).await, Id)
    }

    async fn take(
        &self,
        call: &mut Call,
        taking: &Taking,
        request: impl Fn() -> operation::Request,
    ) -> Result<Answer, Status> {
        let &Taking { queue, receiver, wait, .. } = taking;
        self.awaiting.ask(call, Wanted { queue, receiver, wait, request }).await
    }

    async fn removed(
        &self,
        call: &mut Call,
        question: RemoveRequest,
    ) -> Result<Vec<Stored>, Status> {
        let taking = Taking::removed(question)?;
        let messages = answer!(self.take(call, &taking, || taking.remove()).await, Messages)?;
        call.carries(messages.len());
        Ok(messages.into_iter().map(stored).collect())
    }

    async fn leased(
        &self,
        call: &mut Call,
        question: LeaseRequest,
    ) -> Result<LeaseResponse, Status> {
        let (taking, visibility) = Taking::leased(question)?;
        let leases = self.take(call, &taking, || taking.lease(visibility)).await;
        let leases = answer!(leases, Leased)?;
        call.carries(leases.len());
        Ok(LeaseResponse { leases: leases.into_iter().map(leased).collect() })
    }
}

#[tonic::async_trait]
impl<D: Database> Queue for Service<D> {
    type ReadAllStream = Streamed<ReadAllResponse>;

    async fn register_client(
        &self,
        request: Request<RegisterClientRequest>,
    ) -> Result<Response<RegisterClientResponse>, Status> {
        let (mut call, _) = self.asking.meter.call(Op::Other, request);
        let made = self.made(&mut call, Ok(registered(self.middleware))).await;
        call.answered(made.map(|client| RegisterClientResponse { client }))
    }

    async fn register_middleware(
        &self,
        request: Request<RegisterMiddlewareRequest>,
    ) -> Result<Response<RegisterMiddlewareResponse>, Status> {
        let (mut call, _) = self.asking.meter.call(Op::Other, request);
        let made = self.made(&mut call, Ok(operation::Request::RegisterMiddleware)).await;
        call.answered(made.map(|middleware| RegisterMiddlewareResponse { middleware }))
    }

    async fn create_queue(
        &self,
        request: Request<CreateQueueRequest>,
    ) -> Result<Response<CreateQueueResponse>, Status> {
        let (mut call, question) = self.asking.meter.call(Op::Other, request);
        let made = self.made(&mut call, created(&question)).await;
        call.answered(made.map(|queue| CreateQueueResponse { queue }))
    }

    async fn delete_queue(
        &self,
        request: Request<DeleteQueueRequest>,
    ) -> Result<Response<DeleteQueueResponse>, Status> {
        let (mut call, DeleteQueueRequest { queue }) = self.asking.meter.call(Op::Other, request);
        let done = self.ask(&mut call, Ok(operation::Request::DeleteQueue { queue })).await;
        call.answered(done.map(|_| DeleteQueueResponse {}))
    }

    async fn send(&self, request: Request<SendRequest>) -> Result<Response<SendResponse>, Status> {
        let (mut call, question) = self.asking.meter.call(Op::Send, request);
        call.carries(question.messages.len());
        let ids = answer!(self.ask(&mut call, sent(question, self.content_bytes_max)).await, Sent);
        call.answered(ids.map(|ids| SendResponse { ids }))
    }

    async fn list_queues(
        &self,
        request: Request<ListQueuesRequest>,
    ) -> Result<Response<ListQueuesResponse>, Status> {
        let (mut call, question) = self.asking.meter.call(Op::ListQueues, request);
        let queues = answer!(self.ask(&mut call, listed(&question)).await, Queues);
        call.answered(queues.map(|queues| ListQueuesResponse { queues }))
    }

    async fn read_all(
        &self,
        request: Request<ReadAllRequest>,
    ) -> Result<Response<Self::ReadAllStream>, Status> {
        let (mut call, question) = self.asking.meter.call(Op::ReadAll, request);
        let first = Page::first(question).inspect_err(|status| call.ends(Some(status)))?;
        let pages = pages(Arc::clone(&self.asking), call, first).await?;
        Ok(Response::new(Box::pin(pages)))
    }

    async fn read_from(
        &self,
        request: Request<ReadFromRequest>,
    ) -> Result<Response<ReadFromResponse>, Status> {
        let (mut call, question) = self.asking.meter.call(Op::ReadFrom, request);
        let messages = answer!(self.ask(&mut call, read_from(&question)).await, Messages);
        let message = messages.map(|messages| messages.into_iter().next().map(stored));
        call.carries(usize::from(matches!(message, Ok(Some(_)))));
        call.answered(message.map(|message| ReadFromResponse { message }))
    }

    async fn remove(
        &self,
        request: Request<RemoveRequest>,
    ) -> Result<Response<RemoveResponse>, Status> {
        let (mut call, question) = self.asking.meter.call(Op::Remove, request);
        let messages = self.removed(&mut call, question).await;
        call.answered(messages.map(|messages| RemoveResponse { messages }))
    }

    async fn lease(
        &self,
        request: Request<LeaseRequest>,
    ) -> Result<Response<LeaseResponse>, Status> {
        let (mut call, question) = self.asking.meter.call(Op::Lease, request);
        let leased = self.leased(&mut call, question).await;
        call.answered(leased)
    }

    async fn acknowledge(
        &self,
        request: Request<AcknowledgeRequest>,
    ) -> Result<Response<AcknowledgeResponse>, Status> {
        let (mut call, question) = self.asking.meter.call(Op::Acknowledge, request);
        call.carries(question.leases.len());
        let gone = answer!(self.ask(&mut call, acknowledged(question)).await, Ended);
        call.answered(gone.map(|gone| AcknowledgeResponse { ended: ended(gone) }))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        let (mut call, question) = self.asking.meter.call(Op::Release, request);
        call.carries(question.leases.len());
        let gone = answer!(self.ask(&mut call, released(question)).await, Ended);
        call.answered(gone.map(|gone| ReleaseResponse { ended: ended(gone) }))
    }

    async fn extend(
        &self,
        request: Request<ExtendRequest>,
    ) -> Result<Response<ExtendResponse>, Status> {
        let (mut call, question) = self.asking.meter.call(Op::Extend, request);
        call.carries(question.leases.len());
        let gone = answer!(self.ask(&mut call, extended(question)).await, Ended);
        call.answered(gone.map(|gone| ExtendResponse { ended: ended(gone) }))
    }

    async fn counts(
        &self,
        request: Request<CountsRequest>,
    ) -> Result<Response<CountsResponse>, Status> {
        let (mut call, _) = self.asking.meter.call(Op::Other, request);
        let counts = answer!(self.ask(&mut call, Ok(operation::Request::Counts)).await, Counts);
        call.answered(counts.map(|counts| {
            let operation::Counts { messages, clients, queues } = counts;
            CountsResponse { messages, clients, queues }
        }))
    }
}
