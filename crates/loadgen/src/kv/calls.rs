//! The operations as calls of `knee.kv.v1`.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use knee_random::{GOLDEN, mix};
use knee_rpc::kv::key_value_client::KeyValueClient;
use knee_rpc::kv::{Entry, RequestId, StatsRequest};
use knee_telemetry::Op;
use tonic::codegen::http::Uri;

use super::draws::{Drawn, Draws};
use super::message::{Answer, Message};
use super::sightings::{self, Sightings};
use super::workload::Workload;
use crate::error::{Error, Unusable};
use crate::grpc::{
    ANSWER_BYTES_MAX, Answered, Asked, Calls, Connection, Failure, Service, Wrong, connect,
};
use crate::traffic::{Fault, WrongValue};

pub(super) type Stub = KeyValueClient<Connection>;

/// Reads, writes and scans over gRPC.
#[derive(Debug)]
pub(crate) struct KvCalls {
    workload: Workload,
    clients: u64,
    /// Distinguishes this process in request ids. `None`: writes have no ids.
    process: Option<u64>,
}

impl KvCalls {
    /// With `request_ids`, the server recognises a write that is sent again.
    pub(crate) fn new(workload: Workload, clients: u64, request_ids: bool) -> KvCalls {
        // Two runs with the same seed must not have the same ids.
        let process = request_ids.then(|| RandomState::new().hash_one(std::process::id()));
        KvCalls { workload, clients, process }
    }

    /// Connects for a phase that only fills stores.
    pub(super) async fn connect(server: SocketAddr) -> Result<Stub, Error> {
        connect::<KvCalls>(server, greet).await
    }

    /// Checks the key, the value and the version of an entry in an answer.
    fn verify(
        &self,
        seen: &RefCell<Sightings>,
        drawn: &Drawn,
        entry: &Entry,
        asked: sightings::Asked,
        wrong: &Wrong<'_>,
    ) {
        let fault = match self.workload.items.keys.number(&entry.key) {
            None => Some(Fault::ForeignKey),
            Some(key) if drawn.op == Op::Read && key != drawn.key => Some(Fault::NotAsked),
            Some(key) => {
                let differs = self.workload.differs(key, entry.flags, &entry.value);
                let went_back = seen.borrow_mut().read(key, entry.version, asked);
                differs.map(Fault::Differs).or(went_back)
            }
        };
        if let Some(fault) = fault {
            let (key, flags, value) = (&entry.key[..], entry.flags, &entry.value[..]);
            wrong(&WrongValue { key, flags, value, fault });
        }
    }

    /// Checks the version of a write, with two exceptions. A write that was sent again may have got its version the
    /// first time. A bulk put has one version for many keys.
    fn verify_version(
        &self,
        seen: &RefCell<Sightings>,
        request: &Request,
        answer: &Answer,
        wrong: &Wrong<'_>,
    ) {
        let Drawn { op, key, .. } = request.drawn;
        if answer.version == 0 || request.again || op == Op::BulkPut {
            return;
        }
        if let Some(fault) = seen.borrow_mut().wrote(key, answer.version, request.asked) {
            let mut name = Vec::new();
            self.workload.items.keys.append(key, &mut name);
            wrong(&WrongValue { key: &name, flags: 0, value: b"", fault });
        }
    }
}

/// Makes a first call, to check that the server is a store.
async fn greet(stub: &mut Stub) -> Result<(), Unusable> {
    let stats = stub.stats(StatsRequest {}).await;
    stats.map(drop).map_err(|status| KvCalls::SERVICE.first_failure(status, "a stats"))
}

#[derive(Debug)]
pub(crate) struct Client {
    draws: Draws,
    /// The client in request ids.
    writer: Option<u64>,
    writes: u64,
}

/// A request. If it is sent again, it has the same id.
#[derive(Debug)]
pub(crate) struct Request {
    drawn: Drawn,
    /// By the id, the server recognises a repeated request.
    id: Option<RequestId>,
    /// Whether the request was sent before.
    again: bool,
    /// `None` after the request was sent.
    message: Option<Message>,
    /// When the request was sent, to verify versions.
    asked: sightings::Asked,
}

impl Calls for KvCalls {
    const SERVICE: Service = Service { program: "knee-kv", name: "knee.kv.v1" };

    type Stub = Stub;
    type Client = Client;
    type Seen = RefCell<Sightings>;
    type Request = Request;
    type Answer = Answer;

    fn stub(connection: Connection, origin: Uri) -> Self::Stub {
        let stub = KeyValueClient::with_origin(connection, origin);
        stub.max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    async fn introduce(
        &self,
        _server: usize,
        number: u64,
        stub: &mut Self::Stub,
    ) -> Result<Client, Unusable> {
        greet(stub).await?;
        let writer = self.process.map(|process| mix(process ^ number.wrapping_mul(GOLDEN)));
        Ok(Client { draws: Draws::new(&self.workload, number, self.clients), writer, writes: 0 })
    }

    fn next(&self, client: &mut Client) -> Request {
        let drawn = client.draws.next(&self.workload);
        client.writes += 1;
        let id = client.writer.map(|writer| RequestId { client: writer, number: client.writes });
        let message = Message::new(&drawn, id, &self.workload);
        let asked = sightings::Asked::default();
        Request { drawn, id, again: false, message: Some(message), asked }
    }

    fn asked(&self, request: &Request) -> Asked {
        Asked {
            op: request.drawn.op,
            items: 1 + request.drawn.others.len() as u32,
            bytes: request.message.as_ref().map_or(0, Message::bytes),
        }
    }

    async fn ask(
        &self,
        stub: &mut Self::Stub,
        seen: &RefCell<Sightings>,
        request: &mut Request,
        wrong: Option<&Wrong<'_>>,
    ) -> Result<Answer, Failure> {
        request.asked = seen.borrow().ask();
        let (drawn, asked) = (&request.drawn, request.asked);
        let message = request.message.take();
        let message = message.unwrap_or_else(|| Message::new(drawn, request.id, &self.workload));
        let show = |entry: &Entry| {
            if let Some(wrong) = wrong {
                self.verify(seen, drawn, entry, asked, wrong);
            }
        };
        message.send(stub, &self.workload, show).await
    }

    fn answered(&self, answer: &Answer) -> Answered {
        answer.counted
    }

    fn take(
        &self,
        _client: &mut Client,
        seen: &RefCell<Sightings>,
        request: &Request,
        answer: &Answer,
        _in_turn: bool,
        wrong: Option<&Wrong<'_>>,
    ) {
        let Some(wrong) = wrong else { return };
        if let Some(entry) = &answer.found {
            self.verify(seen, &request.drawn, entry, request.asked, wrong);
        }
        self.verify_version(seen, request, answer, wrong);
    }

    fn again(&self, request: Request) -> Option<Request> {
        let writes = !matches!(request.drawn.op, Op::Read | Op::Scan | Op::AtomicScan);
        if !writes || request.id.is_none() {
            return None;
        }
        let message = Some(Message::new(&request.drawn, request.id, &self.workload));
        Some(Request { again: true, message, ..request })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kv::workload::tests::workload;

    #[test]
    fn only_writes_with_ids_are_sent_again() {
        let calls = |ids| KvCalls::new(workload("put:1", 9, 1, |_| {}), 1, ids);
        let id = RequestId { client: 7, number: 9 };
        let again = |op, id| {
            let drawn = Drawn { op, key: 3, others: Vec::new() };
            let asked = sightings::Asked::default();
            calls(true).again(Request { drawn, id, again: false, message: None, asked })
        };
        let put = again(Op::Put, Some(id)).unwrap();
        assert!(put.again && put.id == Some(id) && put.message.is_some());
        assert!(again(Op::Put, None).is_none());
        assert!(again(Op::Read, Some(id)).is_none());
    }
}
