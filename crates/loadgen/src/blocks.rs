//! Reads and writes of whole blocks over NBD, and the check of their answers.

use std::collections::VecDeque;

use knee_nbd::{Command, Dial, Dialed, Malformed, REPLY_BYTES, Reply, Request};
use knee_proto::{Decoded, Value};
use knee_random::{Random, mix};
use knee_telemetry::Op;

use crate::traffic::{Fault, Judgement, Traffic};
use crate::values::{Difference, KeyValue, ValueSize};

/// The workload. All clients of a run share it.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) block_bytes: u32,
    /// The share of the requests that write.
    pub(crate) writes: f64,
    pub(crate) seed: u64,
}

/// One client's stream of requests.
#[derive(Debug)]
pub(crate) struct Requests {
    random: Random,
    /// The number of whole blocks of the disk; 0 before a handshake.
    count: u64,
}

/// A reply, with the data of a successful read.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    reply: Reply,
    data: &'a [u8],
}

impl Blocks {
    /// The content of a block, once it was written.
    fn value(&self, block: u64) -> KeyValue {
        KeyValue::of(ValueSize::Fixed { bytes: self.block_bytes }, mix(block))
    }
}

impl Traffic for Blocks {
    type Requests = Requests;
    /// The blocks of the requests in flight.
    type Memory = VecDeque<u64>;
    type Decoder = Dial;
    type Answer<'a> = Answer<'a>;
    type Malformed = Malformed;

    fn requests(&self, client: u64, _clients: u64) -> Requests {
        Requests { random: Random::stream(self.seed, client), count: 0 }
    }

    fn response_bytes_max(&self) -> usize {
        REPLY_BYTES + self.block_bytes as usize
    }

    fn decoder(&self) -> Dial {
        Dial::default()
    }

    fn greet(
        &self,
        dial: &mut Dial,
        requests: &mut Requests,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<(usize, bool)>, String> {
        match dial.take(input, out)? {
            Dialed::Incomplete => Ok(None),
            Dialed::Next(consumed) => Ok(Some((consumed, false))),
            Dialed::Done(consumed, offer) => {
                requests.count = offer.bytes / u64::from(self.block_bytes);
                if requests.count == 0 {
                    return Err(format!("the disk has {} bytes, less than a block", offer.bytes));
                }
                if offer.is_read_only() && self.writes > 0.0 {
                    return Err("it is read-only; --writes 0 only reads".into());
                }
                Ok(Some((consumed, true)))
            }
        }
    }

    #[inline]
    fn append_next(
        &self,
        requests: &mut Requests,
        out: &mut Vec<u8>,
        memory: Option<&mut VecDeque<u64>>,
    ) -> Op {
        let writes = requests.random.unit() < self.writes;
        let block = requests.random.below(requests.count);
        let command = if writes { Command::Write } else { Command::Read };
        let (offset, length) = (block * u64::from(self.block_bytes), self.block_bytes);
        Request { flags: 0, command, cookie: block, offset, length }.encode(out);
        if let Some(memory) = memory {
            memory.push_back(block);
        }
        if !writes {
            return Op::Read;
        }
        self.value(block).append(out);
        Op::Write
    }

    fn keys_of(&self, _op: Op) -> u32 {
        1
    }

    #[inline]
    fn decode<'a>(
        &self,
        _dial: &mut Dial,
        op: Op,
        input: &'a [u8],
    ) -> Decoded<Answer<'a>, Malformed> {
        let reply = match Reply::decode(input) {
            Ok(Some(reply)) => reply,
            Ok(None) => return Decoded::Incomplete { consumed: 0, wanted: REPLY_BYTES },
            Err(error) => return Decoded::Invalid { consumed: 0, error },
        };
        let has_data = op == Op::Read && reply.error == 0;
        let consumed = REPLY_BYTES + if has_data { self.block_bytes as usize } else { 0 };
        match input.get(REPLY_BYTES..consumed) {
            Some(data) => Decoded::Complete { consumed, item: Answer { reply, data } },
            None => Decoded::Incomplete { consumed: 0, wanted: consumed },
        }
    }

    fn judge(&self, op: Op, answer: &Answer<'_>) -> Judgement {
        Judgement { op, hits: 0, misses: 0, error: answer.reply.error != 0 }
    }

    fn shown(answer: &Answer<'_>) -> String {
        format!("error {}", answer.reply.error)
    }

    fn verify(
        &self,
        memory: &mut VecDeque<u64>,
        _op: Op,
        answer: &Answer<'_>,
        mut wrong: impl FnMut(&Value<'_>, Fault),
    ) {
        let Some(block) = memory.pop_front() else { return };
        let Answer { reply, data } = answer;
        let value = self.value(block);
        let fault = if reply.cookie != block {
            Some(Fault::NotAsked)
        } else {
            // A part is zero until it is written: no server promises more than whole sectors.
            let mut written = Vec::new();
            value.append(&mut written);
            let differs = |(found, written): (&u8, &u8)| *found != 0 && found != written;
            let offset = data.iter().zip(&written).position(differs);
            offset.map(|offset| Fault::Differs(Difference::Content { offset }))
        };
        if let Some(fault) = fault {
            let key = format!("block {block}");
            let (key, flags) = (key.as_bytes(), value.flags());
            wrong(&Value { key, flags, cas: None, value: data, raw: data }, fault);
        }
    }

    fn forget(memory: &mut VecDeque<u64>) {
        memory.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BLOCKS: Blocks = Blocks { block_bytes: 24, writes: 0.5, seed: 7 };

    fn fault(block: u64, answer: &[u8]) -> Option<Fault> {
        let Decoded::Complete { consumed, item } =
            BLOCKS.decode(&mut Dial::default(), Op::Read, answer)
        else {
            panic!("{answer:?}");
        };
        assert_eq!(consumed, answer.len());
        let mut found = None;
        BLOCKS.verify(&mut [block].into(), Op::Read, &item, |_, fault| found = Some(fault));
        found
    }

    fn answer(block: u64, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Reply { error: 0, cookie: block }.encode(&mut bytes);
        bytes.extend_from_slice(data);
        bytes
    }

    #[test]
    fn read_of_what_was_never_written_is_wrong() {
        let mut written = Vec::new();
        BLOCKS.value(3).append(&mut written);
        assert_eq!(fault(3, &answer(3, &written)), None);
        assert_eq!(fault(3, &answer(3, &[0; 24])), None);
        assert_eq!(fault(3, &answer(4, &written)), Some(Fault::NotAsked));
        assert!(matches!(fault(4, &answer(4, &written)), Some(Fault::Differs(_))));
        written[..8].fill(0);
        assert_eq!(fault(3, &answer(3, &written)), None);
        written[20] = !written[20] | 1;
        assert!(matches!(fault(3, &answer(3, &written)), Some(Fault::Differs(_))));
    }

    #[test]
    fn requests_lie_in_whole_blocks_and_half_of_them_write() {
        let mut requests = Requests { count: 5, ..BLOCKS.requests(0, 1) };
        let (mut writes, mut asked) = (0, [0; 5]);
        for _ in 0..1000 {
            let (mut bytes, mut memory) = (Vec::new(), VecDeque::new());
            let op = BLOCKS.append_next(&mut requests, &mut bytes, Some(&mut memory));
            let request = Request::decode(&bytes).unwrap().unwrap();
            assert_eq!((request.offset % 24, request.length), (0, 24));
            assert_eq!(memory, [request.offset / 24]);
            asked[(request.offset / 24) as usize] += 1;
            assert_eq!(bytes.len() - knee_nbd::REQUEST_BYTES, request.data_bytes());
            assert_eq!(request.command == Command::Write, op == Op::Write);
            writes += usize::from(op == Op::Write);
        }
        assert!((400..600).contains(&writes), "{writes}");
        assert!(asked.iter().all(|count| *count > 100), "{asked:?}");
    }
}
