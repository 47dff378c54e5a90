//! The same keys behind memcached's protocol: each command writes one key.

use std::sync::Mutex;

use knee_kv_cache::engine::Version;

use crate::harness::{Client, Store};
use crate::linearizability::history::Operations;
use crate::linearizability::model::{Change, Condition, Outcome, Seen, Write, bytes_of, value_of};
use crate::linearizability::network::Remote;
use crate::linearizability::subject::Fault;

/// The keys of a history over gRPC, for memcached clients, each with its own connection.
pub(crate) struct Memcached<'a> {
    remote: &'a Remote<'a>,
    served: &'a Store,
    /// Idle clients.
    clients: Mutex<Vec<Client>>,
    fault: Option<Fault>,
}

impl<'a> Memcached<'a> {
    pub(crate) fn beside(remote: &'a Remote<'a>, served: &'a Store, fault: Option<Fault>) -> Self {
        Memcached { remote, served, clients: Mutex::new(Vec::new()), fault }
    }

    /// The answer to a command.
    fn answer(&self, command: &str) -> String {
        let idle = self.clients.lock().expect("not poisoned").pop();
        let mut client = idle.unwrap_or_else(|| self.served.client());
        let answer = client.answer(command);
        self.clients.lock().expect("not poisoned").push(client);
        answer
    }

    fn key(&self, key: usize) -> String {
        String::from_utf8(self.remote.key(key)).expect("it is text")
    }

    /// The command that stores a value.
    fn storing(&self, verb: &str, key: usize, value: &[u16], token: Option<Version>) -> String {
        let (key, value) = (self.key(key), String::from_utf8(bytes_of(value)).expect("it is text"));
        let token = token.map_or(String::new(), |token| format!(" {token}"));
        format!("{verb} {key} 0 0 {}{token}\r\n{value}\r\n", value.len())
    }

    fn commit(&self, write: &Write) -> Outcome {
        let key = self.key(write.key);
        let store = |verb, number, token| self.storing(verb, write.key, &[number], token);
        let command = match (write.condition, write.change) {
            (Condition::Always, Change::Put(number)) => store("set", number, None),
            (Condition::Absent, Change::Put(number)) => store("add", number, None),
            (Condition::Present, Change::Put(number)) => store("replace", number, None),
            (Condition::Version(version), Change::Put(number)) => {
                store("cas", number, Some(version + self.remote.base))
            }
            (Condition::Present, Change::Append(number)) => store("append", number, None),
            (Condition::Present, Change::Increment(delta)) => format!("incr {key} {delta}\r\n"),
            (Condition::Present, Change::Delete) => format!("delete {key}\r\n"),
            _ => unreachable!("there is no command for {write:?}"),
        };
        let answer = self.answer(&command);
        match (answer.trim_end(), write.condition) {
            ("STORED" | "DELETED", _) => Outcome::Done,
            // The key exists, in some version.
            ("NOT_STORED", Condition::Absent) | ("EXISTS", _) => Outcome::Rejected,
            ("NOT_STORED" | "NOT_FOUND", _) => Outcome::Refused(0, None),
            (answer, _) if answer.starts_with("CLIENT_ERROR cannot increment") => Outcome::Rejected,
            (sum, _) if sum.bytes().all(|byte| byte.is_ascii_digit()) => {
                Outcome::Made(value_of(sum.as_bytes()))
            }
            (other, _) => panic!("{other} is the answer to {command}"),
        }
    }

    /// Reads and then sets: memcached has no such command.
    fn write_unlocked(&self, write: &Write) -> Outcome {
        let there = self.read(write.key);
        let version = there.as_ref().map(|(version, _)| *version);
        let value = there.map(|(_, value)| value);
        if !write.condition.holds(version) || !write.change.takes(value.as_ref()) {
            return Outcome::Refused(0, version);
        }
        let Some(value) = write.change.of(value) else {
            return self.commit(write);
        };
        assert_eq!(self.answer(&self.storing("set", write.key, &value, None)), "STORED\r\n");
        Outcome::Done
    }
}

impl Operations for Memcached<'_> {
    fn read(&self, key: usize) -> Seen {
        let key = self.key(key);
        let answer = self.answer(&format!("gets {key}\r\n"));
        if answer == "END\r\n" {
            return None;
        }
        let words: Vec<&str> = answer.split_ascii_whitespace().collect();
        let ["VALUE", shown, _, _, token, value, "END"] = words[..] else {
            panic!("{answer}");
        };
        assert_eq!(shown, key);
        let version: Version = token.parse().expect("a number");
        Some((version - self.remote.base, value_of(value.as_bytes())))
    }

    fn scan(&self) -> Vec<(usize, Seen)> {
        unreachable!("there is no command for it")
    }

    fn write(&self, writes: &[Write]) -> Outcome {
        let [write] = writes else {
            unreachable!("there is no command for {writes:?}");
        };
        match self.fault {
            Some(Fault::DroppedLock) => self.write_unlocked(write),
            _ => self.commit(write),
        }
    }
}
