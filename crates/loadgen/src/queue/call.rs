//! Requests as calls of `knee.queue.v1`.

use std::net::SocketAddr;

use knee_rpc::Message as _;
use knee_rpc::queue::queue_client::QueueClient;
use knee_rpc::queue::{
    CreateQueueRequest, ReadAllResponse, ReadFromRequest, RegisterClientRequest, Stored,
};
use tonic::{Code, Status};

use super::Identity;
use super::talk::Request;
use crate::error::Unusable;
use crate::kv::grpc::ANSWER_BYTES_MAX;
use crate::kv::grpc::connection::Connection;
use crate::kv::grpc::link::{is_lost, leaves_open, open, told, why};
use crate::kv::grpc::wanted::Wanted;
use crate::run::CONNECT_TIMEOUT;

const WANTED: Wanted = Wanted { server: "knee-queue", service: "knee.queue.v1" };

/// What stands before every message.
const PREFIX_BYTES: u64 = 5;

pub(super) type Client = QueueClient<Connection>;

/// A connection that stands, or was not seen to be lost yet.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) client: Client,
    connection: Connection,
}

impl Standing {
    /// Whether nothing can be asked for over it any more.
    pub(super) fn is_lost(&mut self) -> bool {
        self.connection.is_lost()
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server said something else.
    Refused { code: Code, said: String },
    /// The server said something that leaves open whether it was done, or that this one call will not be answered.
    Unknown { code: Code, said: String },
    /// The connection is of no more use.
    Lost(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        if is_lost(&status) {
            return Failure::Lost(why(&status));
        }
        let (code, said) = (status.code(), told(&status));
        if leaves_open(&status) {
            Failure::Unknown { code, said }
        } else {
            Failure::Refused { code, said }
        }
    }
}

impl Failure {
    /// What the server did to this call.
    pub(super) fn of(&self, call: &str) -> String {
        match self {
            Failure::Refused { said, .. } => format!("refused a {call}: {said}"),
            Failure::Unknown { said, .. } => format!("did not say whether it did a {call}: {said}"),
            Failure::Lost(why) => format!("did not answer a {call}: {why}"),
        }
    }

    /// The same, without the words that need not be the same each time.
    pub(super) fn kind_of(&self, call: &str) -> String {
        match self {
            Failure::Refused { code, .. } => format!("refused a {call}: {code:?}"),
            Failure::Unknown { code, .. } => {
                format!("did not say whether it did a {call}: {code:?}")
            }
            Failure::Lost(_) => format!("did not answer a {call}"),
        }
    }
}

/// Connects.
pub(super) async fn connect(address: SocketAddr) -> Result<Standing, Unusable> {
    let opened = tokio::time::timeout(CONNECT_TIMEOUT, open(address, &WANTED)).await;
    let (connection, origin) = opened.map_err(|_| Unusable::Silent(CONNECT_TIMEOUT))??;
    let client = QueueClient::with_origin(connection.clone(), origin);
    Ok(Standing { client: client.max_decoding_message_size(ANSWER_BYTES_MAX), connection })
}

/// Registers a client and makes it a queue of its own.
pub(super) async fn register(standing: &mut Standing) -> Result<Identity, Unusable> {
    let client = &mut standing.client;
    let register = async {
        let registered = client.register_client(RegisterClientRequest {}).await;
        let creator = registered.map_err(|status| (status, "a registration"))?.into_inner().client;
        let request = CreateQueueRequest { creator, ..CreateQueueRequest::default() };
        let created = client.create_queue(request).await;
        let queue =
            created.map_err(|status| (status, "the creation of a queue"))?.into_inner().queue;
        Ok(Identity { client: creator, queue })
    };
    let registered = tokio::time::timeout(CONNECT_TIMEOUT, register).await;
    let registered = registered.map_err(|_| Unusable::Silent(CONNECT_TIMEOUT))?;
    registered.map_err(|(status, call)| WANTED.first_failure(&status, call))
}

/// Makes sure that a server knows a client: by a call that alters nothing, takes no longer where many messages are
/// stored, and is none of those that are measured.
pub(super) async fn knows(standing: &mut Standing, client: u32) -> Result<(), Unusable> {
    let read = standing.client.read_from(ReadFromRequest { receiver: client, sender: client });
    let read = tokio::time::timeout(CONNECT_TIMEOUT, read).await;
    match read.map_err(|_| Unusable::Silent(CONNECT_TIMEOUT))? {
        Ok(_) => Ok(()),
        Err(status) if status.code() == Code::NotFound => Err(Unusable::Stranger { client }),
        Err(status) => Err(WANTED.first_failure(&status, "a read_from")),
    }
}

/// What a request was answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Of a list.
    pub(super) queues: Vec<u32>,
    /// Of whatever asks for messages.
    pub(super) messages: Vec<Stored>,
    /// Bytes of the messages of gRPC.
    pub(super) bytes: u64,
}

/// Its length on the way, without what HTTP/2 puts around it.
pub(super) fn bytes(request: &Request) -> u64 {
    let length = match request {
        Request::Send(request) => request.encoded_len(),
        Request::List(request) => request.encoded_len(),
        Request::ReadAll(request) => request.encoded_len(),
        Request::Remove(request) => request.encoded_len(),
    };
    length as u64 + PREFIX_BYTES
}

/// Asks.
pub(super) async fn ask(client: &mut Client, request: Request) -> Result<Answer, Failure> {
    let mut answer = Answer::default();
    match request {
        Request::Send(request) => {
            let response = client.send(request).await?.into_inner();
            answer.bytes = response.encoded_len() as u64 + PREFIX_BYTES;
        }
        Request::List(request) => {
            let response = client.list_queues(request).await?.into_inner();
            answer.bytes = response.encoded_len() as u64 + PREFIX_BYTES;
            answer.queues = response.queues;
        }
        Request::ReadAll(request) => {
            let mut parts = client.read_all(request).await?.into_inner();
            while let Some(part) = parts.message().await? {
                answer.bytes += part.encoded_len() as u64 + PREFIX_BYTES;
                let ReadAllResponse { messages } = part;
                answer.messages.extend(messages);
            }
        }
        Request::Remove(request) => {
            let response = client.remove(request).await?.into_inner();
            answer.bytes = response.encoded_len() as u64 + PREFIX_BYTES;
            answer.messages = response.messages;
        }
    }
    Ok(answer)
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

    /// What becomes of a send that is answered so, and whether its connection is lost by that.
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
        let mut standing = connect(address).await.unwrap();
        let outcome = ask(&mut standing.client, Request::Send(SendRequest::default())).await;
        (outcome, standing.is_lost())
    }

    #[tokio::test]
    async fn a_call_whose_stream_is_reset_leaves_its_connection_and_what_it_did_open() {
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
    async fn what_is_between_here_and_a_server_leaves_open_what_the_server_did() {
        for status in [502, 503, 504, 500] {
            let answer = Response::builder().status(status).body(()).unwrap();
            let (outcome, _) = sent(move |mut respond| {
                respond.send_response(answer, true).unwrap();
            })
            .await;
            let told = outcome.unwrap_err().of("send");
            let unknown =
                format!("did not say whether it did a send: Unknown: HTTP status {status} ");
            assert!(told.starts_with(&unknown), "{told}");
        }
        let answer = Response::builder().status(503).header("grpc-status", 14).body(()).unwrap();
        let (outcome, _) = sent(move |mut respond| {
            respond.send_response(answer, true).unwrap();
        })
        .await;
        assert_eq!(outcome.unwrap_err().of("send"), "refused a send: Unavailable");
    }
}
