//! The operations in the memcached protocol.

use std::collections::VecDeque;

use knee_proto::{
    Decoded, Expect, Response, ResponseDecoder, ResponseError, Status, Value, encode,
};
use knee_telemetry::Op;

use super::draws::{Drawn, Draws};
use super::sightings::{Asked, Sightings};
use super::workload::Workload;
use crate::grpc::ANSWER_BYTES_MAX;
use crate::traffic::{Fault, Judgement, Traffic, first_line};

/// Operations as commands: a read is a `get`, an insert an `add`, an update a `replace`, a put a `set`. With
/// verification, a read is a `gets`, because the cas token is the version.
#[derive(Debug)]
pub(crate) struct Text(pub(crate) Workload);

/// The state of a connection that verification needs.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The keys of reads in flight, in order, and when the reads were sent.
    asked: VecDeque<(u32, Asked)>,
    sightings: Sightings,
}

impl Traffic for Text {
    type Requests = Draws;
    type Memory = Memory;
    type Decoder = ResponseDecoder;
    type Answer<'a> = Response<'a>;
    type Malformed = ResponseError;

    fn requests(&self, client: u64, clients: u64) -> Draws {
        Draws::new(&self.0, client, clients)
    }

    fn response_bytes_max(&self) -> usize {
        ANSWER_BYTES_MAX
    }

    fn decoder(&self) -> ResponseDecoder {
        ResponseDecoder::new(self.response_bytes_max())
    }

    #[inline]
    fn append_next(
        &self,
        requests: &mut Draws,
        out: &mut Vec<u8>,
        memory: Option<&mut Memory>,
    ) -> Op {
        let Drawn { op, key, .. } = requests.next(&self.0);
        let command: &str = match op {
            Op::Insert => "add",
            Op::Update => "replace",
            Op::Put => "set",
            Op::Append => "append",
            Op::Delete => "delete ",
            _ if memory.is_some() => "gets ",
            _ => "get ",
        };
        if let Op::Insert | Op::Update | Op::Put | Op::Append = op {
            self.0.items.append_store(command, key, out);
            return op;
        }
        out.extend_from_slice(command.as_bytes());
        self.0.items.keys.append(key, out);
        encode::line_end(out);
        if let Some(memory) = memory.filter(|_| op == Op::Read) {
            memory.asked.push_back((key, memory.sightings.ask()));
        }
        op
    }

    #[inline]
    fn keys_of(&self, _op: Op) -> u32 {
        1
    }

    #[inline]
    fn decode<'a>(
        &self,
        decoder: &mut ResponseDecoder,
        op: Op,
        input: &'a [u8],
    ) -> Decoded<Response<'a>, ResponseError> {
        decoder.decode(input, if op == Op::Read { Expect::Retrieval } else { Expect::Line })
    }

    #[inline]
    fn judge(&self, op: Op, response: &Response<'_>) -> Judgement {
        let hit = Judgement { op, hits: 1, misses: 0, error: false };
        let miss = Judgement { op, hits: 0, misses: 1, error: false };
        match (op, response.status) {
            (Op::Read, Status::Values) => match response.values().next() {
                Some(value) => Judgement { op: self.0.found(value.value.len()), ..hit },
                None => Judgement { op: Op::ReadMissing, ..miss },
            },
            (Op::Insert | Op::Update | Op::Put | Op::Append, Status::Stored)
            | (Op::Delete, Status::Deleted) => hit,
            (Op::Insert | Op::Update | Op::Append, Status::NotStored)
            | (Op::Delete, Status::NotFound) => miss,
            _ => Judgement { op, hits: 0, misses: 0, error: true },
        }
    }

    fn shown(answer: &Response<'_>) -> String {
        first_line(answer.raw)
    }

    fn verify(
        &self,
        memory: &mut Memory,
        op: Op,
        response: &Response<'_>,
        mut wrong: impl FnMut(&Value<'_>, Fault),
    ) {
        if op != Op::Read {
            return;
        }
        let Some((key, asked)) = memory.asked.pop_front() else { return };
        let mut awaited = true;
        for value in response.values() {
            let fault = match self.0.items.keys.number(value.key) {
                None => Some(Fault::ForeignKey),
                Some(number) if number != key || !std::mem::take(&mut awaited) => {
                    Some(Fault::NotAsked)
                }
                Some(_) => {
                    let differs = self.0.differs(key, value.flags, value.value);
                    let version = value.cas.unwrap_or_default();
                    let went_back = memory.sightings.read(key, version, asked);
                    differs.map(Fault::Differs).or(went_back)
                }
            };
            if let Some(fault) = fault {
                wrong(&value, fault);
            }
        }
    }

    fn forget(memory: &mut Memory) {
        memory.asked.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::workload::tests::workload;
    use super::*;
    use knee_proto::{GetVerb, Limits, Request, RequestDecoder, StoreVerb};

    const MIX: &str = "read:1,insert:1,update:1,put:1,append:1,delete:1";

    #[test]
    fn requests_decode_as_drawn() {
        let text = Text(workload(MIX, 50, 1, |_| {}));
        let mut expected = Draws::new(&text.0, 0, 1);
        let mut requests = text.requests(0, 1);
        let mut decoder = RequestDecoder::new(Limits::default());
        for round in 0..300 {
            let drawn = expected.next(&text.0);
            let mut bytes = Vec::new();
            let mut memory = Memory::default();
            let verify = round % 2 == 0;
            let op = text.append_next(&mut requests, &mut bytes, verify.then_some(&mut memory));
            assert_eq!(op, drawn.op);
            let Decoded::Complete { consumed, item } = decoder.decode(&bytes) else {
                panic!("{}", String::from_utf8_lossy(&bytes));
            };
            assert_eq!(consumed, bytes.len());
            let key = match item {
                Request::Store(store) => {
                    let verb = match op {
                        Op::Insert => StoreVerb::Add,
                        Op::Update => StoreVerb::Replace,
                        Op::Put => StoreVerb::Set,
                        Op::Append => StoreVerb::Append,
                        other => panic!("{other:?}"),
                    };
                    assert_eq!(store.verb, verb);
                    assert_eq!(text.0.differs(drawn.key, store.flags, store.value), None);
                    store.key
                }
                Request::Get(get) => {
                    assert_eq!(get.verb, if verify { GetVerb::Gets } else { GetVerb::Get });
                    assert_eq!(op, Op::Read);
                    get.keys().next().unwrap()
                }
                Request::Delete { key, .. } => {
                    assert_eq!(op, Op::Delete);
                    key
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(text.0.items.keys.number(key), Some(drawn.key));
            assert_eq!(memory.asked.len(), usize::from(verify && op == Op::Read));
        }
    }

    #[test]
    fn answers_count_as_hits_misses_or_errors() {
        let text = Text(workload(MIX, 50, 1, |shape| shape.large_bytes = Some(3)));
        let large = "VALUE k 0 3\r\nabc\r\nEND\r\n";
        let (hit, miss, error) = ((1, 0, false), (0, 1, false), (0, 0, true));
        let rows = [
            (Op::Read, "VALUE k 0 2\r\nab\r\nEND\r\n", Op::Read, hit),
            (Op::Read, large, Op::ReadLarge, hit),
            (Op::Read, "END\r\n", Op::ReadMissing, miss),
            (Op::Read, "SERVER_ERROR no\r\n", Op::Read, error),
            (Op::Insert, "STORED\r\n", Op::Insert, hit),
            (Op::Insert, "NOT_STORED\r\n", Op::Insert, miss),
            (Op::Update, "NOT_STORED\r\n", Op::Update, miss),
            (Op::Append, "NOT_STORED\r\n", Op::Append, miss),
            (Op::Put, "STORED\r\n", Op::Put, hit),
            (Op::Put, "NOT_STORED\r\n", Op::Put, error),
            (Op::Put, "SERVER_ERROR out of memory\r\n", Op::Put, error),
            (Op::Delete, "DELETED\r\n", Op::Delete, hit),
            (Op::Delete, "NOT_FOUND\r\n", Op::Delete, miss),
            (Op::Delete, "ERROR\r\n", Op::Delete, error),
        ];
        for (op, answer, counted_as, (hits, misses, error)) in rows {
            let mut decoder = ResponseDecoder::new(1000);
            let Decoded::Complete { item, .. } = text.decode(&mut decoder, op, answer.as_bytes())
            else {
                panic!("{answer}");
            };
            let expected = Judgement { op: counted_as, hits, misses, error };
            assert_eq!(text.judge(op, &item), expected, "{op:?} {answer}");
        }
    }
}
