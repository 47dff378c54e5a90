//! One client: its next request, and the check of answers.

use std::collections::HashMap;

use knee_random::Random;
use knee_rpc::queue::{
    ListQueuesRequest, Outgoing, ReadAllRequest, RemoveRequest, SendRequest, Stored,
};
use knee_telemetry::Op;

use super::content::{content, is_of};
use super::workload::{Identity, Receivers, Round, Workload};

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Send(SendRequest),
    List(ListQueuesRequest),
    ReadAll(ReadAllRequest),
    Remove(RemoveRequest),
}

impl Request {
    pub(super) fn op(&self) -> Op {
        match self {
            Request::Send(_) => Op::Send,
            Request::List(_) => Op::ListQueues,
            Request::ReadAll(_) => Op::ReadAll,
            Request::Remove(_) => Op::Remove,
        }
    }
}

/// A client's state.
#[derive(Debug)]
pub(crate) struct Talk {
    workload: Workload,
    /// The client's number.
    me: u32,
    /// The client's own queue.
    own: u32,
    random: Random,
    step: usize,
    sent: u64,
    /// The queue for reads and removals: chosen from the last list, or the client's own.
    chosen: Option<u32>,
    /// By queue: the last message that the client removed. Later messages have higher numbers.
    removed: HashMap<u32, u64>,
}

impl Talk {
    pub(super) fn new(workload: Workload, identity: Identity, random: Random) -> Talk {
        let Identity { client: me, queue: own } = identity;
        let (step, sent, removed) = Default::default();
        let chosen = (workload.round == Round::SendRemove).then_some(own);
        Talk { workload, me, own, random, step, sent, chosen, removed }
    }

    /// The next request. Without a chosen queue, reads and removals are skipped.
    pub(super) fn next(&mut self, everybody: &[u32]) -> Request {
        let receiver = self.me;
        loop {
            let steps = self.workload.round.steps();
            let step = steps[self.step % steps.len()];
            self.step += 1;
            match (step, self.chosen) {
                (Op::Send, _) => return Request::Send(self.message(everybody)),
                (Op::ListQueues, _) => return Request::List(ListQueuesRequest { receiver }),
                (Op::ReadAll, Some(queue)) => {
                    return Request::ReadAll(ReadAllRequest { receiver, queue });
                }
                (Op::Remove, Some(queue)) => {
                    let (count, wait_ms) = (1, 0);
                    return Request::Remove(RemoveRequest { receiver, queue, count, wait_ms });
                }
                _ => {}
            }
        }
    }

    fn message(&mut self, everybody: &[u32]) -> SendRequest {
        let receiver = match self.workload.receivers {
            Receivers::Any if !everybody.is_empty() => {
                everybody[self.random.below(everybody.len() as u64) as usize]
            }
            _ => self.me,
        };
        self.sent += 1;
        let content = content(self.me, self.sent, self.workload.characters);
        SendRequest {
            sender: self.me,
            messages: vec![Outgoing { receiver, queue: self.own, content }],
        }
    }

    pub(super) fn listed(&mut self, queues: &[u32]) {
        let drawn = |random: &mut Random| queues[random.below(queues.len() as u64) as usize];
        self.chosen = (!queues.is_empty()).then(|| drawn(&mut self.random));
    }

    /// Why these messages are a wrong answer to a request, if they are. `in_turn`: the client has one request in flight
    /// at a time.
    pub(super) fn fault(
        &mut self,
        request: &Request,
        messages: &[Stored],
        in_turn: bool,
    ) -> Option<&'static str> {
        let (asked, is_removed) = match request {
            Request::ReadAll(request) => (request.queue, false),
            Request::Remove(request) => (request.queue, true),
            _ => return None,
        };
        let mut last = 0;
        for message in messages {
            let Stored { id, sender, receiver, queue, ref content, .. } = *message;
            if queue != asked {
                return Some("a message is from another queue");
            }
            if receiver != self.me && receiver != 0 {
                return Some("a message is for another client");
            }
            if id <= std::mem::replace(&mut last, id) {
                return Some("messages are not in the order of their numbers");
            }
            if !is_of(content, sender, self.workload.characters) {
                return Some("a message does not have the content that its sender wrote");
            }
        }
        let before = if is_removed && in_turn { last } else { 0 };
        let removed = self.removed.entry(asked).or_default();
        let goes_back = before > 0 && before <= *removed;
        *removed = before.max(*removed);
        goes_back.then_some("a message was removed after a later message, or twice")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(round: Round, receivers: Receivers) -> Talk {
        let workload = Workload { round, receivers, characters: 20 };
        Talk::new(workload, Identity { client: 3, queue: 9 }, Random::stream(1, 2))
    }

    fn ops(talk: &mut Talk, count: usize) -> Vec<Op> {
        (0..count).map(|_| talk.next(&[3, 4]).op()).collect()
    }

    #[test]
    fn client_without_queue_skips_reads_and_removes() {
        let mut seed = talk(Round::SendListReadRemove, Receivers::Itself);
        assert_eq!(ops(&mut seed, 4), [Op::Send, Op::ListQueues, Op::Send, Op::ListQueues]);
        seed.listed(&[7]);
        let rest = [Op::ReadAll, Op::Remove, Op::Send, Op::ListQueues];
        assert_eq!(ops(&mut seed, 4), rest);
        let mut seed = talk(Round::ListReceiveSend, Receivers::Itself);
        assert_eq!(ops(&mut seed, 2), [Op::ListQueues, Op::Send]);
        seed.listed(&[7]);
        assert_eq!(ops(&mut seed, 3), [Op::ListQueues, Op::Remove, Op::Send]);
        seed.listed(&[]);
        assert_eq!(ops(&mut seed, 2), [Op::ListQueues, Op::Send]);
    }

    #[test]
    fn send_remove_uses_own_queue_unlisted() {
        let mut pairs = talk(Round::SendRemove, Receivers::Itself);
        assert_eq!(ops(&mut pairs, 3), [Op::Send, Op::Remove, Op::Send]);
        let Request::Remove(removal) = pairs.next(&[]) else { panic!("it is its turn") };
        assert_eq!((removal.receiver, removal.queue), (3, 9));
        assert_eq!(ops(&mut talk(Round::Send, Receivers::Itself), 2), [Op::Send, Op::Send]);
    }

    #[test]
    fn receivers_are_self_or_any_client() {
        let receivers = |receivers| {
            let mut talk = talk(Round::ListReceiveSend, receivers);
            let message = |_| talk.message(&[3, 4]).messages[0].receiver;
            let mut receivers: Vec<_> = (0..50).map(message).collect();
            receivers.sort_unstable();
            receivers.dedup();
            receivers
        };
        assert_eq!(receivers(Receivers::Itself), [3]);
        assert_eq!(receivers(Receivers::Any), [3, 4]);
    }

    #[test]
    fn wrong_messages_are_found() {
        let removal = RemoveRequest { receiver: 3, queue: 9, count: 1, wait_ms: 0 };
        let removal = Request::Remove(removal);
        let mut talk = talk(Round::ListReceiveSend, Receivers::Itself);
        let message = Stored {
            id: 5,
            sender: 4,
            receiver: 3,
            queue: 9,
            arrived_at_us: 0,
            content: content(4, 1, 20),
        };
        let mut fault = |message: Stored| talk.fault(&removal, &[message], true);
        assert_eq!(fault(message.clone()), None);
        assert!(fault(message.clone()).is_some_and(|fault| fault.ends_with("or twice")));
        assert!(fault(Stored { id: 4, ..message.clone() }).is_some());
        let next = Stored { id: 6, ..message };
        assert!(fault(Stored { receiver: 4, ..next.clone() }).is_some());
        assert!(fault(Stored { queue: 8, ..next.clone() }).is_some());
        assert!(fault(Stored { content: "something else".into(), ..next.clone() }).is_some());
        assert_eq!(fault(next), None);
    }
}
