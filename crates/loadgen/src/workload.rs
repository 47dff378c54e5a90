//! The workload of sets and gets, and the check of their answers.

use std::collections::VecDeque;

use knee_proto::encode;
use knee_proto::{Decoded, Expect, Response, ResponseDecoder, ResponseError, Status, Value};
use knee_random::Random;
use knee_telemetry::Op;

use crate::items::Items;
use crate::keys::{KeyChoice, KeyPicker};
use crate::mix::{MixPosition, SetGet};
use crate::traffic::{Fault, Judgement, Traffic, first_line};
use crate::values::VALUE_BYTES_MAX;

/// The largest number of keys in one multi-get.
pub(crate) const MULTIGET_MAX: u32 = 1000;

/// Sets and gets in the memcached protocol. All clients of a run share it.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) items: Items,
    pub(crate) choice: KeyChoice,
    pub(crate) set_get: SetGet,
    /// The number of keys in each retrieval.
    pub(crate) multiget: u32,
    pub(crate) seed: u64,
}

impl Workload {
    fn retrieval(&self) -> Op {
        if self.multiget == 1 { Op::Get } else { Op::Multiget }
    }

    /// Checks the values in the answer to a retrieval of the keys in `asked`. Calls `wrong` for each wrong value.
    /// Reorders `asked`.
    fn verify_values<'a>(
        &self,
        asked: &mut [u32],
        values: impl Iterator<Item = Value<'a>>,
        mut wrong: impl FnMut(&Value<'a>, Fault),
    ) {
        let mut found = 0;
        for value in values {
            let Some(key) = self.items.keys.number(value.key) else {
                wrong(&value, Fault::ForeignKey);
                continue;
            };
            // A single server answers in the order of the request, so the first comparison matches. A sharded system
            // answers in any order. A key that stands twice in the request may come twice.
            let Some(ahead) = asked[found..].iter().position(|asked| *asked == key) else {
                wrong(&value, Fault::NotAsked);
                continue;
            };
            asked.swap(found, found + ahead);
            found += 1;
            if let Some(difference) = self.items.value(key).differs(value.flags, value.value) {
                wrong(&value, Fault::Differs(difference));
            }
        }
    }
}

impl Traffic for Workload {
    type Requests = Requests;
    /// The keys of the retrievals in flight, in order.
    type Memory = VecDeque<u32>;
    type Decoder = ResponseDecoder;
    type Answer<'a> = Response<'a>;
    type Malformed = ResponseError;

    fn requests(&self, client: u64, clients: u64) -> Requests {
        let mut random = Random::stream(self.seed, client);
        let position = MixPosition::new(self.set_get, &mut random);
        let picker = KeyPicker::new(self.choice, self.items.keys.count(), client, clients);
        Requests { random, position, picker }
    }

    /// The answer to a retrieval of the largest values.
    fn response_bytes_max(&self) -> usize {
        self.multiget as usize * (VALUE_BYTES_MAX as usize + 512) + 4096
    }

    fn decoder(&self) -> ResponseDecoder {
        ResponseDecoder::new(self.response_bytes_max())
    }

    #[inline]
    fn append_next(
        &self,
        requests: &mut Requests,
        out: &mut Vec<u8>,
        mut memory: Option<&mut VecDeque<u32>>,
    ) -> Op {
        let Requests { random, position, picker } = requests;
        if position.next_is_set() {
            self.items.append_store("set", picker.pick(random), out);
            return Op::Set;
        }
        out.extend_from_slice(b"get");
        for _ in 0..self.multiget {
            let key = picker.pick(random);
            if let Some(asked) = &mut memory {
                asked.push_back(key);
            }
            out.push(b' ');
            self.items.keys.append(key, out);
        }
        encode::line_end(out);
        self.retrieval()
    }

    #[inline]
    fn keys_of(&self, op: Op) -> u32 {
        if op == Op::Set { 1 } else { self.multiget }
    }

    #[inline]
    fn decode<'a>(
        &self,
        decoder: &mut ResponseDecoder,
        op: Op,
        input: &'a [u8],
    ) -> Decoded<Response<'a>, ResponseError> {
        decoder.decode(input, if op == Op::Set { Expect::Line } else { Expect::Retrieval })
    }

    #[inline]
    fn judge(&self, op: Op, response: &Response<'_>) -> Judgement {
        if op == Op::Set {
            return Judgement { op, hits: 0, misses: 0, error: response.status != Status::Stored };
        }
        let error = response.status != Status::Values;
        let hits = (response.hits as u32).min(self.multiget);
        Judgement { op, hits, misses: if error { 0 } else { self.multiget - hits }, error }
    }

    fn shown(answer: &Response<'_>) -> String {
        first_line(answer.raw)
    }

    fn verify(
        &self,
        memory: &mut VecDeque<u32>,
        op: Op,
        response: &Response<'_>,
        wrong: impl FnMut(&Value<'_>, Fault),
    ) {
        if op == Op::Set {
            return;
        }
        let keys = self.multiget as usize;
        self.verify_values(&mut memory.make_contiguous()[..keys], response.values(), wrong);
        memory.drain(..keys);
    }

    fn forget(memory: &mut VecDeque<u32>) {
        memory.clear();
    }
}

/// One client's stream of requests.
#[derive(Debug)]
pub(crate) struct Requests {
    random: Random,
    position: MixPosition,
    picker: KeyPicker,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::keys::{KeyFormat, KeySpace};
    use crate::values::ValueSize;
    use knee_proto::{Limits, Request, RequestDecoder};

    fn workload(set_get: &str, multiget: u32) -> Workload {
        Workload {
            items: Items {
                keys: KeySpace::new("t-", KeyFormat::Padded, 50).unwrap(),
                value_size: ValueSize::Uniform { low: 0, high: 300 },
                ttl_s: 77,
            },
            choice: KeyChoice::Uniform,
            set_get: set_get.parse().unwrap(),
            multiget,
            seed: 3,
        }
    }

    /// The faults of an answer with these keys, flags and contents to a request of `asked`.
    fn faults(workload: &Workload, asked: &[u32], answer: &[(&[u8], u32, &[u8])]) -> Vec<Fault> {
        let values = answer.iter().map(|&(key, flags, value)| Value {
            key,
            flags,
            cas: None,
            value,
            raw: b"",
        });
        let mut faults = Vec::new();
        workload.verify_values(&mut asked.to_vec(), values, |_, fault| faults.push(fault));
        faults
    }

    /// A key's name, flags and content.
    fn stored(workload: &Workload, key: u32) -> (Vec<u8>, u32, Vec<u8>) {
        let (mut name, mut content) = (Vec::new(), Vec::new());
        workload.items.keys.append(key, &mut name);
        workload.items.value(key).append(&mut content);
        (name, workload.items.value(key).flags(), content)
    }

    #[test]
    fn requests_decode_as_drawn() {
        let workload = workload("1:2", 3);
        let mut requests = workload.requests(4, 9);
        let mut decoder = RequestDecoder::new(Limits::default());
        let (mut sets, mut gets) = (0, 0);
        for _ in 0..300 {
            let mut bytes = Vec::new();
            let mut asked = VecDeque::new();
            let op = workload.append_next(&mut requests, &mut bytes, Some(&mut asked));
            let Decoded::Complete { consumed, item } = decoder.decode(&bytes) else {
                panic!("{}", String::from_utf8_lossy(&bytes));
            };
            assert_eq!(consumed, bytes.len());
            match item {
                Request::Store(store) => {
                    assert_eq!(op, Op::Set);
                    let key = workload.items.keys.number(store.key).unwrap();
                    assert_eq!(workload.items.value(key).differs(store.flags, store.value), None);
                    assert_eq!((store.exptime, store.noreply), (77, false));
                    sets += 1;
                }
                Request::Get(get) => {
                    assert_eq!(op, Op::Multiget);
                    let keys: VecDeque<u32> =
                        get.keys().map(|key| workload.items.keys.number(key).unwrap()).collect();
                    assert_eq!(keys, asked);
                    assert_eq!(keys.len(), 3);
                    gets += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((sets, gets), (100, 200));
    }

    #[test]
    fn requests_repeat_for_a_seed_and_differ_by_client() {
        let workload = workload("1:1", 2);
        let stream = |client| {
            let mut requests = workload.requests(client, 8);
            let mut bytes = Vec::new();
            for _ in 0..50 {
                workload.append_next(&mut requests, &mut bytes, None);
            }
            bytes
        };
        assert_eq!(stream(2), stream(2));
        assert_ne!(stream(2), stream(3));
    }

    #[test]
    fn wrong_key_flags_or_content_is_a_fault() {
        let workload = workload("0:1", 3);
        let (name, flags, content) = stored(&workload, 7);
        let (other_name, other_flags, _) = stored(&workload, 8);

        let faults = |asked: &[u32], key: &[u8], flags| {
            faults(&workload, asked, &[(key, flags, content.as_slice())])
        };
        assert_eq!(faults(&[9, 7, 8], &name, flags), []);
        assert_eq!(faults(&[9, 8, 6], &name, flags), [Fault::NotAsked]);
        assert_eq!(faults(&[7], b"elsewhere", flags), [Fault::ForeignKey]);
        assert!(matches!(faults(&[7], &name, flags ^ 1)[..], [Fault::Differs(_)]));
        // The right value of another key.
        assert!(matches!(faults(&[8], &other_name, other_flags)[..], [Fault::Differs(_)]));
    }

    #[test]
    fn answer_in_any_order_and_with_repeated_keys_is_right() {
        let workload = workload("0:1", 3);
        let (seven, flags_seven, content_seven) = stored(&workload, 7);
        let (nine, flags_nine, content_nine) = stored(&workload, 9);
        let seven: (&[u8], u32, &[u8]) = (&seven, flags_seven, &content_seven);
        let nine: (&[u8], u32, &[u8]) = (&nine, flags_nine, &content_nine);
        assert_eq!(faults(&workload, &[7, 9, 7], &[nine, seven, seven]), []);
        assert_eq!(faults(&workload, &[7, 9, 7], &[seven, seven, seven, nine]), [Fault::NotAsked]);
    }
}
