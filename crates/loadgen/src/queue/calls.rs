//! Requests as calls of `knee.queue.v1`.

use std::sync::{Mutex, OnceLock, PoisonError};

use knee_random::Random;
use knee_rpc::Message as _;
use knee_rpc::queue::queue_client::QueueClient;
use knee_rpc::queue::{CreateQueueRequest, ReadFromRequest, RegisterClientRequest, Stored};
use knee_telemetry::Op;
use tokio::sync::OnceCell;
use tonic::Code;
use tonic::codegen::http::Uri;

use super::talk::{Request, Talk};
use super::workload::{Identity, Workload};
use crate::error::Unusable;
use crate::grpc::{ANSWER_BYTES_MAX, Answered, Asked, Calls, Connection, Failure, Service, Wrong};

/// The prefix of every gRPC message.
const PREFIX_BYTES: u64 = 5;

/// Random streams of the clients' choices; think times and arrivals have other streams.
const TALK_STREAMS: u64 = 1 << 61;

pub(super) type Stub = QueueClient<Connection>;

#[derive(Debug)]
pub(crate) struct QueueCalls {
    workload: Workload,
    seed: u64,
    /// Clients that were registered earlier; the virtual clients take these identities in turn. If it is empty, each
    /// virtual client registers.
    registered: Vec<Identity>,
    /// By server: set after a check that the server knows the registered clients.
    known: Vec<OnceCell<()>>,
    /// The clients that have made their first calls, each with its number, in the order in which these calls ended.
    present: Mutex<Vec<(u64, u32)>>,
    /// The possible receivers, in the order of their numbers; set at the start. Runs with the same seed have the same.
    receivers: OnceLock<Vec<u32>>,
}

impl QueueCalls {
    /// The calls of this number of `clients` to this number of `servers`.
    pub(crate) fn new(
        workload: Workload,
        seed: u64,
        clients: u64,
        servers: usize,
        mut registered: Vec<Identity>,
    ) -> QueueCalls {
        // Further identities are not used.
        registered.truncate(clients as usize);
        let known = (0..servers).map(|_| OnceCell::new()).collect();
        let (present, receivers) = Default::default();
        QueueCalls { workload, seed, registered, known, present, receivers }
    }

    /// Registers a client, and creates its own queue.
    pub(super) async fn register(stub: &mut Stub) -> Result<Identity, Unusable> {
        let failure = |call| move |status| QueueCalls::SERVICE.first_failure(status, call);
        let registered = stub.register_client(RegisterClientRequest {}).await;
        let client = registered.map_err(failure("a registration"))?.into_inner().client;
        let request = CreateQueueRequest { creator: client, ..CreateQueueRequest::default() };
        let created = stub.create_queue(request).await;
        let queue = created.map_err(failure("the creation of a queue"))?.into_inner().queue;
        Ok(Identity { client, queue })
    }

    /// Checks that a server knows the registered clients. Checking the largest number is enough: numbers only grow, and
    /// clients stay registered.
    async fn ensure_known(&self, server: usize, stub: &mut Stub) -> Result<(), Unusable> {
        let Some(newest) = self.registered.iter().map(|identity| identity.client).max() else {
            return Ok(());
        };
        self.known[server].get_or_try_init(async || knows(stub, newest).await).await.copied()
    }
}

/// Checks that a server knows a client. The call changes nothing, is fast even with many messages, and is not part of
/// any load.
async fn knows(stub: &mut Stub, client: u32) -> Result<(), Unusable> {
    match stub.read_from(ReadFromRequest { receiver: client, sender: client }).await {
        Ok(_) => Ok(()),
        Err(status) if status.code() == Code::NotFound => Err(Unusable::Stranger { client }),
        Err(status) => Err(QueueCalls::SERVICE.first_failure(status, "a read_from")),
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    op: Op,
    queues: Vec<u32>,
    messages: Vec<Stored>,
    bytes: u64,
}

impl Calls for QueueCalls {
    const SERVICE: Service = Service { program: "knee-queue", name: "knee.queue.v1" };

    type Stub = Stub;
    type Client = Talk;
    type Seen = ();
    type Request = Request;
    type Answer = Answer;

    fn stub(connection: Connection, origin: Uri) -> Stub {
        QueueClient::with_origin(connection, origin).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    async fn introduce(
        &self,
        server: usize,
        number: u64,
        stub: &mut Stub,
    ) -> Result<Talk, Unusable> {
        let turn = number.checked_rem(self.registered.len() as u64);
        let identity = match turn {
            Some(turn) => {
                self.ensure_known(server, stub).await?;
                self.registered[turn as usize]
            }
            None => QueueCalls::register(stub).await?,
        };
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        present.push((number, identity.client));
        let random = Random::stream(self.seed, TALK_STREAMS | number);
        Ok(Talk::new(self.workload, identity, random))
    }

    fn next(&self, talk: &mut Talk) -> Request {
        // No client sends a request before all clients have made their first calls.
        let receivers = self.receivers.get_or_init(|| {
            let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
            present.sort_unstable();
            present.iter().map(|&(_, client)| client).collect()
        });
        talk.next(receivers)
    }

    fn asked(&self, request: &Request) -> Asked {
        let bytes = match request {
            Request::Send(request) => request.encoded_len(),
            Request::List(request) => request.encoded_len(),
            Request::ReadAll(request) => request.encoded_len(),
            Request::Remove(request) => request.encoded_len(),
        };
        let op = request.op();
        Asked { op, items: u32::from(op == Op::Send), bytes: bytes as u64 + PREFIX_BYTES }
    }

    async fn ask(
        &self,
        stub: &mut Stub,
        _seen: &(),
        request: &mut Request,
        _wrong: Option<&Wrong<'_>>,
    ) -> Result<Answer, Failure> {
        let mut answer =
            Answer { op: request.op(), queues: Vec::new(), messages: Vec::new(), bytes: 0 };
        match request.clone() {
            Request::Send(request) => {
                let response = stub.send(request).await?.into_inner();
                answer.bytes = response.encoded_len() as u64 + PREFIX_BYTES;
            }
            Request::List(request) => {
                let response = stub.list_queues(request).await?.into_inner();
                answer.bytes = response.encoded_len() as u64 + PREFIX_BYTES;
                answer.queues = response.queues;
            }
            Request::ReadAll(request) => {
                let mut parts = stub.read_all(request).await?.into_inner();
                while let Some(part) = parts.message().await? {
                    answer.bytes += part.encoded_len() as u64 + PREFIX_BYTES;
                    answer.messages.extend(part.messages);
                }
            }
            Request::Remove(request) => {
                let response = stub.remove(request).await?.into_inner();
                answer.bytes = response.encoded_len() as u64 + PREFIX_BYTES;
                answer.messages = response.messages;
            }
        }
        Ok(answer)
    }

    fn answered(&self, answer: &Answer) -> Answered {
        let Answer { op, ref messages, bytes, .. } = *answer;
        let count = messages.len() as u32;
        let looks = matches!(op, Op::ReadAll | Op::Remove);
        Answered {
            op,
            items: if op == Op::Send { 1 } else { count },
            hits: u32::from(looks && count > 0),
            misses: u32::from(looks && count == 0),
            bytes,
        }
    }

    fn take(
        &self,
        talk: &mut Talk,
        _seen: &(),
        request: &Request,
        answer: &Answer,
        in_turn: bool,
        wrong: Option<&Wrong<'_>>,
    ) {
        if answer.op == Op::ListQueues {
            talk.listed(&answer.queues);
        }
        if let Some(wrong) = wrong
            && let Some(fault) = talk.fault(request, &answer.messages, in_turn)
        {
            wrong(&format_args!("a {}: {fault}", answer.op.name()));
        }
    }

    /// No request is sent again: a repeated send would store two messages.
    fn again(&self, _request: Request) -> Option<Request> {
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use h2::Reason;
    use h2::server::SendResponse;
    use knee_rpc::queue::SendRequest;
    use tokio::net::TcpListener;
    use tonic::codegen::http::Response;

    use super::*;
    use crate::queue::workload::{Receivers, Round};

    fn calls() -> QueueCalls {
        let (round, receivers) = (Round::Send, Receivers::Itself);
        let workload = Workload { round, receivers, characters: 1 };
        QueueCalls::new(workload, 1, 1, 1, Vec::new())
    }

    #[test]
    fn receivers_do_not_depend_on_the_order_of_first_calls() {
        let workload = Workload { round: Round::Send, receivers: Receivers::Any, characters: 1 };
        let receivers = |present: Vec<(u64, u32)>| {
            let calls = QueueCalls::new(workload, 1, 3, 1, Vec::new());
            *calls.present.lock().unwrap() = present;
            let random = Random::stream(1, 2);
            let mut talk = Talk::new(workload, Identity { client: 7, queue: 9 }, random);
            let sends = (0..20).map(|_| match calls.next(&mut talk) {
                Request::Send(request) => request.messages[0].receiver,
                other => panic!("{other:?}"),
            });
            sends.collect::<Vec<_>>()
        };
        let drawn = receivers(vec![(0, 7), (1, 5), (2, 6)]);
        assert_eq!(receivers(vec![(2, 6), (0, 7), (1, 5)]), drawn);
    }

    /// The outcome of a send with this answer, and whether the connection was lost.
    async fn sent(
        answer: impl FnOnce(SendResponse<Bytes>) + Send + 'static,
    ) -> (Result<Answer, Failure>, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let (request, respond) = connection.accept().await.unwrap().unwrap();
            tokio::spawn(async move {
                let mut body = request.into_body();
                while body.data().await.is_some() {}
                answer(respond);
            });
            while connection.accept().await.is_some() {}
        });
        let (mut connection, origin) =
            Connection::open(address, &QueueCalls::SERVICE).await.unwrap();
        let mut stub = QueueCalls::stub(connection.clone(), origin);
        let mut request = Request::Send(SendRequest::default());
        let outcome = calls().ask(&mut stub, &(), &mut request, None).await;
        (outcome, connection.is_lost())
    }

    #[tokio::test]
    async fn reset_stream_leaves_outcome_unknown_and_connection_open() {
        for (reason, code, is_refused) in [
            (Reason::CANCEL, Code::Cancelled, false),
            (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted, false),
            (Reason::REFUSED_STREAM, Code::Unavailable, true),
        ] {
            let (outcome, is_lost) = sent(move |mut respond| respond.send_reset(reason)).await;
            assert!(!is_lost, "{reason:?}");
            match outcome {
                Err(Failure::Refused { code: said, .. }) if is_refused => assert_eq!(said, code),
                Err(Failure::Unknown { code: said, .. }) if !is_refused => assert_eq!(said, code),
                other => panic!("{reason:?}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn proxy_error_leaves_outcome_unknown() {
        for status in [502, 503, 504, 500] {
            let answer = Response::builder().status(status).body(()).unwrap();
            let (outcome, _) = sent(move |mut respond| {
                respond.send_response(answer, true).unwrap();
            })
            .await;
            let message = outcome.unwrap_err().of("send");
            let unknown =
                format!("did not say whether it did a send: Unknown: HTTP status {status} ");
            assert!(message.starts_with(&unknown), "{message}");
        }
        let answer = Response::builder().status(503).header("grpc-status", 14).body(()).unwrap();
        let (outcome, _) = sent(move |mut respond| {
            respond.send_response(answer, true).unwrap();
        })
        .await;
        assert_eq!(outcome.unwrap_err().of("send"), "refused a send: Unavailable");
    }
}
