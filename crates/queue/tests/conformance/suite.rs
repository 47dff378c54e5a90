//! Tests that every database of messages must pass.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use knee_queue::database::{Arrival, Database, Failure, Stages};
use knee_queue::operation::{
    ANYBODY, Answer, Counts, Lease, Outgoing, QueueSettings, Request, Stored,
};
use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;

use crate::harness::desk::{Desk, LONG, PATIENCE, contents, lease_of, outgoing, settings};

/// A lease that ends during its test.
const SHORT: Duration = Duration::from_millis(150);

pub(crate) async fn messages_come_in_the_order_of_their_arrival(desk: &Arc<Desk<impl Database>>) {
    let (a, b) = (desk.client().await, desk.client().await);
    let queue = desk.queue(a).await;
    let mut ids = Vec::new();
    for (receiver, content) in [
        (a, "1"),
        (ANYBODY, "2"),
        (b, "not a's"),
        (ANYBODY, "3"),
        (a, "4"),
        (a, "5"),
        (ANYBODY, "6"),
    ] {
        ids.push(desk.send(b, receiver, queue, content).await);
    }
    assert!(ids.is_sorted());
    assert_eq!(contents(&desk.read(a, queue, 0, 10).await), ["1", "2", "3", "4", "5", "6"]);
    assert_eq!(contents(&desk.remove(a, queue, 1).await), ["1"]);
    assert_eq!(contents(&desk.remove(a, queue, 3).await), ["2", "3", "4"]);
    assert_eq!(contents(&desk.remove(b, queue, 1).await), ["not a's"]);
    assert_eq!(contents(&desk.remove(a, queue, 10).await), ["5", "6"]);
    assert_eq!(desk.remove(a, queue, 1).await, []);
    assert_eq!(desk.remove(b, queue, 2).await, []);
}

pub(crate) async fn content_is_kept_as_it_was_sent(desk: &Arc<Desk<impl Database>>) {
    let (a, b) = (desk.client().await, desk.client().await);
    let queue = desk.queue(a).await;
    let long = "ä€𝄞\\'\"\n".repeat(50_000);
    let id = desk.send(a, b, queue, &long).await;
    let empty = desk.send(a, ANYBODY, queue, "").await;
    let removed = desk.remove(b, queue, 2).await;
    let [first, second] = removed.as_slice() else { panic!("two of {removed:?}") };
    assert_eq!((first.id, first.sender, first.receiver, first.queue), (id, a, b, queue));
    assert!(first.content == long, "the content is the one that was sent");
    assert_eq!((second.id, second.receiver, second.content.as_str()), (empty, ANYBODY, ""));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age_us = i64::try_from(now.as_micros()).unwrap() - first.arrived_at_us;
    assert!((-1_000_000..60_000_000).contains(&age_us), "{age_us}");
}

pub(crate) async fn missing_client_or_queue_is_named(desk: &Arc<Desk<impl Database>>) {
    let (client, queue) = desk.begin().await;
    let before = desk.counts().await.messages;
    for missing in [client + 1000, u32::MAX] {
        for request in [
            Request::CreateQueue { creator: missing, settings: settings() },
            Request::Send { sender: missing, messages: vec![outgoing(client, queue, "x")] },
            Request::Send { sender: client, messages: vec![outgoing(missing, queue, "x")] },
            Request::ListQueues { receiver: missing },
            read(missing, queue),
            Request::ReadFrom { receiver: missing, sender: client },
            Request::ReadFrom { receiver: client, sender: missing },
            remove(missing, queue),
            lease(missing, queue),
        ] {
            not_there(desk, request, &format!("no client {missing}")).await;
        }
    }
    for nowhere in [queue + 1000, u32::MAX, 0] {
        let dead = QueueSettings { dead_letters: Some(nowhere), ..settings() };
        for request in [
            Request::CreateQueue { creator: client, settings: dead },
            Request::DeleteQueue { queue: nowhere },
            Request::Send { sender: client, messages: vec![outgoing(client, nowhere, "x")] },
            read(client, nowhere),
            remove(client, nowhere),
            lease(client, nowhere),
        ] {
            not_there(desk, request, &format!("no queue {nowhere}")).await;
        }
    }
    assert_eq!(desk.counts().await.messages, before);
}

fn read(receiver: u32, queue: u32) -> Request {
    Request::Read { receiver, queue, after: 0, count: 1, content_bytes_max: 1 }
}

fn remove(receiver: u32, queue: u32) -> Request {
    Request::Remove { receiver, queue, count: 1, content_bytes_max: 1 }
}

fn lease(receiver: u32, queue: u32) -> Request {
    Request::Lease { receiver, queue, count: 1, content_bytes_max: 1, visibility: LONG }
}

async fn not_there(desk: &Desk<impl Database>, request: Request, named: &str) {
    match desk.ask(request.clone()).await {
        Err(Failure::NotThere(text)) => assert!(text.contains(named), "{request:?}: {text}"),
        other => panic!("{request:?}: {other:?}"),
    }
}

pub(crate) async fn messages_of_a_send_are_sent_all_or_none(desk: &Arc<Desk<impl Database>>) {
    let (a, b) = (desk.client().await, desk.client().await);
    let (one, two) = (desk.queue(a).await, desk.queue(a).await);
    let ids = desk
        .send_all(
            a,
            vec![
                outgoing(b, two, "1"),
                outgoing(b, one, "2"),
                outgoing(ANYBODY, two, "3"),
                outgoing(b, two, "4"),
            ],
        )
        .await
        .unwrap();
    assert!(ids.len() == 4 && ids.is_sorted() && ids[0] < ids[1], "{ids:?}");
    let refused = desk
        .send_all(a, vec![outgoing(b, two, "5"), outgoing(b, two + 99, "6"), outgoing(b, one, "7")])
        .await;
    assert_eq!(refused, Err(Failure::NotThere(format!("there is no queue {}", two + 99))));
    assert_eq!(contents(&desk.remove(b, two, 9).await), ["1", "3", "4"]);
    assert_eq!(contents(&desk.remove(b, one, 9).await), ["2"]);
}

pub(crate) async fn queues_with_messages_are_listed(desk: &Arc<Desk<impl Database>>) {
    let (a, b) = (desk.client().await, desk.client().await);
    let mut queues = Vec::new();
    for _ in 0..5 {
        queues.push(desk.queue(a).await);
    }
    assert!(desk.queues(a).await.is_empty());
    for (receiver, queue) in
        [(a, 3), (a, 0), (a, 3), (ANYBODY, 1), (ANYBODY, 3), (b, 2), (b, 4), (ANYBODY, 4)]
    {
        desk.send(b, receiver, queues[queue], "x").await;
    }
    assert_eq!(desk.queues(a).await, [queues[0], queues[1], queues[3], queues[4]]);
    assert_eq!(desk.queues(b).await, [queues[1], queues[2], queues[3], queues[4]]);
    desk.remove(a, queues[0], 1).await;
    desk.lease(a, queues[1], 1, LONG).await;
    desk.delete(queues[4]).await.unwrap();
    assert_eq!(desk.queues(a).await, [queues[3]]);
    // Later tests list queues, too.
    for queue in [queues[1], queues[3]] {
        desk.delete(queue).await.unwrap();
    }
}

pub(crate) async fn reading_takes_pages_and_removes_nothing(desk: &Arc<Desk<impl Database>>) {
    let before = desk.counts().await.messages;
    let (client, queue) = desk.begin().await;
    let ids = desk
        .send_all(client, (0..20).map(|n| outgoing(n % 2 * client, queue, "0123456789")).collect())
        .await
        .unwrap();
    let mut seen: Vec<u64> = Vec::new();
    loop {
        let page = desk.read(client, queue, seen.last().copied().unwrap_or(0), 7).await;
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|message| message.id));
    }
    assert_eq!(seen, ids);
    // An answer ends with the message that reaches the limit.
    for (content_bytes_max, count) in [(0, 1), (1, 1), (10, 1), (11, 2), (25, 3), (1000, 20)] {
        let request =
            Request::Read { receiver: client, queue, after: 0, count: 50, content_bytes_max };
        assert_eq!(desk.messages(request).await.len(), count, "{content_bytes_max}");
    }
    assert_eq!(desk.counts().await.messages, before + 20);
    for count in [3, 20 - 3] {
        let request = Request::Remove {
            receiver: client,
            queue,
            count: 50,
            content_bytes_max: count as u64 * 10,
        };
        assert_eq!(desk.messages(request).await.len(), count);
    }
}

pub(crate) async fn oldest_message_from_a_sender_is_read(desk: &Arc<Desk<impl Database>>) {
    let (a, b, c) = (desk.client().await, desk.client().await, desk.client().await);
    let (one, two) = (desk.queue(a).await, desk.queue(a).await);
    desk.send(b, c, one, "not a's").await;
    desk.send(c, a, one, "not b's").await;
    desk.send(b, ANYBODY, two, "first").await;
    desk.send(b, a, one, "second").await;
    desk.send(b, a, two, "third").await;
    let from = Request::ReadFrom { receiver: a, sender: b };
    assert_eq!(contents(&desk.messages(from.clone()).await), ["first"]);
    assert_eq!(contents(&desk.messages(from.clone()).await), ["first"]);
    desk.delete(two).await.unwrap();
    assert_eq!(contents(&desk.messages(from.clone()).await), ["second"]);
    desk.lease(a, one, 2, LONG).await;
    assert_eq!(desk.messages(from).await, []);
}

pub(crate) async fn lease_hides_a_message_until_it_ends(desk: &Arc<Desk<impl Database>>) {
    let before = desk.counts().await.messages;
    let (a, b) = (desk.client().await, desk.client().await);
    let queue = desk.queue(a).await;
    for content in ["1", "2", "3", "4"] {
        desk.send(a, ANYBODY, queue, content).await;
    }
    let leased = desk.lease(a, queue, 3, LONG).await;
    assert_eq!(
        leased.iter().map(|(m, n)| (m.content.as_str(), *n)).collect::<Vec<_>>(),
        [("1", 1), ("2", 1), ("3", 1)]
    );
    assert_eq!(contents(&desk.read(b, queue, 0, 9).await), ["4"]);
    let [one, two, three] = [0, 1, 2].map(|n| lease_of(&leased[n]));

    // A lease is a message and an attempt.
    let other = Lease { attempt: 2, ..one };
    let huge = Lease { message: u64::MAX, attempt: u32::MAX };
    assert_eq!(desk.acknowledge(&[other, one, huge]).await, [other, huge]);
    assert_eq!(desk.acknowledge(&[one]).await, [one]);
    assert_eq!(desk.release(&[two, one]).await, [one]);
    assert_eq!(desk.release(&[two]).await, [two]);
    assert_eq!(desk.extend(&[three, two], LONG).await, [two]);

    // A returned message has its old place, and one more attempt.
    let leased = desk.lease(b, queue, 9, SHORT).await;
    assert_eq!(
        leased.iter().map(|(m, n)| (m.content.as_str(), *n)).collect::<Vec<_>>(),
        [("2", 2), ("4", 1)]
    );
    assert_eq!(desk.acknowledge(&[two]).await, [two]);
    // A late acknowledgement has no effect.
    let (again, attempt) = desk.lease_at_last(a, queue, LONG).await;
    assert_eq!((again.content.as_str(), attempt), ("2", 3));
    let late = lease_of(&leased[0]);
    assert_eq!(desk.acknowledge(&[late]).await, [late]);
    assert_eq!(desk.acknowledge(&[Lease { attempt: 3, ..late }, three]).await, []);
    assert_eq!(desk.at_last(async || desk.remove(b, queue, 1).await.pop()).await.content, "4");
    assert_eq!(desk.counts().await.messages, before);
}

pub(crate) async fn repeated_lease_counts_once(desk: &Arc<Desk<impl Database>>) {
    let (client, queue) = desk.begin().await;
    for content in ["acknowledged", "released"] {
        desk.send(client, client, queue, content).await;
    }
    let leased = desk.lease(client, queue, 2, LONG).await;
    let [acknowledged, released] = [0, 1].map(|n| lease_of(&leased[n]));
    assert_eq!(desk.extend(&[released, acknowledged, released], LONG).await, []);
    assert_eq!(desk.acknowledge(&[acknowledged, acknowledged]).await, []);
    assert_eq!(desk.release(&[released, acknowledged, released]).await, [acknowledged]);
    // The answer repeats an ended lease as often as the request.
    assert_eq!(desk.acknowledge(&[acknowledged, acknowledged]).await, [acknowledged; 2]);
    assert_eq!(contents(&desk.remove(client, queue, 9).await), ["released"]);
}

pub(crate) async fn extended_lease_outlives_its_first_end(desk: &Arc<Desk<impl Database>>) {
    let client = desk.client().await;
    let (queue, other) = (desk.queue(client).await, desk.queue(client).await);
    desk.send(client, client, queue, "x").await;
    desk.send(client, client, other, "y").await;
    let extended = async || {
        let lease = lease_of(&desk.lease_at_last(client, queue, SHORT).await);
        // On a busy machine, the lease may have ended before.
        desk.extend(&[lease], LONG).await.is_empty().then_some(lease)
    };
    let extended = desk.at_last(extended).await;
    desk.lease(client, other, 1, SHORT).await;
    // The lease that was not extended has ended; without its extension, the other one would have ended as well.
    desk.at_last(async || desk.remove(client, other, 1).await.pop()).await;
    assert_eq!(desk.remove(client, queue, 1).await, []);
    assert_eq!(desk.acknowledge(&[extended]).await, []);
}

pub(crate) async fn message_after_its_last_attempt_is_a_dead_letter(
    desk: &Arc<Desk<impl Database>>,
) {
    let (client, last) = desk.begin().await;
    let dead = QueueSettings { dead_letters: Some(last), attempts_max: 2, retention: None };
    let middle = desk.queue_with(client, dead).await;
    let first = desk.queue_with(client, QueueSettings { dead_letters: Some(middle), ..dead }).await;
    let for_ever = desk.queue_with(client, QueueSettings { attempts_max: 1, ..settings() }).await;
    let id = desk.send(client, client, first, "x").await;
    desk.send(client, client, for_ever, "y").await;
    // Two attempts in each queue: one lease expires, and one is released.
    for (queue, attempts) in [(first, [1, 2]), (middle, [3, 4])] {
        let (message, attempt) = desk.lease_at_last(client, queue, SHORT).await;
        assert_eq!((message.id, message.queue, attempt), (id, queue, attempts[0]));
        let second = desk.lease_at_last(client, queue, LONG).await;
        assert_eq!(second.1, attempts[1]);
        assert_eq!(desk.release(&[lease_of(&second)]).await, []);
        assert_eq!(desk.release(&[lease_of(&second)]).await, [lease_of(&second)]);
    }
    assert_eq!(desk.remove(client, first, 1).await, []);
    for attempt in 1..5 {
        let leased = desk.lease(client, for_ever, 1, LONG).await;
        assert_eq!(leased[0].1, attempt);
        desk.release(&[lease_of(&leased[0])]).await;
    }
    assert_eq!(desk.queues(client).await, [last, for_ever]);
    assert_eq!(desk.remove(client, last, 9).await[0].id, id);
}

pub(crate) async fn expired_messages_are_removed(desk: &Arc<Desk<impl Database>>) {
    let (a, b) = (desk.client().await, desk.client().await);
    let kept = desk.queue(a).await;
    let before = desk.counts().await.messages;
    let short = QueueSettings { retention: Some(Duration::from_millis(1)), ..settings() };
    let queue = desk.queue_with(a, short).await;
    for n in 0..10 {
        desk.send(a, [a, b, ANYBODY][n % 3], queue, "x").await;
        desk.send(a, a, kept, "y").await;
    }
    desk.at_last(async || (desk.counts().await.messages == before + 10).then_some(())).await;
    assert_eq!(desk.remove(a, queue, 9).await, []);
    assert_eq!(desk.read(a, kept, 0, 99).await.len(), 10);
}

pub(crate) async fn deleted_queue_disappears_at_once(desk: &Arc<Desk<impl Database>>) {
    let client = desk.client().await;
    let (queue, other) = (desk.queue(client).await, desk.queue(client).await);
    let before = desk.counts().await;
    for _ in 0..15 {
        let messages = (0..100).flat_map(|n| {
            let whose = [client, ANYBODY][n % 2];
            [outgoing(whose, queue, "x"), outgoing(whose, other, "y")]
        });
        desk.send_all(client, messages.collect()).await.unwrap();
    }
    let held = lease_of(&desk.lease(client, queue, 1, SHORT).await[0]);
    assert_eq!(desk.delete(queue).await, Ok(Answer::Done));
    let (messages, queues) = (before.messages + 1500, before.queues - 1);
    assert_eq!(desk.counts().await, Counts { messages, queues, ..before });
    for request in [
        read(client, queue),
        remove(client, queue),
        lease(client, queue),
        Request::DeleteQueue { queue },
        Request::Send { sender: client, messages: vec![outgoing(client, queue, "x")] },
    ] {
        not_there(desk, request, &format!("no queue {queue}")).await;
    }
    let queues = desk.queues(client).await;
    assert!(queues.contains(&other) && !queues.contains(&queue), "{queues:?}");
    assert_eq!(desk.acknowledge(&[held]).await, [held]);
    assert_eq!(desk.release(&[held]).await, [held]);
    assert!(desk.queue(client).await > queue.max(other), "a number is used twice");
    assert_eq!(desk.remove(client, other, 2000).await.len(), 1500);
}

pub(crate) async fn arrivals_are_announced(desk: &Arc<Desk<impl Database>>) {
    let (a, b) = (desk.client().await, desk.client().await);
    let (queue, dead) = (desk.queue(a).await, desk.queue(a).await);
    let limited = QueueSettings { dead_letters: Some(dead), attempts_max: 2, retention: None };
    let leased = desk.queue_with(a, limited).await;
    let mut arrivals = desk.0.arrivals();
    desk.send(b, a, queue, "x").await;
    announced(&mut arrivals, Arrival { queue, receiver: a }).await;
    desk.send_all(b, vec![outgoing(ANYBODY, leased, "x"), outgoing(b, queue, "y")]).await.unwrap();
    announced(&mut arrivals, Arrival { queue: leased, receiver: ANYBODY }).await;
    announced(&mut arrivals, Arrival { queue, receiver: b }).await;
    // A message arrives again when its lease expires, and when it is released.
    desk.lease(a, leased, 1, SHORT).await;
    announced(&mut arrivals, Arrival { queue: leased, receiver: ANYBODY }).await;
    let again = desk.lease_at_last(a, leased, LONG).await;
    desk.release(&[lease_of(&again)]).await;
    announced(&mut arrivals, Arrival { queue: dead, receiver: ANYBODY }).await;
    desk.delete(queue).await.unwrap();
    announced(&mut arrivals, Arrival { queue, receiver: ANYBODY }).await;
}

async fn announced(arrivals: &mut Receiver<Option<Arrival>>, expected: Arrival) {
    let heard = async { while arrivals.recv().await.expect("arrivals") != Some(expected) {} };
    timeout(PATIENCE, heard).await.unwrap_or_else(|_| panic!("{expected:?}"));
}

pub(crate) async fn messages_clients_and_queues_are_counted(desk: &Arc<Desk<impl Database>>) {
    assert_eq!(desk.counts().await, Counts { messages: 0, clients: 0, queues: 0 });
    let first = desk.ask(Request::RegisterMiddleware).await;
    let second = desk.ask(Request::RegisterMiddleware).await;
    assert!(matches!(first, Ok(Answer::Id(_))) && first != second, "{first:?} {second:?}");
    let (a, b) = (desk.client().await, desk.client().await);
    assert!(ANYBODY < a && a < b);
    let queue = desk.queue(a).await;
    for _ in 0..3 {
        desk.send(a, b, queue, "x").await;
    }
    desk.lease(b, queue, 1, LONG).await;
    assert_eq!(desk.counts().await, Counts { messages: 3, clients: 2, queues: 1 });
}

pub(crate) async fn concurrent_removes_share_without_loss(desk: &Arc<Desk<impl Database>>) {
    let (sender, queue) = desk.begin().await;
    let mut clients = Vec::new();
    for n in 0..200 {
        if n % 50 == 0 {
            clients.push(desk.client().await);
        }
        desk.send(sender, ANYBODY, queue, &n.to_string()).await;
    }
    let left = Arc::new(AtomicUsize::new(200));
    let removers: Vec<_> = clients
        .into_iter()
        .map(|client| {
            let (desk, left) = (Arc::clone(desk), Arc::clone(&left));
            tokio::spawn(async move {
                let mut mine: Vec<Stored> = Vec::new();
                while left.load(Ordering::Relaxed) > 0 {
                    let removed = desk.remove(client, queue, 1 + mine.len() as u32 % 3).await;
                    left.fetch_sub(removed.len(), Ordering::Relaxed);
                    mine.extend(removed);
                }
                mine
            })
        })
        .collect();
    let mut seen = HashSet::new();
    for remover in removers {
        // Hundreds of removes need more than the usual patience.
        let mine = timeout(3 * PATIENCE, remover).await.expect("none is lost").unwrap();
        assert!(mine.is_sorted_by_key(|message| message.id), "each in order");
        seen.extend(mine.iter().map(|message| message.content.clone()));
    }
    assert_eq!(seen.len(), 200);
}

/// Also if other removers took the messages that a remover saw, and left messages that came later.
pub(crate) async fn each_of_as_many_removers_as_messages_gets_one(desk: &Arc<Desk<impl Database>>) {
    let (client, queue) = desk.begin().await;
    let removers = (0..4).map(|_| {
        let desk = Arc::clone(desk);
        tokio::spawn(async move {
            for n in 0..100 {
                desk.send(client, [client, ANYBODY][n % 2], queue, "x").await;
                assert_eq!(desk.remove(client, queue, 1).await.len(), 1, "in round {n}");
            }
        })
    });
    for remover in removers.collect::<Vec<_>>() {
        remover.await.unwrap();
    }
}

pub(crate) async fn stages_follow_each_other(desk: &Arc<Desk<impl Database>>) {
    let (client, queue) = desk.begin().await;
    let message = Outgoing { receiver: client, queue, content: "x".to_owned() };
    for request in [Request::Send { sender: client, messages: vec![message] }, read(client, queue)]
    {
        let begun = std::time::Instant::now();
        let mut stages = Stages::default();
        desk.0.call(request, &mut stages).await.unwrap();
        let (connected, answered) = (stages.connected.unwrap(), stages.answered.unwrap());
        assert!(begun <= connected && connected <= answered, "{stages:?}");
        assert!(answered <= std::time::Instant::now());
    }
}
