//! An operation as a call, and what its answer says.

use bytes::Bytes;
use knee_rpc::kv::{
    AppendRequest, BulkPutRequest, Change, DeleteRequest, Entry, InsertRequest, PutRequest,
    ReadRequest, RequestId, ScanRequest, ScanResponse, UpdateRequest, Value, WriteResponse, change,
};
use knee_telemetry::Op;
use prost::Message as _;
use tonic::{Code, Response, Status, Streaming};

use super::link::{Client, is_lost, told, why};
use crate::items::Items;
use crate::keys::KeyFormat;
use crate::kv::draws::Drawn;
use crate::kv::workload::Workload;

/// What stands before every message.
const PREFIX_BYTES: u64 = 5;

/// A request. Sent again it has the same id.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) drawn: Drawn,
    /// Without one the server cannot tell that it comes again.
    pub(super) id: Option<RequestId>,
    /// Whether it was sent before.
    pub(super) again: bool,
}

impl Request {
    /// The request to send when the connection that had this one is lost: none unless it changes
    /// something, and the server can tell whether it has.
    pub(super) fn again(self) -> Option<Request> {
        let writes = !matches!(self.drawn.op, Op::Read | Op::Scan | Op::AtomicScan);
        (writes && self.id.is_some()).then_some(Request { again: true, ..self })
    }

    /// Keys that it names.
    pub(super) fn keys(&self) -> u32 {
        1 + self.drawn.others.len() as u32
    }

    /// The call.
    pub(super) fn message(&self, workload: &Workload) -> Message {
        let Drawn { op, key, others } = &self.drawn;
        let (key, request) = (*key, self.id);
        let named = || name(workload, key);
        let value = || Some(value(workload, key));
        match op {
            Op::Insert => Message::Insert(InsertRequest { key: named(), value: value(), request }),
            Op::Update => Message::Update(UpdateRequest { key: named(), value: value(), request }),
            Op::Put => {
                Message::Put(PutRequest { key: named(), value: value(), if_version: None, request })
            }
            Op::Append => {
                let tail = content(workload, key);
                Message::Append(AppendRequest { key: named(), tail, if_version: None, request })
            }
            Op::Delete => {
                Message::Delete(DeleteRequest { key: named(), if_version: None, request })
            }
            Op::BulkPut => {
                let keys = std::iter::once(key).chain(others.iter().copied());
                let changes = keys.map(|key| put(workload, key)).collect();
                Message::BulkPut(BulkPutRequest { changes, request })
            }
            Op::Scan => Message::Scan(range(workload, key)),
            Op::AtomicScan => Message::AtomicScan(range(workload, key)),
            // Nothing else is drawn.
            _ => Message::Read(ReadRequest { key: named() }),
        }
    }
}

fn name(workload: &Workload, key: u32) -> Bytes {
    let mut name = Vec::with_capacity(workload.items.keys.key_bytes_max());
    workload.items.keys.append(key, &mut name);
    name.into()
}

fn content(workload: &Workload, key: u32) -> Bytes {
    let mut content = Vec::new();
    workload.items.value(key).append(&mut content);
    content.into()
}

fn value(workload: &Workload, key: u32) -> Value {
    let Items { ttl_s, .. } = workload.items;
    let flags = workload.items.value(key).flags();
    Value { value: content(workload, key), flags, ttl_s }
}

/// The part of a bulk put that writes a key's value.
pub(super) fn put(workload: &Workload, key: u32) -> Change {
    let action = Some(change::Action::Put(value(workload, key)));
    Change { key: name(workload, key), action, condition: None }
}

/// The keys of a scan that begins with `key`: those of consecutive numbers, or, where the order of
/// bytes is not that of numbers, the next ones that are there.
fn range(workload: &Workload, key: u32) -> ScanRequest {
    let keys = &workload.items.keys;
    let count = u64::from(workload.shape.scan_keys);
    let start = name(workload, key);
    let (end, limit) = match keys.format() {
        KeyFormat::Padded => {
            let mut end = Vec::with_capacity(keys.key_bytes_max());
            keys.append_number(u64::from(key) + count, &mut end);
            (end, 0)
        }
        KeyFormat::Plain => {
            let mut end = keys.prefix().to_vec();
            // A prefix has graphic characters of ASCII only: there is always a next one.
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            (end, count)
        }
    };
    ScanRequest { start, end: end.into(), predicate: String::new(), limit }
}

/// A call to be made.
#[derive(Debug)]
pub(super) enum Message {
    Read(ReadRequest),
    Insert(InsertRequest),
    Update(UpdateRequest),
    Put(PutRequest),
    Append(AppendRequest),
    Delete(DeleteRequest),
    BulkPut(BulkPutRequest),
    Scan(ScanRequest),
    AtomicScan(ScanRequest),
}

/// An answer that such a request has.
#[derive(Debug)]
pub(super) struct Answer {
    /// What the request is counted as.
    pub(super) op: Op,
    pub(super) hits: u32,
    pub(super) misses: u32,
    /// Bytes of the messages that came.
    pub(super) bytes: u64,
    /// The version that was made; 0 if none was.
    pub(super) version: u64,
    /// What a read found.
    pub(super) found: Option<Entry>,
}

/// Why there is none.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server said something else, or that this one request will not be answered.
    Refused { code: Code, said: String },
    /// The connection is of no more use.
    Lost(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        if is_lost(&status) {
            return Failure::Lost(why(&status));
        }
        Failure::Refused { code: status.code(), said: told(&status) }
    }
}

impl Message {
    /// Its length on the way, without what HTTP/2 puts around it.
    pub(super) fn bytes(&self) -> u64 {
        let length = match self {
            Message::Read(request) => request.encoded_len(),
            Message::Insert(request) => request.encoded_len(),
            Message::Update(request) => request.encoded_len(),
            Message::Put(request) => request.encoded_len(),
            Message::Append(request) => request.encoded_len(),
            Message::Delete(request) => request.encoded_len(),
            Message::BulkPut(request) => request.encoded_len(),
            Message::Scan(request) | Message::AtomicScan(request) => request.encoded_len(),
        };
        length as u64 + PREFIX_BYTES
    }

    /// Makes the call; every key that a scan brings is shown as it comes.
    pub(super) async fn send(
        self,
        client: &mut Client,
        workload: &Workload,
        show: impl FnMut(&Entry),
    ) -> Result<Answer, Failure> {
        match self {
            Message::Read(request) => match client.read(request).await {
                Ok(response) => {
                    let response = response.into_inner();
                    let bytes = response.encoded_len() as u64 + PREFIX_BYTES;
                    let entry = response.entry.unwrap_or_default();
                    let op = workload.found(entry.value.len());
                    Ok(Answer { op, hits: 1, misses: 0, bytes, version: 0, found: Some(entry) })
                }
                Err(status) if status.code() == Code::NotFound => Ok(missed(Op::ReadMissing)),
                Err(status) => Err(status.into()),
            },
            Message::Insert(request) => {
                written(Op::Insert, client.insert(request).await, Some(Code::AlreadyExists))
            }
            Message::Update(request) => {
                written(Op::Update, client.update(request).await, Some(Code::NotFound))
            }
            Message::Put(request) => written(Op::Put, client.put(request).await, None),
            Message::Append(request) => written(Op::Append, client.append(request).await, None),
            Message::Delete(request) => written(Op::Delete, client.delete(request).await, None),
            Message::BulkPut(request) => {
                let keys = request.changes.len() as u32;
                let answer = written(Op::BulkPut, client.bulk_put(request).await, None)?;
                Ok(Answer { hits: keys, ..answer })
            }
            Message::Scan(request) => {
                let parts = client.scan(request).await?.into_inner();
                scanned(Op::Scan, parts, show).await
            }
            Message::AtomicScan(request) => {
                let parts = client.atomic_scan(request).await?.into_inner();
                scanned(Op::AtomicScan, parts, show).await
            }
        }
    }
}

fn missed(op: Op) -> Answer {
    Answer { op, hits: 0, misses: 1, bytes: 0, version: 0, found: None }
}

/// A write's answer. One with the status `miss` tells that its condition did not hold, as does the
/// version 0 of a delete.
fn written(
    op: Op,
    outcome: Result<Response<WriteResponse>, Status>,
    miss: Option<Code>,
) -> Result<Answer, Failure> {
    match outcome {
        Ok(response) => {
            let response = response.into_inner();
            let bytes = response.encoded_len() as u64 + PREFIX_BYTES;
            let version = response.version;
            let hits = u32::from(version > 0);
            Ok(Answer { op, hits, misses: 1 - hits, bytes, version, found: None })
        }
        Err(status) if miss == Some(status.code()) => Ok(missed(op)),
        Err(status) => Err(status.into()),
    }
}

async fn scanned(
    op: Op,
    mut parts: Streaming<ScanResponse>,
    mut show: impl FnMut(&Entry),
) -> Result<Answer, Failure> {
    let (mut keys, mut bytes) = (0, 0);
    while let Some(part) = parts.message().await? {
        bytes += part.encoded_len() as u64 + PREFIX_BYTES;
        keys += part.entries.len() as u32;
        part.entries.iter().for_each(&mut show);
    }
    Ok(Answer { op, hits: keys, misses: 0, bytes, version: 0, found: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::workload::tests::workload;

    #[test]
    fn what_would_be_made_twice_is_not_sent_again() {
        let request = |op, id| {
            let drawn = Drawn { op, key: 3, others: Vec::new() };
            Request { drawn, id, again: false }
        };
        let id = RequestId { client: 7, number: 9 };
        let put = request(Op::Put, Some(id)).again();
        assert!(put.is_some_and(|put| put.again && put.id == Some(id)));
        assert!(request(Op::Put, None).again().is_none());
        assert!(request(Op::Read, Some(id)).again().is_none());
    }

    #[test]
    fn values_expire_when_they_are_said_to() {
        let mut workload = workload("put:1", 9, 1, |_| {});
        workload.items.ttl_s = 5;
        let drawn = Drawn { op: Op::Put, key: 3, others: Vec::new() };
        let request = Request { drawn, id: None, again: false };
        let Message::Put(put) = request.message(&workload) else { panic!("it is a put") };
        assert_eq!((put.value.unwrap_or_default().ttl_s, put.request), (5, None));
    }
}
