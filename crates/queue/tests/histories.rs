//! Random histories of clients who send, look, remove and lease at once, while faults happen: nothing that was
//! acknowledged is lost or hidden, nothing is had twice, and order holds. See `harness/verdict.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use knee_queue::database::{Arrival, Database, Failure, Stages};
use knee_queue::operation::{ANYBODY, Answer, MessageId, QueueId, Request, Stored};
use knee_queue::postgres::{Options, Postgres};
use knee_queue::sqlite::{self, Sqlite};
use knee_random::Random;
use tokio::sync::broadcast;
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::harness::cluster::{Cluster, Stop};
use crate::harness::desk::Desk;
use crate::harness::history::{CLIENTS, History, Mix, QUEUES, seeds};
use crate::harness::server::Server;
use crate::harness::verdict::{Event, Span, verify};

const MIXES: [Mix; 2] = [Mix::Removes, Mix::All];

/// Two servers of one database.
async fn two(options: &Options) -> [Postgres; 2] {
    [Postgres::open(options).await.unwrap(), Postgres::open(options).await.unwrap()]
}

async fn nothing_happens() -> Vec<Event> {
    Vec::new()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_had_twice_in_sqlite() {
    let options = sqlite::Options { file: None, durable: true, tell: |_| {} };
    for seed in seeds() {
        for mix in MIXES {
            let history = History::new([Sqlite::open(&options).unwrap()], mix).await;
            history.check(seed, 400, nothing_happens).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_had_twice_in_postgresql() {
    let cluster = Cluster::start(false);
    for seed in seeds() {
        for (combine_max, mix) in [1, 8].into_iter().flat_map(|most| MIXES.map(|mix| (most, mix))) {
            let options = Options { connections: 3, combine_max, ..cluster.migrated().await };
            let history = History::new(two(&options).await, mix).await;
            history.check(seed, 100, nothing_happens).await;
        }
    }
}

/// Floors rise meanwhile, removers are undone, senders take their time, and an old snapshot stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_behind_an_old_snapshot_when_removers_are_undone_and_senders_late() {
    let cluster = Cluster::start(false);
    for (seed, mix) in seeds().flat_map(|seed| MIXES.map(|mix| (seed, mix))) {
        let options = cluster.migrated().await;
        let database = options.address.rsplit('/').next().unwrap();
        let history = History::new(two(&options).await, mix).await;
        let old = cluster.connect(database).await;
        old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM knee_queue.message")
            .await
            .unwrap();
        let (undone, late) = (cluster.connect(database).await, cluster.connect(database).await);
        let faulty = Arc::clone(&history);
        let faults = async || {
            let (hidden, sent) = tokio::join!(
                undo(&faulty, &undone, Random::stream(seed, 98)),
                send_late(&faulty, &late, Random::stream(seed, 99))
            );
            faulty.stop();
            [hidden, sent].concat()
        };
        history.check(seed, u32::MAX, faults).await;
    }
}

/// Removes, and sends, that come to nothing; and numbers that nobody has.
async fn undo<D: Server>(history: &History<D>, undone: &Client, mut random: Random) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..60 {
        let client = history.clients[random.below(CLIENTS) as usize];
        let queue = history.queues[random.below(QUEUES as u64) as usize];
        let end = if random.below(3) == 0 { "COMMIT" } else { "ROLLBACK" };
        let call = if end == "COMMIT" {
            "SELECT pg_current_xact_id(), nextval('knee_queue.message_id')".to_owned()
        } else {
            format!(
                "SELECT knee_queue.take({client}, {queue}, 3, 99999, NULL, 0, 0, 0);
                 SELECT knee_queue.send({client}, {client}, {queue}, 'never')"
            )
        };
        let begun = Instant::now();
        undone.batch_execute(&format!("BEGIN; {call}")).await.unwrap();
        sleep(Duration::from_millis(random.below(40))).await;
        undone.batch_execute(end).await.unwrap();
        events.push(Event::Hidden { queue, span: Span::since(begun) });
    }
    events
}

/// Messages that have their numbers long before anybody sees them: it has been looked meanwhile, more than
/// once, what is decided.
async fn send_late<D: Server>(
    history: &History<D>,
    late: &Client,
    mut random: Random,
) -> Vec<Event> {
    let mut events = Vec::new();
    for round in 0..3 {
        let begun = Instant::now();
        late.batch_execute("BEGIN").await.unwrap();
        let mut messages = Vec::new();
        for (n, &queue) in history.queues.iter().enumerate() {
            let receiver = match random.below(CLIENTS + 1) as usize {
                n if n < history.clients.len() => history.clients[n],
                _ => ANYBODY,
            };
            let content = format!("late {round} {n}");
            let send =
                format!("SELECT id FROM knee_queue.send(0, {receiver}, {queue}, '{content}')");
            let id: i64 = late.query_one(&send, &[]).await.unwrap().get(0);
            messages.push((content, queue, receiver, Some(id.unsigned_abs())));
        }
        sleep(Duration::from_millis(600 + random.below(200))).await;
        late.batch_execute("COMMIT").await.unwrap();
        let span = Span::since(begun);
        let sent =
            |(content, queue, receiver, id)| Event::Sent { content, queue, receiver, id, span };
        events.extend(messages.into_iter().map(sent));
    }
    events
}

/// Its own and nobody's messages come in their order also to who has looked what there is, and takes it when
/// more has been sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_holds_where_messages_are_sent_while_others_are_taken() {
    let cluster = Cluster::start(false);
    for (seed, combine_max) in seeds().flat_map(|seed| [1, 8].map(|most| (seed, most))) {
        let connections = CLIENTS as usize;
        let options = Options { connections, combine_max, ..cluster.migrated().await };
        let database = options.address.rsplit('/').next().unwrap();
        let history = History::new(two(&options).await, Mix::Drains).await;
        let senders = [cluster.connect(database).await, cluster.connect(database).await];
        let faulty = Arc::clone(&history);
        let faults = async || {
            let sent = send_between(&faulty, &senders, Random::stream(seed, 97)).await;
            faulty.stop();
            sent
        };
        history.check(seed, u32::MAX, faults).await;
    }
}

/// Two messages, one after the other, by senders who keep out whoever takes messages: he has looked when the
/// first is sent, and goes on behind the second.
async fn send_between<D: Server>(
    history: &History<D>,
    senders: &[Client; 2],
    mut random: Random,
) -> Vec<Event> {
    const LOCK: &str = "BEGIN; LOCK TABLE knee_queue.message IN EXCLUSIVE MODE";
    // Those who have a weaker lock already and want another come before who waits for this one, but only where
    // somebody looks for deadlocks.
    for sender in senders {
        sender.batch_execute("SET deadlock_timeout = '5ms'").await.unwrap();
    }
    let mut events = Vec::new();
    for round in 0..60 {
        let queue = history.queues[random.below(QUEUES as u64) as usize];
        let mut whose = [history.clients[random.below(CLIENTS) as usize], ANYBODY];
        whose.rotate_left(random.below(2) as usize);
        senders[0].batch_execute(LOCK).await.unwrap();
        let (locked, first) = tokio::join!(senders[1].batch_execute(LOCK), async {
            // The second one waits behind the first by then, and others behind both.
            sleep(Duration::from_millis(5)).await;
            commit(&senders[0], format!("first {round}"), queue, whose[0]).await
        });
        locked.unwrap();
        events.push(first);
        events.push(commit(&senders[1], format!("second {round}"), queue, whose[1]).await);
    }
    events
}

/// Sends a message, and commits with it.
async fn commit(sender: &Client, content: String, queue: u32, receiver: u32) -> Event {
    let begun = Instant::now();
    let send = format!("SELECT id FROM knee_queue.send(0, {receiver}, {queue}, '{content}')");
    let id: i64 = sender.query_one(&send, &[]).await.unwrap().get(0);
    sender.batch_execute("COMMIT").await.unwrap();
    let id = Some(id.unsigned_abs());
    Event::Sent { content, queue, receiver, id, span: Span::since(begun) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_connections_are_cut() {
    let cluster = Cluster::start(false);
    for seed in seeds() {
        for (combine_max, mix) in
            [(1, Mix::Removes), (8, Mix::All), (1, Mix::All), (8, Mix::Drains)]
        {
            let options = Options { combine_max, ..cluster.migrated().await };
            let database = options.address.rsplit('/').next().unwrap();
            cluster.log_calls(database).await;
            let history = History::new(two(&options).await, mix).await;
            let killer = cluster.connect(database).await;
            let faulty = Arc::clone(&history);
            let faults = async || {
                for n in 0..12 {
                    // Once in a while, when floors are up again.
                    if n % 4 == 0 {
                        cluster.floors_are_up(0).await;
                    }
                    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                               WHERE application_name = 'knee-queue'
                                   AND datname = current_database()
                               ORDER BY random() LIMIT 2";
                    killer.query(cut, &[]).await.unwrap();
                    sleep(Duration::from_millis(30)).await;
                }
                faulty.stop();
                Vec::new()
            };
            history.check(seed, u32::MAX, faults).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_restarts() {
    let mut cluster = Cluster::start(true);
    for (seed, combine_max) in seeds().flat_map(|seed| [1, 8].map(|most| (seed, most))) {
        let options = Options { combine_max, ..cluster.migrated().await };
        cluster.log_calls(options.address.rsplit('/').next().unwrap()).await;
        let history = History::new(two(&options).await, Mix::All).await;
        let faulty = Arc::clone(&history);
        let faults = async || {
            for how in [Stop::Fast, Stop::Immediate, Stop::Immediate] {
                cluster.floors_are_up(0).await;
                cluster.stop(how);
                cluster.restart();
            }
            cluster.floors_are_up(0).await;
            faulty.stop();
            Vec::new()
        };
        history.check(seed, u32::MAX, faults).await;
    }
}

/// As by whoever has a backup, or a standby that lags behind: what was removed meanwhile is there again, and
/// what was sent is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_copy_of_the_database_has_is_found_in_its_order() {
    let mut cluster = Cluster::start(false);
    let options = cluster.migrated().await;
    cluster.log_calls(options.address.rsplit('/').next().unwrap()).await;
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    // Connections that were lost meanwhile are found out by who uses them.
    let remove = async || {
        let (receiver, count, content_bytes_max) = (client, 1, u64::MAX);
        let request = Request::Remove { receiver, queue, count, content_bytes_max };
        desk.at_last(async || match desk.ask(request.clone()).await {
            Ok(Answer::Messages(mut messages)) => Some(messages.pop()),
            _ => None,
        })
        .await
    };
    let mut sent = Vec::new();
    for n in 0..20 {
        let receiver = [client, ANYBODY][n % 2];
        sent.push(desk.send(client, receiver, queue, &n.to_string()).await);
    }
    cluster.stop(Stop::Fast);
    cluster.keep_copy();
    cluster.restart();
    for &id in &sent {
        assert_eq!(remove().await.unwrap().id, id);
    }
    let removing = async {
        loop {
            assert_eq!(remove().await, None);
        }
    };
    tokio::select! {
        () = removing => {}
        () = cluster.floors_are_up(sent[19]) => {}
    }
    cluster.stop(Stop::Immediate);
    cluster.put_copy_back();
    cluster.restart();
    for &id in &sent {
        assert_eq!(remove().await.map(|message| message.id), Some(id));
    }
    assert_eq!(remove().await, None);
}

/// A database that does to dead letters what it should not.
struct Broken {
    database: Sqlite,
    breaks: Breaks,
    limited: Arc<Mutex<Limited>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breaks {
    /// One of them is not there when it is removed.
    Loses,
    /// One of them is removed twice.
    Doubles,
    /// They come after one attempt less than they should.
    Early,
    /// They come after one attempt more.
    Late,
}

/// The queue that has a limit.
#[derive(Debug, Default)]
struct Limited {
    number: QueueId,
    dead_letters: QueueId,
    sent: Vec<MessageId>,
    /// The one that is lost, or had again.
    broken: Option<Stored>,
    /// It was done to one of them.
    is_broken: bool,
}

impl Database for Broken {
    async fn call(&self, mut request: Request, stages: &mut Stages) -> Result<Answer, Failure> {
        if let Request::CreateQueue { settings, .. } = &mut request
            && settings.dead_letters.is_some()
        {
            match self.breaks {
                Breaks::Early => settings.attempts_max -= 1,
                Breaks::Late => settings.attempts_max += 1,
                Breaks::Loses | Breaks::Doubles => {}
            }
        }
        let mut answer = self.database.call(request.clone(), stages).await?;
        let mut limited = self.limited.lock().unwrap();
        match (request, &mut answer) {
            (Request::CreateQueue { settings, .. }, &mut Answer::Id(number)) => {
                if let Some(dead_letters) = settings.dead_letters {
                    (limited.number, limited.dead_letters) = (number, dead_letters);
                }
            }
            (Request::Send { messages, .. }, Answer::Sent(ids)) => {
                let number = limited.number;
                let sent = messages.iter().zip(ids).filter(|(m, _)| m.queue == number);
                limited.sent.extend(sent.map(|(_, id)| *id));
            }
            (Request::Remove { queue, .. }, Answer::Messages(messages))
                if queue == limited.dead_letters =>
            {
                limited.remove(self.breaks, messages);
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn arrivals(&self) -> Result<broadcast::Receiver<Arrival>, Failure> {
        self.database.arrivals().await
    }

    async fn watch(&self, queue: QueueId) -> Result<(), Failure> {
        self.database.watch(queue).await
    }
}

impl Server for Broken {}

impl Limited {
    fn remove(&mut self, breaks: Breaks, messages: &mut Vec<Stored>) {
        let letter = messages.iter().position(|message| self.sent.contains(&message.id));
        match (breaks, letter, &self.broken) {
            (Breaks::Loses, Some(letter), None) => {
                self.broken = Some(messages.remove(letter));
                self.is_broken = true;
            }
            (Breaks::Doubles, Some(letter), None) => self.broken = Some(messages[letter].clone()),
            (Breaks::Doubles, _, Some(broken)) if !self.is_broken => {
                messages.push(broken.clone());
                messages.sort_by_key(|message| message.id);
                self.is_broken = true;
            }
            (Breaks::Early | Breaks::Late, Some(_), _) => self.is_broken = true,
            _ => {}
        }
    }
}

/// Whoever judges histories has to be judged, too: by those that are, and by those that cannot be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_breaks_the_promises_of_dead_letters_is_found_out() {
    let options = sqlite::Options { file: None, durable: true, tell: |_| {} };
    for (breaks, found) in [
        (Breaks::Loses, &["is missing", "is overtaken"][..]),
        (Breaks::Doubles, &["was had twice"]),
        (Breaks::Early, &["is leased elsewhere", "has attempts that nobody has seen"]),
        (Breaks::Late, &["is leased elsewhere", "is elsewhere"]),
    ] {
        let database = Sqlite::open(&options).unwrap();
        let limited = Arc::new(Mutex::new(Limited::default()));
        let broken = Broken { database, breaks, limited: Arc::clone(&limited) };
        let history = History::new([broken], Mix::All).await;
        let others = Arc::clone(&history);
        let until_broken = async || others.give_up(|| limited.lock().unwrap().is_broken).await;
        let why = verify(&history.events(1, 120, until_broken).await).unwrap_err();
        assert!(found.iter().any(|found| why.contains(found)), "{breaks:?}: {why}");
    }
}

#[test]
fn histories_that_cannot_be_are_found_out() {
    let start = Instant::now();
    let span = |begun: u64, ended: u64| Span {
        begun: start + Duration::from_secs(begun),
        ended: start + Duration::from_secs(ended),
    };
    let sent = |id: u64, receiver: u32, begun, ended| {
        let (content, queue, id) = (id.to_string(), 1, Some(id));
        Event::Sent { content, queue, receiver, id, span: span(begun, ended) }
    };
    let removed = |id: u64, client, begun, ended| {
        let (content, queue, ids, span) = (id.to_string(), 1, vec![id], span(begun, ended));
        [Event::Taken { client, queue, ids, span }, Event::Had { content, id, span }]
    };
    let leased = |id: u64, queue, attempt, begun, ended| {
        let (client, ids, span) = (5, vec![id], span(begun, ended));
        [Event::Taken { client, queue, ids, span }, Event::Leased { id, queue, attempt, span }]
    };
    let lost_call = |client, queue, begun, ended| {
        [Event::Lost { client, queue, count: 1, is_lease: false, span: span(begun, ended) }]
    };
    let lost = lost_call(5, 1, 4, 5);
    let with = |sent: &[Event], more: &[&[Event]]| {
        verify(&sent.iter().chain(more.iter().copied().flatten()).cloned().collect::<Vec<_>>())
    };
    let both = [sent(1, 5, 0, 1), sent(2, 5, 2, 3)];
    let in_order = [removed(1, 5, 4, 5), removed(2, 5, 6, 7)].concat();
    assert_eq!(with(&both, &[&in_order]), Ok(()));
    // Missing, but for an answer that is; had twice; had as another one; not sent at all.
    assert!(with(&both, &[&in_order[2..]]).is_err());
    assert_eq!(with(&both, &[&in_order[2..], &lost]), Ok(()));
    assert!(with(&both, &[&in_order, &in_order[..2]]).is_err());
    let unknown = Event::Had { content: "2".into(), id: 7, span: span(6, 7) };
    assert!(with(&both, &[&in_order[..2], &[unknown]]).is_err());
    assert!(with(&both[..1], &[&in_order]).is_err());
    // Without an answer, but sent together with one that was had.
    let unanswered = ["1", "2"].map(|content| Event::Sent {
        content: content.into(),
        queue: 1,
        receiver: 5,
        id: None,
        span: span(0, 1),
    });
    let together = [Event::Batch { contents: vec!["1".into(), "2".into()] }];
    assert_eq!(with(&unanswered, &[&together]), Ok(()));
    assert_eq!(with(&unanswered, &[&in_order[..2]]), Ok(()));
    assert!(with(&unanswered, &[&together, &in_order[..2]]).is_err());
    assert_eq!(with(&unanswered, &[&together, &in_order]), Ok(()));
    assert_eq!(with(&unanswered, &[&together, &in_order[..2], &lost]), Ok(()));
    let unsure = [Event::Unsure { content: "2".into() }];
    assert_eq!(with(&unanswered, &[&together, &in_order[..2], &unsure]), Ok(()));
    // Numbers that do not grow.
    let later_is_lower = [sent(2, 5, 0, 1), sent(1, 5, 2, 3)];
    assert!(with(&later_is_lower, &[&in_order]).is_err());
    let at_once = [sent(2, 5, 0, 2), sent(1, 5, 1, 3)];
    assert_eq!(with(&at_once, &[&in_order]), Ok(()));
    // Overtaken.
    let out_of_order = [removed(2, 5, 4, 5), removed(1, 5, 6, 7)].concat();
    assert!(with(&both, &[&out_of_order]).is_err());
    // Its own and nobody's alike, also where the call had begun before either was sent.
    for whose in [[5, ANYBODY], [ANYBODY, 5]] {
        let mixed = [sent(1, whose[0], 0, 1), sent(2, whose[1], 2, 3)];
        assert!(with(&mixed, &[&out_of_order]).is_err());
        let meanwhile = [removed(2, 5, 0, 5), removed(1, 5, 6, 7)].concat();
        assert!(with(&mixed, &[&meanwhile]).is_err());
    }
    // But not by two calls at once, nor by one that may have begun too early, nor by who may not have it.
    let at_once = [removed(2, 5, 4, 6), removed(1, 5, 5, 7)].concat();
    assert_eq!(with(&both, &[&at_once]), Ok(()));
    let sent_at_once = [sent(1, 5, 0, 2), sent(2, 5, 1, 3)];
    let early = [removed(2, 5, 0, 5), removed(1, 5, 6, 7)].concat();
    assert_eq!(with(&sent_at_once, &[&early]), Ok(()));
    let anybodys = [sent(1, 5, 0, 1), sent(2, ANYBODY, 2, 3)];
    let by_another = [removed(2, 6, 4, 5), removed(1, 5, 6, 7)].concat();
    assert_eq!(with(&anybodys, &[&by_another]), Ok(()));
    // Nor where it was hidden: by a lease, by somebody who was undone, or by an answer that is missing.
    assert_eq!(with(&both, &[&out_of_order, &leased(1, 1, 1, 3, 4)]), Ok(()));
    let hidden = |begun, ended| Event::Hidden { queue: 1, span: span(begun, ended) };
    assert_eq!(with(&both, &[&out_of_order, &[hidden(3, 5)]]), Ok(()));
    assert!(with(&both, &[&out_of_order, &[hidden(5, 6)]]).is_err());
    assert_eq!(with(&both, &[&out_of_order, &lost]), Ok(()));
    assert!(with(&both, &[&out_of_order, &lost_call(5, 2, 4, 5)]).is_err());
    let undone = [Event::Undone { client: 5, queue: 1, count: 1, span: span(4, 5) }];
    assert_eq!(with(&both, &[&out_of_order, &undone]), Ok(()));
    assert!(with(&both, &[&in_order[2..], &undone]).is_err());
    // Nor by who takes nothing though it is there, unless it came or went meanwhile.
    let nothing = |client, queue, begun, ended| {
        [Event::Taken { client, queue, ids: vec![], span: span(begun, ended) }]
    };
    let one = [sent(1, 5, 0, 1)];
    let there = removed(1, 5, 6, 7);
    assert!(with(&one, &[&there, &nothing(5, 1, 2, 5)]).is_err());
    for not_there in [nothing(5, 1, 0, 5), nothing(5, 1, 2, 7), nothing(6, 1, 2, 5)] {
        assert_eq!(with(&one, &[&there, &not_there]), Ok(()));
    }
    assert_eq!(with(&one, &[&there, &nothing(5, 2, 2, 5)]), Ok(()));
    assert_eq!(with(&one, &[&there, &nothing(5, 1, 2, 5), &[hidden(3, 5)]]), Ok(()));
    assert_eq!(with(&one, &[&there, &nothing(5, 1, 2, 5), &lost]), Ok(()));
    assert_eq!(with(&one, &[&there, &nothing(5, 1, 2, 5), &undone]), Ok(()));
    // Looked at, and not seen though it was there: whoever else was just sending or removing it, or had leased it.
    let read = |client, ids: &[u64], through, begun, ended| {
        let (queue, ids, span) = (1, ids.to_vec(), span(begun, ended));
        [Event::Read { client, queue, ids, through, span }]
    };
    let listed = |client, queues: &[u32], begun, ended| {
        [Event::Listed { client, queues: queues.to_vec(), span: span(begun, ended) }]
    };
    let later = [removed(1, 5, 8, 9), removed(2, 5, 10, 11)].concat();
    assert_eq!(with(&both, &[&later, &read(5, &[1, 2], u64::MAX, 4, 5)]), Ok(()));
    assert!(with(&both, &[&later, &read(5, &[2], u64::MAX, 4, 5)]).is_err());
    assert!(with(&both, &[&later, &read(5, &[1], u64::MAX, 4, 5)]).is_err());
    assert_eq!(with(&both, &[&later, &read(5, &[1], 1, 4, 5)]), Ok(()));
    assert_eq!(with(&both, &[&later, &read(5, &[1], u64::MAX, 2, 5)]), Ok(()));
    assert_eq!(with(&both, &[&later, &read(5, &[2], u64::MAX, 4, 8)]), Ok(()));
    assert_eq!(with(&both, &[&later, &read(6, &[], u64::MAX, 4, 5)]), Ok(()));
    assert_eq!(with(&both, &[&later, &listed(5, &[1], 4, 5)]), Ok(()));
    assert!(with(&both, &[&later, &listed(5, &[], 4, 5)]).is_err());
    assert_eq!(with(&both, &[&later, &listed(6, &[], 4, 5)]), Ok(()));
    for unseen in [read(5, &[2], u64::MAX, 4, 5), listed(5, &[], 6, 7)] {
        let one = [sent(1, 5, 0, 1)];
        let later = removed(1, 5, 8, 9);
        assert!(with(&one, &[&later, &unseen, &[hidden(3, 8)]]).is_err());
        assert_eq!(with(&one, &[&later, &unseen, &leased(1, 1, 1, 3, 4)]), Ok(()));
        assert_eq!(with(&one, &[&later, &unseen, &lost_call(5, 1, 3, 4)]), Ok(()));
    }
    // Or seen though it was had.
    assert!(with(&both, &[&later, &read(5, &[1], u64::MAX, 12, 13)]).is_err());
    assert_eq!(with(&both, &[&later, &read(5, &[1], u64::MAX, 8, 13)]), Ok(()));
    // Or by whom it is not for; what is nobody's is for everybody.
    assert!(with(&both, &[&in_order[..2], &removed(2, 6, 6, 7)]).is_err());
    assert!(with(&both, &[&in_order, &read(6, &[1], 1, 2, 3)]).is_err());
    assert_eq!(with(&anybodys, &[&in_order[..2], &removed(2, 6, 6, 7)]), Ok(()));
    // One explains what it could have had: neither another's, nor what was sent long after it.
    assert!(with(&both, &[&in_order[2..], &lost_call(6, 1, 4, 5)]).is_err());
    assert_eq!(with(&anybodys, &[&in_order[..2], &lost_call(6, 1, 4, 5)]), Ok(()));
    let late = [sent(1, 5, 0, 1), sent(2, 5, 20, 21)];
    assert!(with(&late, &[&in_order[..2], &lost_call(5, 1, 4, 5)]).is_err());
    // Nor what was seen when it must have ended, nor what was overtaken by who asked before or after it.
    let seen = |begun, ended| read(5, &[1], 1, begun, ended);
    assert_eq!(with(&both, &[&in_order[2..], &lost, &seen(8, 9)]), Ok(()));
    assert!(with(&both, &[&in_order[2..], &lost, &seen(11, 12)]).is_err());
    assert!(with(&both, &[&out_of_order, &lost_call(5, 1, 5, 6)]).is_err());
    let much_later = [removed(2, 5, 20, 21), removed(1, 5, 22, 23)].concat();
    assert!(with(&both, &[&much_later, &lost]).is_err());
    assert_eq!(with(&both, &[&much_later, &lost_call(5, 1, 4, 16)]), Ok(()));
    let three = [sent(1, 5, 0, 1), sent(2, 5, 2, 3), sent(3, 5, 2, 3)];
    let twice = [removed(2, 5, 4, 5), removed(3, 5, 20, 21), removed(1, 5, 22, 23)].concat();
    assert!(with(&three, &[&twice, &lost]).is_err());
    assert_eq!(with(&three, &[&twice, &lost_call(5, 1, 4, 16)]), Ok(()));
    // Each as many as it asked for, whichever of them may be explained by others as well.
    let two_lost = [lost_call(5, 1, 4, 5), lost_call(6, 1, 4, 5)].concat();
    assert_eq!(with(&anybodys, &[&two_lost]), Ok(()));
    assert!(with(&both, &[&two_lost]).is_err());
}

/// The same, of leases.
#[test]
fn leases_that_cannot_be_are_found_out() {
    const DEAD: u32 = 3;
    let start = Instant::now();
    let span = |begun: u64, ended: u64| Span {
        begun: start + Duration::from_secs(begun),
        ended: start + Duration::from_secs(ended),
    };
    let sent = |id: u64, queue, begun, ended| {
        let (content, id, span) = (id.to_string(), Some(id), span(begun, ended));
        [Event::Sent { content, queue, receiver: 5, id, span }]
    };
    let removed = |id: u64, queue, begun, ended| {
        let (content, client, ids, span) = (id.to_string(), 5, vec![id], span(begun, ended));
        [Event::Taken { client, queue, ids, span }, Event::Had { content, id, span }]
    };
    let leased = |id: u64, queue, attempt, begun, ended| {
        let (client, ids, span) = (5, vec![id], span(begun, ended));
        [Event::Taken { client, queue, ids, span }, Event::Leased { id, queue, attempt, span }]
    };
    let released = |id: u64, queue, attempt, begun, ended| {
        [Event::Released { id, queue, attempt, span: span(begun, ended) }]
    };
    let lost =
        |queue, is_lease| [Event::Lost { client: 5, queue, count: 1, is_lease, span: span(4, 5) }];
    let with = |more: &[&[Event]]| verify(&more.concat());
    let (one, two) = (sent(1, 1, 0, 1), sent(2, 1, 2, 3));
    // Leased by two at once; by nobody, but for an answer that is missing; and not had by that.
    let had = removed(1, 1, 12, 13);
    let again = leased(1, 1, 2, 6, 7);
    assert_eq!(with(&[&one, &leased(1, 1, 1, 4, 5), &again, &had]), Ok(()));
    assert!(with(&[&one, &leased(1, 1, 1, 4, 5), &leased(1, 1, 1, 6, 7), &had]).is_err());
    assert!(with(&[&one, &again, &had]).is_err());
    assert!(with(&[&one, &again, &had, &lost(1, false)]).is_err());
    assert_eq!(with(&[&one, &again, &had, &lost(1, true)]), Ok(()));
    assert!(with(&[&one, &leased(1, 1, 1, 4, 5), &lost(1, true)]).is_err());
    assert_eq!(
        with(&[&one, &leased(1, 1, 1, 4, 5), &[Event::Unsure { content: "1".into() }]]),
        Ok(())
    );
    // Nor by one that came later, or had ended before an earlier attempt.
    assert!(with(&[&one, &leased(1, 1, 2, 2, 3), &had, &lost(1, true)]).is_err());
    let third = [leased(1, 1, 1, 11, 12), leased(1, 1, 3, 13, 14), removed(1, 1, 15, 16)].concat();
    assert!(with(&[&one, &third, &lost(1, true)]).is_err());
    let third = [leased(1, 1, 1, 8, 9), leased(1, 1, 3, 13, 14), removed(1, 1, 15, 16)].concat();
    assert_eq!(with(&[&one, &third, &lost(1, true)]), Ok(()));
    // It hides its message until that is put back, however late.
    let late = [&one[..], &two, &removed(2, 1, 30, 31), &removed(1, 1, 32, 33)].concat();
    assert!(with(&[&late, &lost(1, false)]).is_err());
    assert_eq!(with(&[&late, &lost(1, true)]), Ok(()));
    // Overtaken or not seen once it was put back, but not before.
    let back = [&one[..], &two, &leased(1, 1, 1, 4, 5), &had].concat();
    assert_eq!(with(&[&back, &removed(2, 1, 8, 9)]), Ok(()));
    assert!(with(&[&back, &removed(2, 1, 8, 9), &released(1, 1, 1, 6, 7)]).is_err());
    assert_eq!(with(&[&back, &removed(2, 1, 8, 9), &released(1, 1, 1, 6, 8)]), Ok(()));
    assert_eq!(with(&[&back, &removed(2, 1, 8, 14), &released(1, 1, 1, 6, 7)]), Ok(()));
    let looks = [
        Event::Read { client: 5, queue: 1, ids: vec![], through: 1, span: span(8, 9) },
        Event::Listed { client: 5, queues: vec![], span: span(8, 9) },
    ];
    // Nor while somebody has it who was looking for messages when it was put back.
    let follower = |client, queue, begun, ended| {
        [Event::Taken { client, queue, ids: vec![], span: span(begun, ended) }]
    };
    let put_back = [&back[..], &removed(2, 1, 8, 9), &released(1, 1, 1, 6, 7)].concat();
    assert_eq!(with(&[&put_back, &follower(5, 1, 6, 9)]), Ok(()));
    for other in [follower(6, 1, 6, 9), follower(5, 4, 6, 9), follower(5, 1, 6, 8)] {
        assert!(with(&[&put_back, &other]).is_err());
    }
    for look in looks {
        let back = [&one[..], &leased(1, 1, 1, 4, 5), &had, &[look]].concat();
        assert_eq!(with(&[&back]), Ok(()));
        assert!(with(&[&back, &released(1, 1, 1, 6, 7)]).is_err());
    }
    // A dead letter comes out of its queue, and only there; what has attempts left does not.
    let limit = Event::Limited { queue: 1, attempts_max: 2, dead_letters: DEAD };
    let dead = [&[limit][..], &one, &leased(1, 1, 1, 4, 5), &again].concat();
    let first = &dead[..4];
    assert_eq!(with(&[&dead, &removed(1, DEAD, 12, 13)]), Ok(()));
    assert_eq!(with(&[&dead, &leased(1, DEAD, 3, 8, 9), &removed(1, DEAD, 12, 13)]), Ok(()));
    assert!(with(&[&dead]).is_err());
    assert!(with(&[&dead, &removed(1, DEAD, 12, 13), &removed(1, DEAD, 14, 15)]).is_err());
    assert!(with(&[&dead, &had]).is_err());
    assert!(with(&[&dead, &removed(1, 4, 12, 13)]).is_err());
    assert!(with(&[&dead, &leased(1, 1, 3, 8, 9), &removed(1, DEAD, 12, 13)]).is_err());
    assert_eq!(with(&[first, &had]), Ok(()));
    assert!(with(&[first, &removed(1, DEAD, 12, 13)]).is_err());
    assert!(with(&[first, &leased(1, DEAD, 2, 8, 9), &removed(1, DEAD, 12, 13)]).is_err());
    assert_eq!(with(&[first, &removed(1, DEAD, 12, 13), &lost(1, true)]), Ok(()));
    let seen = Event::Read { client: 5, queue: 1, ids: vec![1], through: 1, span: span(8, 9) };
    assert!(with(&[&dead, &removed(1, DEAD, 12, 13), &[seen]]).is_err());
    // It is missing where the call could not have had it.
    assert_eq!(with(&[&dead, &lost(DEAD, false)]), Ok(()));
    assert!(with(&[first, &lost(DEAD, false)]).is_err());
    assert!(with(&[&dead, &lost(4, false)]).is_err());
    // It is there once the last of those who had it has put it back.
    let overtaken =
        [&dead[..], &sent(2, DEAD, 2, 3), &removed(2, DEAD, 10, 11), &removed(1, DEAD, 12, 13)];
    let overtaken = overtaken.concat();
    assert_eq!(with(&[&overtaken, &released(1, 1, 1, 5, 6)]), Ok(()));
    assert!(with(&[&overtaken, &released(1, 1, 2, 8, 9)]).is_err());
    // Unless somebody has followed it there.
    assert_eq!(with(&[&overtaken, &released(1, 1, 2, 8, 9), &follower(5, 1, 8, 11)]), Ok(()));
    let hidden = |queue| [Event::Hidden { queue, span: span(8, 11) }];
    assert_eq!(with(&[&overtaken, &released(1, 1, 2, 8, 9), &hidden(1)]), Ok(()));
    assert!(with(&[&overtaken, &released(1, 1, 2, 8, 9), &hidden(4)]).is_err());
}
