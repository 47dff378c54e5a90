//! What clients ask for, and whether the answers are right.

use knee_proto::encode;
use knee_proto::{Expect, Response, Status, Value};
use knee_random::Random;
use knee_telemetry::Op;

use crate::keys::{KeyChoice, KeyPicker, KeySpace};
use crate::mix::{SetGet, Turn};
use crate::values::{Difference, KeyValue, ValueSize};

/// The largest number of keys in one multi-get.
pub(crate) const MULTIGET_MAX: u32 = 1000;

/// What all clients of a run have in common.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) keys: KeySpace,
    pub(crate) choice: KeyChoice,
    pub(crate) value_size: ValueSize,
    pub(crate) set_get: SetGet,
    /// Keys of each retrieval.
    pub(crate) multiget: u32,
    pub(crate) seed: u64,
}

impl Workload {
    /// The value that belongs to a key.
    #[inline]
    pub(crate) fn value(&self, key: u32) -> KeyValue {
        KeyValue::of(self.value_size, self.keys.hash(key))
    }

    /// Appends the `set` of a key's value.
    #[inline]
    pub(crate) fn append_set(&self, key: u32, out: &mut Vec<u8>) {
        let value = self.value(key);
        out.reserve(self.keys.key_bytes() + value.bytes as usize + 32);
        out.extend_from_slice(b"set ");
        self.keys.append(key, out);
        out.push(b' ');
        encode::number(u64::from(value.flags()), out);
        out.extend_from_slice(b" 0 ");
        encode::number(u64::from(value.bytes), out);
        encode::line_end(out);
        value.append(out);
        encode::line_end(out);
    }

    /// What retrievals are counted as.
    pub(crate) fn retrieval(&self) -> Op {
        if self.multiget == 1 { Op::Get } else { Op::Multiget }
    }

    /// Checks the values that a retrieval of the keys in `asked` brought, and tells `wrong` of those
    /// that are not right. `asked` is reordered.
    pub(crate) fn verify<'a>(
        &self,
        asked: &mut [u32],
        values: impl Iterator<Item = Value<'a>>,
        mut wrong: impl FnMut(&Value<'a>, Fault),
    ) {
        let mut found = 0;
        for value in values {
            let Some(key) = self.keys.number(value.key) else {
                wrong(&value, Fault::ForeignKey);
                continue;
            };
            // Servers answer in the order asked, so this is a short walk; a system that shards may
            // answer in any order. A key asked for twice may come twice, and no more often.
            let Some(ahead) = asked[found..].iter().position(|asked| *asked == key) else {
                wrong(&value, Fault::NotAsked);
                continue;
            };
            asked.swap(found, found + ahead);
            found += 1;
            if let Some(difference) = self.value(key).differs(value.flags, value.value) {
                wrong(&value, Fault::Differs(difference));
            }
        }
    }
}

/// What is wrong with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It has a key that is none of the run's.
    ForeignKey,
    /// It has a key that the request did not ask for (or not so often).
    NotAsked,
    /// It is not the value that belongs to its key.
    Differs(Difference),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::ForeignKey => f.write_str("it is none of this run's keys"),
            Fault::NotAsked => f.write_str("the request did not ask for that key"),
            Fault::Differs(difference) => difference.fmt(f),
        }
    }
}

/// One client's stream of requests.
///
/// It depends on the workload and the client's number only: not on the answers, on time, or on how
/// clients share threads.
#[derive(Debug)]
pub(crate) struct Requests {
    random: Random,
    turn: Turn,
    picker: KeyPicker,
}

impl Requests {
    /// The stream of client number `client` of `clients`.
    pub(crate) fn new(workload: &Workload, client: u64, clients: u64) -> Requests {
        let mut random = Random::stream(workload.seed, client);
        let turn = Turn::new(workload.set_get, &mut random);
        let picker = KeyPicker::new(workload.choice, workload.keys.count(), client, clients);
        Requests { random, turn, picker }
    }

    /// Appends the next request to `out` and tells its type; `asked` is called with each key of a
    /// retrieval.
    #[inline]
    pub(crate) fn append_next(
        &mut self,
        workload: &Workload,
        out: &mut Vec<u8>,
        mut asked: impl FnMut(u32),
    ) -> Op {
        if self.turn.next_is_set() {
            workload.append_set(self.picker.pick(&mut self.random), out);
            return Op::Set;
        }
        out.extend_from_slice(b"get");
        for _ in 0..workload.multiget {
            let key = self.picker.pick(&mut self.random);
            asked(key);
            out.push(b' ');
            workload.keys.append(key, out);
        }
        encode::line_end(out);
        workload.retrieval()
    }
}

/// The shape of the answer to a request.
#[inline]
pub(crate) fn expect(op: Op) -> Expect {
    if op == Op::Set { Expect::Line } else { Expect::Retrieval }
}

/// Whether `response` is what a request of this type asks for: a set stored, a retrieval completed.
#[inline]
pub(crate) fn succeeded(op: Op, response: &Response<'_>) -> bool {
    let wanted = if op == Op::Set { Status::Stored } else { Status::Values };
    response.status == wanted
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use knee_proto::{Decoded, Limits, Request, RequestDecoder};

    fn workload(set_get: &str, multiget: u32) -> Workload {
        Workload {
            keys: KeySpace::new("t-", 50).unwrap(),
            choice: KeyChoice::Uniform,
            value_size: ValueSize::Uniform { low: 0, high: 300 },
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
        workload.verify(&mut asked.to_vec(), values, |_, fault| faults.push(fault));
        faults
    }

    /// A key's name, flags and content.
    fn stored(workload: &Workload, key: u32) -> (Vec<u8>, u32, Vec<u8>) {
        let (mut name, mut content) = (Vec::new(), Vec::new());
        workload.keys.append(key, &mut name);
        workload.value(key).append(&mut content);
        (name, workload.value(key).flags(), content)
    }

    #[test]
    fn requests_are_what_a_server_decodes() {
        let workload = workload("1:2", 3);
        let mut requests = Requests::new(&workload, 4, 9);
        let mut decoder = RequestDecoder::new(Limits::default());
        let (mut sets, mut gets) = (0, 0);
        for _ in 0..300 {
            let mut bytes = Vec::new();
            let mut asked = Vec::new();
            let op = requests.append_next(&workload, &mut bytes, |key| asked.push(key));
            let Decoded::Complete { consumed, item } = decoder.decode(&bytes) else {
                panic!("{}", String::from_utf8_lossy(&bytes));
            };
            assert_eq!(consumed, bytes.len());
            match item {
                Request::Store(store) => {
                    assert_eq!(op, Op::Set);
                    let key = workload.keys.number(store.key).unwrap();
                    assert_eq!(workload.value(key).differs(store.flags, store.value), None);
                    assert_eq!((store.exptime, store.noreply), (0, false));
                    sets += 1;
                }
                Request::Get(get) => {
                    assert_eq!(op, Op::Multiget);
                    let keys: Vec<u32> =
                        get.keys().map(|key| workload.keys.number(key).unwrap()).collect();
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
    fn a_clients_requests_repeat_for_a_seed_and_differ_from_another_clients() {
        let workload = workload("1:1", 2);
        let stream = |client| {
            let mut requests = Requests::new(&workload, client, 8);
            let mut bytes = Vec::new();
            for _ in 0..50 {
                requests.append_next(&workload, &mut bytes, |_| {});
            }
            bytes
        };
        assert_eq!(stream(2), stream(2));
        assert_ne!(stream(2), stream(3));
    }

    #[test]
    fn values_are_checked_for_key_flags_and_content() {
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
    fn a_key_may_come_back_as_often_as_it_was_asked_for_in_any_order() {
        let workload = workload("0:1", 3);
        let (seven, flags_seven, content_seven) = stored(&workload, 7);
        let (nine, flags_nine, content_nine) = stored(&workload, 9);
        let seven: (&[u8], u32, &[u8]) = (&seven, flags_seven, &content_seven);
        let nine: (&[u8], u32, &[u8]) = (&nine, flags_nine, &content_nine);
        assert_eq!(faults(&workload, &[7, 9, 7], &[nine, seven, seven]), []);
        assert_eq!(faults(&workload, &[7, 9, 7], &[seven, seven, seven, nine]), [Fault::NotAsked]);
    }
}
