//! Checks recorded histories, against a model of a queue and by sets of messages.
//!
//! The model is a first-in-first-out queue. todc-utils searches for an order of the operations that agrees with the
//! model (Wing & Gong 1993, Lowe 2017). Operations that did not overlap keep their order. The model takes only removes
//! with known answers. A remove of several messages counts as several removes at once: other clients may take a message
//! in between.
//!
//! The sets must agree after any fault. No message is received twice or without a send. No message with an answered
//! send is lost. No operation receives a message during another client's lease.

use std::collections::{HashMap, HashSet};

use knee_queue::operation::{ANYBODY, ClientId, QueueId};
use todc_utils::linearizability::history::{Action, History};
use todc_utils::{Specification, WGLChecker};

/// A message: its content, which no other message has, and its receiver.
pub(crate) type Message = (u64, ClientId);

/// An operation on a queue, with its answer.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Send {
        messages: Vec<Message>,
        is_known: bool,
    },
    /// `had`: the messages that the receiver got, at most `count`; `None` if the answer is unknown.
    Remove {
        receiver: ClientId,
        count: usize,
        had: Option<Vec<u64>>,
    },
    /// A leased message; without an attempt, the client extended the lease. The lease lasts from the answer until
    /// `until` at least.
    Lease {
        content: u64,
        attempt: Option<u32>,
        until: u64,
    },
    /// A message that the client acknowledged in time.
    Acknowledge {
        content: u64,
        is_known: bool,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    /// The client, which has one operation at a time.
    pub(crate) process: usize,
    pub(crate) queue: QueueId,
    /// In nanoseconds.
    pub(crate) began: u64,
    pub(crate) over: u64,
    pub(crate) operation: Operation,
}

/// Finds a contradiction in the sets of a history's messages.
pub(crate) fn contradiction(recorded: &[Recorded]) -> Option<String> {
    let (mut sent, mut answered, mut had) = (HashSet::new(), Vec::new(), HashSet::new());
    // Messages that an operation without an answer may have taken.
    let (mut taken_max, mut acknowledged) = (0, HashSet::new());
    for Recorded { operation, .. } in recorded {
        if let Operation::Send { messages, is_known } = operation {
            sent.extend(messages.iter().map(|(content, _)| *content));
            answered.extend(messages.iter().filter(|_| *is_known).map(|(content, _)| *content));
        }
    }
    for Recorded { operation, .. } in recorded {
        let contents = match operation {
            Operation::Send { .. } | Operation::Lease { .. } => &[][..],
            Operation::Remove { had: Some(contents), .. } => contents,
            Operation::Remove { had: None, count, .. } => {
                taken_max += count;
                &[]
            }
            Operation::Acknowledge { content, is_known: true } => std::slice::from_ref(content),
            Operation::Acknowledge { content, .. } => {
                acknowledged.insert(*content);
                &[]
            }
        };
        for content in contents {
            if !sent.contains(content) {
                return Some(format!("message {content} was received, but never sent"));
            }
            if !had.insert(*content) {
                return Some(format!("message {content} was received twice"));
            }
        }
    }
    let is_lost = |content: &&u64| !had.contains(*content) && !acknowledged.contains(*content);
    let lost: Vec<_> = answered.iter().filter(is_lost).collect();
    (lost.len() > taken_max).then(|| {
        format!(
            "messages {lost:?} were lost, but removes without an answer may have taken only {taken_max}"
        )
    })
}

/// Finds a contradiction in a history's leases: two leases of one attempt, or a message received during a lease.
pub(crate) fn broken_lease(recorded: &[Recorded]) -> Option<String> {
    let mut attempts = HashSet::new();
    // By message: when each operation that took it began and ended.
    let mut takings: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    for Recorded { operation, began, over, .. } in recorded {
        let contents = match operation {
            Operation::Remove { had: Some(contents), .. } => contents,
            Operation::Lease { content, attempt: Some(attempt), .. } => {
                if !attempts.insert((*content, *attempt)) {
                    return Some(format!(
                        "message {content} was leased twice in attempt {attempt}"
                    ));
                }
                std::slice::from_ref(content)
            }
            Operation::Acknowledge { content, is_known: true } => std::slice::from_ref(content),
            _ => &[],
        };
        for content in contents {
            takings.entry(*content).or_default().push((*began, *over));
        }
    }
    recorded.iter().find_map(|Recorded { operation, over: from, .. }| {
        let Operation::Lease { content, until, .. } = operation else { return None };
        let takings = takings.get(content)?;
        let (began, over) = takings.iter().find(|(began, over)| from < began && over < until)?;
        Some(format!("message {content}, leased {from}..{until}, was received in {began}..{over}"))
    })
}

/// Messages in the wrong order within an answer. A message must not stand before a message whose send was answered
/// before its own send began. Faults and leases do not change this order.
pub(crate) fn misplaced(recorded: &[Recorded]) -> Option<String> {
    let mut sends = HashMap::new();
    for Recorded { queue, began, over, operation, .. } in recorded {
        if let Operation::Send { messages, is_known: true } = operation {
            sends.extend(messages.iter().map(|(content, _)| ((*queue, *content), (*began, *over))));
        }
    }
    recorded.iter().find_map(|Recorded { queue, operation, .. }| {
        let Operation::Remove { had: Some(had), .. } = operation else { return None };
        let mut latest = 0;
        for content in had {
            // Not of a message that became a dead letter.
            let Some(&(began, over)) = sends.get(&(*queue, *content)) else { continue };
            if over < latest {
                return Some(format!("message {content} stands behind a later one in {had:?}"));
            }
            latest = latest.max(began);
        }
        None
    })
}

/// Whether each queue is a first-in-first-out queue.
pub(crate) fn is_fifo(recorded: &[Recorded]) -> bool {
    let mut queues: HashMap<QueueId, Vec<(u64, usize, Action<Step>)>> = HashMap::new();
    let mut processes = 0;
    for Recorded { queue, began, over, operation, .. } in recorded {
        let actions = queues.entry(*queue).or_default();
        // Each step is its own process, because the checker orders the steps of one process.
        for step in steps(operation) {
            actions.push((*began, processes, Action::Call(step.clone())));
            actions.push((*over, processes, Action::Response(step)));
            processes += 1;
        }
    }
    queues.into_values().all(|mut actions| {
        actions.sort_by_key(|(at, ..)| *at);
        let actions = actions.into_iter().map(|(_, process, action)| (process, action)).collect();
        WGLChecker::<Fifo>::is_linearizable(History::from_actions(actions))
    })
}

/// A change of a queue at one moment.
#[derive(Debug, Clone)]
enum Step {
    Send(Vec<Message>),
    Remove(ClientId, Option<u64>),
}

fn steps(operation: &Operation) -> Vec<Step> {
    match operation {
        Operation::Send { messages, is_known: true } => vec![Step::Send(messages.clone())],
        Operation::Remove { receiver, had: Some(had), .. } if had.is_empty() => {
            vec![Step::Remove(*receiver, None)]
        }
        Operation::Remove { receiver, had: Some(had), .. } => {
            had.iter().map(|content| Step::Remove(*receiver, Some(*content))).collect()
        }
        other => panic!("the model has no {other:?}"),
    }
}

/// A queue whose operations do not overlap.
struct Fifo;

impl Specification for Fifo {
    type State = Vec<Message>;
    type Operation = Step;

    fn init() -> Vec<Message> {
        Vec::new()
    }

    fn apply(step: &Step, state: &Vec<Message>) -> (bool, Vec<Message>) {
        let mut state = state.clone();
        let holds = match step {
            Step::Send(messages) => {
                state.extend(messages);
                true
            }
            Step::Remove(receiver, content) => {
                let first =
                    state.iter().position(|(_, whose)| [*receiver, ANYBODY].contains(whose));
                first.map(|first| state.remove(first).0) == *content
            }
        };
        (holds, state)
    }
}

#[test]
fn order_that_is_not_fifo_is_found() {
    let send = |content| Operation::Send { messages: vec![(content, ANYBODY)], is_known: true };
    let remove = |had: &[u64]| Operation::Remove { receiver: 1, count: 1, had: Some(had.to_vec()) };
    let at =
        |process, began, over, operation| Recorded { process, queue: 7, began, over, operation };
    for (history, expected) in [
        (vec![at(0, 0, 1, send(1)), at(0, 2, 3, send(2)), at(1, 4, 5, remove(&[1]))], true),
        (vec![at(0, 0, 1, send(1)), at(0, 2, 3, send(2)), at(1, 4, 5, remove(&[2]))], false),
        // Two removes that overlap may get the messages in either order.
        (
            vec![
                at(0, 0, 1, send(1)),
                at(0, 2, 3, send(2)),
                at(1, 4, 7, remove(&[1])),
                at(2, 5, 6, remove(&[2])),
            ],
            true,
        ),
        (vec![at(0, 0, 1, send(1)), at(1, 2, 3, remove(&[]))], false),
        (vec![at(0, 0, 2, send(1)), at(1, 1, 3, remove(&[]))], true),
    ] {
        assert_eq!(is_fifo(&history), expected, "{history:?}");
    }
}

#[test]
fn message_behind_a_later_one_is_found() {
    let send = |content| Operation::Send { messages: vec![(content, ANYBODY)], is_known: true };
    let at = |began, over, queue, operation| Recorded { process: 0, queue, began, over, operation };
    for (over, queue, had, expected) in [
        (1, 7, [1, 2], false),
        (1, 7, [2, 1], true),
        // The sends overlap, or one message comes from another queue.
        (3, 7, [2, 1], false),
        (1, 8, [2, 1], false),
    ] {
        let remove = Operation::Remove { receiver: 1, count: 2, had: Some(had.to_vec()) };
        let history = [at(0, over, 7, send(1)), at(2, 4, queue, send(2)), at(5, 6, 7, remove)];
        assert_eq!(misplaced(&history).is_some(), expected, "{history:?}");
    }
}

#[test]
fn broken_leases_are_found() {
    let lease = |over, attempt, until| Recorded {
        process: 0,
        queue: 1,
        began: over - 1,
        over,
        operation: Operation::Lease { content: 1, attempt, until },
    };
    let remove = |began, over| Recorded {
        process: 1,
        queue: 1,
        began,
        over,
        operation: Operation::Remove { receiver: 1, count: 1, had: Some(vec![1]) },
    };
    for (history, is_broken) in [
        (vec![lease(10, Some(1), 20), remove(21, 22)], false),
        (vec![lease(10, Some(1), 20), remove(15, 22)], false),
        (vec![lease(10, Some(1), 20), remove(15, 16)], true),
        (vec![lease(10, Some(1), 20), lease(30, Some(2), 40)], false),
        (vec![lease(10, Some(1), 20), lease(30, Some(1), 40)], true),
        (vec![lease(10, Some(1), 20), lease(15, Some(2), 40)], true),
        (vec![lease(10, Some(1), 20), lease(15, None, 30), remove(25, 26)], true),
    ] {
        assert_eq!(broken_lease(&history).is_some(), is_broken, "{history:?}");
    }
}

#[test]
fn lost_doubled_and_invented_messages_are_found() {
    let send = |content, is_known| Operation::Send { messages: vec![(content, 1)], is_known };
    let remove = |had: Option<&[u64]>| Operation::Remove {
        receiver: 1,
        count: 1,
        had: had.map(<[u64]>::to_vec),
    };
    let acknowledge = |is_known| Operation::Acknowledge { content: 1, is_known };
    for (operations, why) in [
        (vec![send(1, true), remove(Some(&[1]))], None),
        (vec![send(1, true), acknowledge(true)], None),
        (vec![send(1, true), acknowledge(false)], None),
        (vec![send(1, true), remove(None)], None),
        (vec![send(1, false)], None),
        (vec![send(1, true), remove(Some(&[]))], Some("lost")),
        (vec![send(1, true), send(2, true), remove(None)], Some("lost")),
        (vec![send(1, true), remove(Some(&[1])), acknowledge(true)], Some("twice")),
        (vec![remove(Some(&[1]))], Some("never sent")),
    ] {
        let recorded = |operation| Recorded { process: 0, queue: 1, began: 0, over: 0, operation };
        let history: Vec<_> = operations.into_iter().map(recorded).collect();
        let found = contradiction(&history);
        assert_eq!(found.is_some(), why.is_some(), "{history:?}");
        assert!(found.unwrap_or_default().contains(why.unwrap_or_default()), "{history:?}");
    }
}
