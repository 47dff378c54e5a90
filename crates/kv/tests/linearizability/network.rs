//! The store behind gRPC: each operation is a call, each client has a connection.

use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use knee_kv::grpc::{GrpcServer, GrpcSettings, Telemetry};
use knee_kv_cache::engine::Version;
use knee_kv_store::Store;
use knee_rpc::kv::key_value_client::KeyValueClient;
use knee_rpc::kv::{
    BulkPutRequest, Change as Changed, Entry, Nothing, ReadRequest, RequestId, ScanRequest,
    StatsRequest, Value as Put, change,
};
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::linearizability::history::Operations;
use crate::linearizability::model::{
    Change, Condition, KEYS, Outcome, Seen, Write, bytes_of, value_of,
};
use crate::linearizability::subject::Fault;

type Client = KeyValueClient<Channel>;

/// A served store, and its clients.
pub(crate) struct Served {
    serving: Option<GrpcServer>,
    runtime: Runtime,
    /// Idle clients.
    clients: Mutex<Vec<Client>>,
}

impl Served {
    pub(crate) fn start(store: &Store) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let settings = GrpcSettings { threads: 2, ..GrpcSettings::for_values(1000) };
        let serving = GrpcServer::start(settings, store.clone(), listener, Telemetry::default())
            .expect("it starts");
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().expect("a runtime");
        Served { serving: Some(serving), runtime, clients: Mutex::new(Vec::new()) }
    }

    /// Makes a call with an idle client.
    fn call<R>(&self, call: impl AsyncFnOnce(&mut Client) -> R) -> R {
        let idle = self.clients.lock().expect("not poisoned").pop();
        let (client, outcome) = self.runtime.block_on(async {
            let mut client = match idle {
                Some(client) => client,
                None => {
                    let address = self.serving.as_ref().expect("it serves").address();
                    let connected = KeyValueClient::connect(format!("http://{address}")).await;
                    connected.expect("it listens")
                }
            };
            let outcome = call(&mut client).await;
            (client, outcome)
        });
        self.clients.lock().expect("not poisoned").push(client);
        outcome
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.shutdown().begin();
            serving.join().expect("it ends");
        }
    }
}

/// The repetition of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    Once,
    /// Each write has a request id. A third of the writes is sent twice at once, another third again after its answer.
    Twice,
}

/// Some keys of a store, which only this history writes.
pub(crate) struct Remote<'a> {
    served: &'a Served,
    /// The prefix of its keys.
    prefix: u64,
    /// The commits before the history, if versions count commits.
    pub(crate) base: Version,
    fault: Option<Fault>,
    stale: Mutex<Vec<(usize, Seen)>>,
    sending: Sending,
    /// Writes so far.
    requests: AtomicU64,
}

impl<'a> Remote<'a> {
    pub(crate) fn new(
        served: &'a Served,
        prefix: u64,
        counts_commits: bool,
        sending: Sending,
        fault: Option<Fault>,
    ) -> Self {
        let stats = served.call(async |client| client.stats(StatsRequest {}).await);
        let last = stats.expect("it answers").into_inner().last_commit;
        let (base, stale) = (if counts_commits { last } else { 0 }, Mutex::new(nothing()));
        Remote { served, prefix, base, fault, stale, sending, requests: AtomicU64::new(0) }
    }

    /// Text, as memcached's protocol needs.
    pub(crate) fn key(&self, key: usize) -> Vec<u8> {
        format!("{:08}{key}", self.prefix).into_bytes()
    }

    fn shown(&self, entry: &Entry) -> Seen {
        Some((entry.version - self.base, value_of(&entry.value)))
    }

    fn changed(&self, write: &Write) -> Changed {
        let action = match write.change {
            Change::Put(number) => put(&[number]),
            Change::Append(number) => change::Action::Append(bytes_of(&[number]).into()),
            Change::Delete => change::Action::Delete(Nothing {}),
            Change::Increment(_) => unreachable!("there is no call for it"),
        };
        let condition = match write.condition {
            Condition::Always => None,
            Condition::Absent => Some(change::Condition::IfAbsent(Nothing {})),
            Condition::Present => Some(change::Condition::IfPresent(Nothing {})),
            Condition::Version(version) => Some(change::Condition::IfVersion(version + self.base)),
        };
        Changed { key: self.key(write.key).into(), action: Some(action), condition }
    }

    fn write_unlocked(&self, write: &Write) -> Outcome {
        let there = self.read(write.key);
        if !write.condition.holds(there.as_ref().map(|(version, _)| *version)) {
            return Outcome::Rejected;
        }
        let action = match write.change.of(there.map(|(_, value)| value)) {
            Some(value) => put(&value),
            None => change::Action::Delete(Nothing {}),
        };
        let key = self.key(write.key).into();
        self.outcome(vec![Changed { key, action: Some(action), condition: None }])
    }

    fn commit(&self, writes: &[Write]) -> Outcome {
        self.outcome(writes.iter().map(|write| self.changed(write)).collect())
    }

    fn outcome(&self, changes: Vec<Changed>) -> Outcome {
        if self.sending == Sending::Once {
            return self.sent(BulkPutRequest { changes, request: None });
        }
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let id = |number| Some(RequestId { client: self.prefix, number });
        let request = BulkPutRequest { changes, request: id(2 * number) };
        let again = match self.fault {
            Some(Fault::MadeAgain) => {
                BulkPutRequest { request: id(2 * number + 1), ..request.clone() }
            }
            _ => request.clone(),
        };
        let (first, second) = match number % 3 {
            0 => return self.sent(request),
            1 => thread::scope(|scope| {
                let second = scope.spawn(|| self.sent(again));
                (self.sent(request), second.join().expect("it ends"))
            }),
            _ => (self.sent(request), self.sent(again)),
        };
        match (first, second) {
            // The first attempt had no effect. Of two simultaneous attempts, either may be the first.
            (Outcome::Rejected, second) => second,
            (first, Outcome::Rejected) if number % 3 == 1 => first,
            (first, second) => {
                let made_again = self.fault == Some(Fault::MadeAgain);
                assert!(first == second || made_again, "{first:?}, and then {second:?}");
                second
            }
        }
    }

    fn sent(&self, request: BulkPutRequest) -> Outcome {
        match self.served.call(async |client| client.bulk_put(request).await) {
            Ok(made) => Outcome::Committed(made.into_inner().version.saturating_sub(self.base)),
            Err(status) => {
                let refusals = [Code::Aborted, Code::AlreadyExists, Code::NotFound];
                assert!(refusals.contains(&status.code()), "{status}");
                Outcome::Rejected
            }
        }
    }
}

impl Operations for Remote<'_> {
    fn read(&self, key: usize) -> Seen {
        let request = ReadRequest { key: self.key(key).into() };
        match self.served.call(async |client| client.read(request).await) {
            Ok(read) => self.shown(&read.into_inner().entry.expect("what was read")),
            Err(status) => {
                assert_eq!(status.code(), Code::NotFound, "{status}");
                None
            }
        }
    }

    fn scan(&self) -> Vec<(usize, Seen)> {
        let request = ScanRequest {
            start: self.key(0).into(),
            end: self.key(KEYS).into(),
            ..ScanRequest::default()
        };
        let entries = self.served.call(async |client| {
            let scan = match self.fault {
                Some(Fault::NoSnapshot) => client.scan(request).await?,
                _ => client.atomic_scan(request).await?,
            };
            let (mut scan, mut entries) = (scan.into_inner(), Vec::new());
            while let Some(response) = scan.message().await? {
                entries.extend(response.entries);
            }
            Ok::<_, Status>(entries)
        });
        let mut all = nothing();
        for entry in entries.expect("nothing is damaged") {
            all[usize::from(entry.key[8] - b'0')].1 = self.shown(&entry);
        }
        if self.fault == Some(Fault::StaleSnapshot) {
            std::mem::swap(&mut all, &mut self.stale.lock().expect("not poisoned"));
        }
        all
    }

    fn write(&self, writes: &[Write]) -> Outcome {
        match (self.fault, writes) {
            (Some(Fault::DroppedLock), [write]) => self.write_unlocked(write),
            (Some(Fault::TornBulk), [first, rest @ ..]) if !rest.is_empty() => {
                let begun = self.commit(std::slice::from_ref(first));
                match (begun, self.commit(rest)) {
                    (Outcome::Committed(one), Outcome::Committed(other)) => {
                        Outcome::Committed(one.max(other))
                    }
                    _ => Outcome::Rejected,
                }
            }
            _ => self.commit(writes),
        }
    }
}

/// A key that was not written, in a scan.
fn nothing() -> Vec<(usize, Seen)> {
    (0..KEYS).map(|key| (key, None)).collect()
}

fn put(value: &[u16]) -> change::Action {
    change::Action::Put(Put { value: bytes_of(value).into(), ..Put::default() })
}
