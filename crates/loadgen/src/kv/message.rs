//! An operation as a gRPC message, and its answer.

use bytes::Bytes;
use knee_rpc::kv::key_value_client::KeyValueClient;
use knee_rpc::kv::{
    AppendRequest, BulkPutRequest, Change, DeleteRequest, Entry, InsertRequest, PutRequest,
    ReadRequest, RequestId, ScanRequest, ScanResponse, UpdateRequest, Value, WriteResponse, change,
};
use knee_telemetry::Op;
use prost::Message as _;
use tonic::{Code, Response, Status, Streaming};

use super::draws::Drawn;
use super::workload::Workload;
use crate::grpc::{Answered, Connection, Failure};
use crate::items::Items;
use crate::keys::KeyFormat;

/// The prefix of every gRPC message.
const PREFIX_BYTES: u64 = 5;

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

/// The range of a scan that begins with `key`. Padded keys sort by their numbers, so the range has consecutive numbers.
/// With plain keys, the range is limited to the next keys in the store.
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
            // A prefix has only graphic ASCII characters, so its last byte can be incremented.
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            (end, count)
        }
    };
    ScanRequest { start, end: end.into(), predicate: String::new(), limit }
}

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

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) counted: Answered,
    /// The version of a write; 0 without one.
    pub(super) version: u64,
    pub(super) found: Option<Entry>,
}

impl Message {
    pub(super) fn new(drawn: &Drawn, request: Option<RequestId>, workload: &Workload) -> Message {
        let Drawn { op, key, others } = drawn;
        let key = *key;
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
            // A mix has no other operations, so this is a read.
            _ => Message::Read(ReadRequest { key: named() }),
        }
    }

    /// The length in gRPC, without HTTP/2's frames and headers.
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

    /// Makes the call. Passes each entry of a scan to `show` as it comes.
    pub(super) async fn send(
        self,
        stub: &mut KeyValueClient<Connection>,
        workload: &Workload,
        show: impl FnMut(&Entry),
    ) -> Result<Answer, Failure> {
        match self {
            Message::Read(request) => match stub.read(request).await {
                Ok(response) => {
                    let response = response.into_inner();
                    let bytes = response.encoded_len() as u64 + PREFIX_BYTES;
                    let entry = response.entry.unwrap_or_default();
                    let op = workload.found(entry.value.len());
                    let counted = Answered { op, items: 1, hits: 1, misses: 0, bytes };
                    Ok(Answer { counted, version: 0, found: Some(entry) })
                }
                Err(status) if status.code() == Code::NotFound => Ok(missed(Op::ReadMissing)),
                Err(status) => Err(status.into()),
            },
            Message::Insert(request) => {
                written(Op::Insert, stub.insert(request).await, Some(Code::AlreadyExists))
            }
            Message::Update(request) => {
                written(Op::Update, stub.update(request).await, Some(Code::NotFound))
            }
            Message::Put(request) => written(Op::Put, stub.put(request).await, None),
            Message::Append(request) => written(Op::Append, stub.append(request).await, None),
            Message::Delete(request) => written(Op::Delete, stub.delete(request).await, None),
            Message::BulkPut(request) => {
                let keys = request.changes.len() as u32;
                let mut answer = written(Op::BulkPut, stub.bulk_put(request).await, None)?;
                (answer.counted.items, answer.counted.hits) = (keys, keys);
                Ok(answer)
            }
            Message::Scan(request) => {
                let parts = stub.scan(request).await?.into_inner();
                scanned(Op::Scan, parts, show).await
            }
            Message::AtomicScan(request) => {
                let parts = stub.atomic_scan(request).await?.into_inner();
                scanned(Op::AtomicScan, parts, show).await
            }
        }
    }
}

fn missed(op: Op) -> Answer {
    let counted = Answered { op, items: 1, hits: 0, misses: 1, bytes: 0 };
    Answer { counted, version: 0, found: None }
}

/// The answer to a write. The status `miss` means that the write's condition failed; for a delete, version 0 means it.
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
            let counted = Answered { op, items: 1, hits, misses: 1 - hits, bytes };
            Ok(Answer { counted, version, found: None })
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
    let counted = Answered { op, items: keys, hits: keys, misses: 0, bytes };
    Ok(Answer { counted, version: 0, found: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::workload::tests::workload;

    #[test]
    fn put_carries_the_time_to_live() {
        let mut workload = workload("put:1", 9, 1, |_| {});
        workload.items.ttl_s = 5;
        let drawn = Drawn { op: Op::Put, key: 3, others: Vec::new() };
        let Message::Put(put) = Message::new(&drawn, None, &workload) else { panic!("no put") };
        assert_eq!((put.value.unwrap_or_default().ttl_s, put.request), (5, None));
    }
}
