//! The table of the servers, which all threads share: which servers are in, and what the others have missed.
//!
//! A server is *in* while it has every acknowledged write. Only servers that are in get reads. If a server may lack a
//! write, this table takes the server out and notes a deletion of the key, before the client gets its answer. The server
//! comes in again when
//!
//! * every thread has all its connections to the server,
//! * the server has closed its old connections with unanswered writes, which it might still execute, and
//! * the server has executed every deletion.
//!
//! So a server that returns may lack a key, but never has an older value. The reasons are in
//! `docs/decisions/0008-servers-out-and-in.md`.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::deletion::FLUSH;

/// Memory of a noted deletion besides its bytes.
const ENTRY_BYTES: usize = 48;
/// The most deletions that are sent at once.
const BATCH: usize = 512;

#[derive(Debug)]
pub(crate) struct Health {
    /// Bit set of the servers that are in.
    usable: AtomicU64,
    threads: usize,
    servers: Vec<Server>,
    /// Limit of the memory for a server's deletions. Beyond the limit, the server is flushed.
    missed_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Server {
    /// Number of ejections of a connected server. Threads close their connections of earlier terms.
    term: AtomicU64,
    absence: Mutex<Absence>,
}

#[derive(Debug, Default)]
struct Absence {
    /// Whether a thread has got an answer on a new connection of this term.
    answers: bool,
    /// Whether the server was in during this term.
    served: bool,
    /// Whether an ejection was reported, but not yet the return.
    reported: bool,
    /// Number of threads with all their connections.
    complete: usize,
    /// Number of open old connections with unanswered writes.
    lingering: usize,
    missed: HashSet<Vec<u8>>,
    missed_bytes: usize,
    /// The deletions that were sent, until all are answered, and the thread that sent them.
    deleting: Option<(usize, Vec<Vec<u8>>)>,
    /// Number of deletions executed in this absence.
    deleted: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ejection {
    /// Whether other threads may have connections of the ended term.
    pub(crate) spreads: bool,
    /// Whether the server was in.
    pub(crate) counts: bool,
    /// Whether to report it.
    pub(crate) is_new: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A condition of the return does not hold yet.
    Wait,
    Delete(Vec<Vec<u8>>),
    /// The server is in. If its ejection was reported, the number of deleted keys.
    In(Option<usize>),
}

impl Health {
    pub(crate) fn new(servers: usize, threads: usize, missed_bytes_max: usize) -> Health {
        Health {
            // A single server has no replacement.
            usable: AtomicU64::new(u64::from(servers == 1)),
            threads,
            servers: (0..servers).map(|_| Server::default()).collect(),
            missed_bytes_max,
        }
    }

    /// Bit set of the servers that are in.
    #[inline]
    pub(crate) fn usable(&self) -> u64 {
        self.usable.load(Ordering::Acquire)
    }

    pub(crate) fn is_in(&self, server: usize) -> bool {
        self.usable() >> server & 1 == 1
    }

    pub(crate) fn term(&self, server: usize) -> u64 {
        self.servers[server].term.load(Ordering::Acquire)
    }

    /// Whether the server has answered a thread since its ejection.
    pub(crate) fn answers(&self, server: usize) -> bool {
        self.absence(server).answers
    }

    fn absence(&self, server: usize) -> std::sync::MutexGuard<'_, Absence> {
        self.servers[server].absence.lock().expect("no thread panics with the lock")
    }

    /// The caller must hold the server's lock.
    fn take_out(&self, server: usize) {
        self.usable.fetch_and(!(1 << server), Ordering::SeqCst);
    }

    /// Takes a server out, because a connection of `term` failed. Ignores failures of earlier terms.
    pub(crate) fn eject(&self, server: usize, term: u64) -> Ejection {
        let mut absence = self.absence(server);
        if term != self.term(server) {
            return Ejection::default();
        }
        let ejection = Ejection {
            spreads: absence.answers,
            counts: absence.served,
            is_new: !absence.reported,
        };
        if ejection.spreads {
            self.servers[server].term.store(term + 1, Ordering::Release);
        }
        self.take_out(server);
        (absence.answers, absence.served, absence.reported) = (false, false, true);
        ejection
    }

    /// Notes an answer on a new connection of `term`; returns whether it is the first of this term.
    pub(crate) fn answered(&self, server: usize, term: u64) -> bool {
        let mut absence = self.absence(server);
        term == self.term(server) && !std::mem::replace(&mut absence.answers, true)
    }

    /// Notes that a thread has all its connections, or has lost one.
    pub(crate) fn set_complete(&self, server: usize, complete: bool) {
        let count = &mut self.absence(server).complete;
        *count = if complete { *count + 1 } else { *count - 1 };
    }

    /// Notes that an old connection with unanswered writes stays open, or has closed.
    pub(crate) fn set_lingering(&self, server: usize, lingers: bool) {
        let count = &mut self.absence(server).lingering;
        *count = if lingers { *count + 1 } else { *count - 1 };
    }

    /// Whether the server may still execute writes of an old connection. Until it closes them, it cannot return.
    pub(crate) fn lingers(&self, server: usize) -> bool {
        self.absence(server).lingering > 0
    }

    /// Takes a server out that may have missed a write, and notes the deletion of the key. Does nothing for a single
    /// server, because no other server can have a different value.
    pub(crate) fn miss(&self, server: usize, deletion: Vec<u8>) {
        if self.servers.len() == 1 {
            return;
        }
        let mut absence = self.absence(server);
        self.take_out(server);
        absence.miss(deletion, self.missed_bytes_max);
    }

    /// Returns the next step of a server's return, for a thread that has all its connections. A thread that
    /// needs no connections lacks none, but cannot delete.
    pub(crate) fn step(&self, server: usize, thread: usize, can_delete: bool) -> Step {
        let mut absence = self.absence(server);
        let is_whole = absence.answers || self.servers.len() == 1;
        if absence.complete < self.threads
            || !is_whole
            || absence.lingering > 0
            || absence.deleting.is_some()
        {
            return Step::Wait;
        }
        if absence.missed.is_empty() {
            self.usable.fetch_or(1 << server, Ordering::SeqCst);
            absence.served = true;
            let deleted = std::mem::take(&mut absence.deleted);
            return Step::In(std::mem::take(&mut absence.reported).then_some(deleted));
        }
        if !can_delete {
            return Step::Wait;
        }
        let batch: Vec<Vec<u8>> = absence.missed.iter().take(BATCH).cloned().collect();
        for deletion in &batch {
            absence.missed.remove(deletion);
            absence.missed_bytes -= deletion.len() + ENTRY_BYTES;
        }
        absence.deleting = Some((thread, batch.clone()));
        Step::Delete(batch)
    }

    /// Notes that the server has executed the deletions of the last step.
    pub(crate) fn deleted(&self, server: usize) {
        let mut absence = self.absence(server);
        if let Some((_, batch)) = absence.deleting.take() {
            absence.deleted += batch.len();
        }
    }

    /// Notes the deletions of the last step again if `thread` sent them, because their outcome is unknown.
    pub(crate) fn give_back(&self, server: usize, thread: usize) {
        let mut absence = self.absence(server);
        if let Some((_, batch)) = absence.deleting.take_if(|(keeper, _)| *keeper == thread) {
            let most = self.missed_bytes_max;
            batch.into_iter().for_each(|deletion| absence.miss(deletion, most));
        }
    }
}

impl Absence {
    fn miss(&mut self, deletion: Vec<u8>, bytes_max: usize) {
        if self.missed.contains(FLUSH) {
            return;
        }
        let bytes = deletion.len() + ENTRY_BYTES;
        if deletion == FLUSH || self.missed_bytes + bytes > bytes_max {
            self.missed = HashSet::from([FLUSH.to_vec()]);
            self.missed_bytes = FLUSH.len() + ENTRY_BYTES;
        } else if self.missed.insert(deletion) {
            self.missed_bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads with all their connections to two servers.
    fn health() -> Health {
        let health = Health::new(2, 2, 1 << 20);
        for server in 0..2 {
            assert_eq!(health.step(server, 0, true), Step::Wait);
            for _ in 0..2 {
                health.answered(server, 0);
                health.set_complete(server, true);
            }
            assert_eq!(health.step(server, 0, true), Step::In(None));
        }
        health
    }

    #[test]
    fn server_that_missed_a_write_is_out_until_its_key_is_deleted() {
        let health = health();
        health.miss(1, b"delete a\r\n".to_vec());
        assert_eq!(health.usable(), 0b01);
        assert_eq!(health.step(1, 0, true), Step::Delete(vec![b"delete a\r\n".to_vec()]));
        assert_eq!(health.step(1, 1, true), Step::Wait);
        // Thread 1 has lost its connection, but thread 0 sent the deletion.
        health.give_back(1, 1);
        assert_eq!(health.step(1, 1, true), Step::Wait);
        health.give_back(1, 0);
        assert_eq!(health.step(1, 1, true), Step::Delete(vec![b"delete a\r\n".to_vec()]));
        health.miss(1, b"delete b\r\n".to_vec());
        health.deleted(1);
        assert_eq!(health.step(1, 1, true), Step::Delete(vec![b"delete b\r\n".to_vec()]));
        health.deleted(1);
        assert_eq!(health.step(1, 1, true), Step::In(None));
        assert_eq!(health.usable(), 0b11);
    }

    #[test]
    fn ejected_server_waits_for_every_thread_and_old_connection() {
        let health = health();
        assert_eq!(health.eject(0, 0), Ejection { spreads: true, counts: true, is_new: true });
        // The other threads' connections of that term fail, too; so does the next attempt.
        assert_eq!(health.eject(0, 0), Ejection::default());
        assert_eq!(health.eject(0, 1), Ejection::default());
        health.set_lingering(0, true);
        health.set_complete(0, false);
        assert!(health.answered(0, 1) && !health.answered(0, 1) && !health.answered(0, 0));
        assert_eq!(health.step(0, 0, true), Step::Wait);
        health.set_complete(0, true);
        assert_eq!(health.step(0, 0, true), Step::Wait);
        health.set_lingering(0, false);
        assert_eq!(health.step(0, 0, true), Step::In(Some(0)));
    }

    #[test]
    fn too_many_missed_keys_become_a_flush() {
        let health = health();
        for number in 0..30_000 {
            health.miss(0, format!("delete {number}\r\n").into_bytes());
        }
        assert_eq!(health.step(0, 0, true), Step::Delete(vec![FLUSH.to_vec()]));
    }
}
