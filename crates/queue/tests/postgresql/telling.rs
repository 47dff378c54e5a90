//! Servers that tell each other of what arrives.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use knee_queue::database::{Arrival, Database, Failure};
use knee_queue::operation::ANYBODY;
use knee_queue::postgres::{Options, Postgres};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::harness::cluster::Cluster;
use crate::harness::desk::{Desk, LONG, PATIENCE, contents, lease_of};
use crate::harness::proxy::Proxy;
use crate::name;

#[tokio::test]
async fn servers_tell_each_other_of_what_arrives_where_somebody_watches() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let one = Desk::open(&options).await;
    let two = Desk::open(&options).await;
    let client = one.client().await;
    let (queue, other) = (one.queue(client).await, one.queue(client).await);
    let mut arrivals = two.0.arrivals().await.unwrap();
    two.0.watch(queue).await.unwrap();
    one.send(client, client, other, "nobody watches").await;
    one.send(client, ANYBODY, queue, "x").await;
    let first = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
    assert_eq!(first, Arrival { queue, receiver: ANYBODY });
    let leased = one.lease(client, queue, 1, LONG).await;
    one.release(&[lease_of(&leased[0])]).await;
    let second = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
    assert_eq!(second, Arrival { queue, receiver: ANYBODY });
    // Who listens learns that he may have missed something, and can listen again.
    let client = cluster.connect(name(&options)).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE query LIKE 'LISTEN%' AND datname = current_database()";
    client.query(cut, &[]).await.unwrap();
    let ended = async { while arrivals.recv().await.is_ok() {} };
    timeout(PATIENCE, ended).await.expect("it ends");
    two.0.arrivals().await.unwrap();
}

/// As where a database takes no more connections: those who listen there already go on doing so.
#[tokio::test]
async fn what_others_could_not_be_told_is_told_later() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let other = Desk::open(&options).await;
    let (proxy, through) = Proxy::start(&options).await;
    let desk = Desk::open(&through).await;
    let (client, queue) = desk.begin().await;
    let mut arrivals = other.0.arrivals().await.unwrap();
    other.0.watch(queue).await.unwrap();
    // The first looked at the schema, two keep, and one asked for client and queue.
    desk.at_last(async || (proxy.connections() == 4).then_some(())).await;
    proxy.refuse(true);
    let database = cluster.connect(name(&options)).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE query ~ 'end_leases|begin_round|horizon' AND pid <> pg_backend_pid()
                   AND datname = current_database()";
    // Whichever of the two servers they belong to; both keep, and only one can connect anew.
    desk.at_last(async || {
        database.query(cut, &[]).await.unwrap();
        (proxy.connections() > 6).then_some(())
    })
    .await;
    desk.send(client, client, queue, "x").await;
    let tried = proxy.connections();
    desk.at_last(async || (proxy.connections() > tried + 2).then_some(())).await;
    proxy.refuse(false);
    let told = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
    assert_eq!(told, Arrival { queue, receiver: client });
}

/// Lets the function of that name, which connections have prepared, do this instead.
async fn tells(database: &Client, body: &str) {
    let replace = format!(
        "CREATE OR REPLACE FUNCTION knee_queue.tell(p_arrivals text) RETURNS void LANGUAGE plpgsql
            AS $$ BEGIN {body}; END $$"
    );
    database.batch_execute(&replace).await.unwrap();
}

/// As whoever ends a server does, which would take its time without a word.
#[tokio::test]
async fn who_waits_long_until_others_are_told_hears_what_for() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let said = || SAID.lock().unwrap().iter().filter(|text| text.contains("ends later")).count();
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let tell = |text: &str| SAID.lock().unwrap().push(text.to_owned());
    let desk = Arc::new(Desk::open(&Options { tell, ..options.clone() }).await);
    let other = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    let mut arrivals = other.0.arrivals().await.unwrap();
    other.0.watch(queue).await.unwrap();
    let database = cluster.connect(name(&options)).await;
    tells(&database, "RAISE 'not now'").await;
    desk.send(client, client, queue, "x").await;
    let waiting = Arc::clone(&desk);
    let waits = tokio::spawn(async move { waiting.0.is_told().await });
    desk.at_last(async || (said() == 1).then_some(())).await;
    assert!(!waits.is_finished());
    tells(&database, "PERFORM pg_notify('knee_queue', p_arrivals)").await;
    timeout(PATIENCE, waits).await.expect("it is told").unwrap();
    let told = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
    assert_eq!(told, Arrival { queue, receiver: client });
    // Nothing is left.
    desk.0.is_told().await;
    assert_eq!(said(), 1);
}

/// However little time was left for that, be it none.
#[tokio::test]
async fn who_ends_says_of_what_others_were_not_told_and_not_of_what_they_were() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let said = || SAID.lock().unwrap().iter().filter(|text| text.contains("ends though")).count();
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let tell = |text: &str| SAID.lock().unwrap().push(text.to_owned());
    let other = Desk::open(&options).await;
    let (client, queue) = other.begin().await;
    let mut arrivals = other.0.arrivals().await.unwrap();
    other.0.watch(queue).await.unwrap();
    let database = cluster.connect(name(&options)).await;
    let runs = async |lasts: bool| {
        let options = Options { tell, ..options.clone() };
        // Each on threads of its own, as a server has.
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let sends = async move {
            let desk = Desk::open(&options).await;
            desk.send(client, client, queue, "x").await;
            if lasts {
                desk.0.is_told().await;
            }
        };
        runtime.spawn(sends).await.unwrap();
        // All of it has ended then.
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
    };
    runs(true).await;
    let told = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
    assert_eq!((told, said()), (Arrival { queue, receiver: client }, 0));
    tells(&database, "PERFORM pg_sleep(600)").await;
    runs(false).await;
    other.at_last(async || (said() == 1).then_some(())).await;
}

#[tokio::test]
async fn who_listens_by_a_connection_that_is_lost_at_once_is_told_and_can_listen_again() {
    let cluster = Cluster::shared();
    let (proxy, options) = Proxy::start(&cluster.migrated().await).await;
    let desk = Desk::open(&options).await;
    proxy.cut_listeners(true);
    // It may be lost before there is an answer, or behind it.
    if let Ok(mut arrivals) = desk.0.arrivals().await {
        let told = timeout(PATIENCE, arrivals.recv()).await.expect("it ends");
        assert_eq!(told, Err(RecvError::Closed));
    }
    proxy.cut_listeners(false);
    let (client, queue) = desk.begin().await;
    let mut arrivals = desk.0.arrivals().await.unwrap();
    desk.0.watch(queue).await.unwrap();
    desk.send(client, client, queue, "x").await;
    let told = timeout(PATIENCE, arrivals.recv()).await.expect("it is told").unwrap();
    assert_eq!(told, Arrival { queue, receiver: client });
}

/// Whoever begins to wait in a queue waits for those who are sending there, and that may take them long.
#[tokio::test]
async fn who_begins_to_wait_stops_nobody() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Arc::new(Desk::open(&options).await);
    let elsewhere = Desk::open(&options).await;
    let (client, watched) = desk.begin().await;
    let mut arrivals = elsewhere.0.arrivals().await.unwrap();
    elsewhere.0.watch(watched).await.unwrap();
    let _arrivals = desk.0.arrivals().await.unwrap();
    let sender = cluster.connect(name(&options)).await;
    sender.batch_execute("BEGIN").await.unwrap();
    let (mut queues, mut watches) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let queue = desk.queue(client).await;
        let sends = format!("SELECT knee_queue.send({client}, {client}, {queue}, 'late')");
        sender.batch_execute(&sends).await.unwrap();
        // Many of them are one to the database.
        for _ in 0..10 {
            watches.push(watching(&desk, queue));
        }
        queues.push(queue);
    }
    let look = cluster.connect(name(&options)).await;
    are_watched(&desk, &look, 4).await;
    desk.0.watch(watched).await.unwrap();
    // Neither others who send there, nor the keeper, nor who tells.
    for queue in queues {
        let sent = desk.send(client, client, queue, "quick");
        timeout(PATIENCE, sent).await.expect("it is answered");
    }
    // What is late would be neither found nor told.
    assert!(!watches.iter().any(JoinHandle::is_finished));
    desk.send(client, client, watched, "x").await;
    let arrival = Arrival { queue: watched, receiver: client };
    let told = async { while arrivals.recv().await.unwrap() != arrival {} };
    timeout(PATIENCE, told).await.expect("it is told");
    drop(elsewhere);
    desk.lease(client, watched, 1, Duration::ZERO).await;
    assert_eq!(desk.lease_at_last(client, watched, LONG).await.0.content, "x");
    sender.batch_execute("COMMIT").await.unwrap();
    for watch in watches {
        watch.await.unwrap().unwrap();
    }
}

/// Returns when the database knows that so many queues are watched.
pub(crate) async fn are_watched(desk: &Desk<Postgres>, look: &Client, queues: i64) {
    let watched = "SELECT count(*) FROM knee_queue.watched_queue WHERE until > now()";
    desk.at_last(async || {
        let watched: i64 = look.query_one(watched, &[]).await.unwrap().get(0);
        (watched == queues).then_some(())
    })
    .await;
}

/// More than the database is asked about at once need some calls.
async fn many_queues(client: &Client, queues: i32) -> Vec<u32> {
    let create =
        "SELECT q.id FROM generate_series(1, $1) n, knee_queue.create_queue(0, NULL, n, NULL) q";
    let created = client.query(create, &[&queues]).await.unwrap();
    created.iter().map(|row| row.get::<_, i32>(0).cast_unsigned()).collect()
}

/// Begins to wait.
pub(crate) fn watching(desk: &Arc<Desk<Postgres>>, queue: u32) -> JoinHandle<Result<(), Failure>> {
    let desk = Arc::clone(desk);
    tokio::spawn(async move { desk.0.watch(queue).await })
}

#[tokio::test]
async fn who_sends_for_long_is_not_waited_for_for_ever() {
    let cluster = Cluster::shared();
    let options = Options { sending_max: Duration::from_millis(10), ..cluster.migrated().await };
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    let sender = cluster.connect(name(&options)).await;
    let sends = format!("BEGIN; SELECT knee_queue.send({client}, {client}, {queue}, 'late')");
    sender.batch_execute(&sends).await.unwrap();
    timeout(PATIENCE, desk.0.watch(queue)).await.expect("it is answered").unwrap();
}

/// Each waits for the row of the queue, which those who put back raise the epoch of.
#[tokio::test]
async fn who_begins_to_wait_has_a_turn_however_many_put_messages_back() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Arc::new(Desk::open(&options).await);
    let (client, queue) = desk.begin().await;
    for content in ["first", "second"] {
        desk.send(client, client, queue, content).await;
    }
    let leased = desk.lease(client, queue, 2, LONG).await;
    let _arrivals = desk.0.arrivals().await.unwrap();
    let [first, second] =
        [cluster.connect(name(&options)).await, cluster.connect(name(&options)).await];
    let put_back = |which: usize| {
        let id = leased[which].0.id;
        format!("BEGIN; SELECT watched::text FROM knee_queue.release('{{{id}}}', '{{1}}')")
    };
    first.batch_execute(&put_back(0)).await.unwrap();
    let waiter = watching(&desk, queue);
    let look = cluster.connect(name(&options)).await;
    are_watched(&desk, &look, 1).await;
    // What comes back is not to be seen yet. Who begins later is told later.
    assert_eq!(desk.remove(client, queue, 9).await, []);
    let other = desk.queue(client).await;
    timeout(PATIENCE, watching(&desk, other)).await.expect("it is answered").unwrap().unwrap();
    assert!(!waiter.is_finished());
    let later = async {
        let told = second.simple_query(&put_back(1)).await.unwrap();
        told.into_iter().find_map(|told| match told {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
    };
    let (told, ()) = tokio::join!(later, async {
        first.batch_execute("COMMIT").await.unwrap();
    });
    // Whoever comes later knows, and need not end.
    assert_eq!(told.as_deref(), Some("true"));
    timeout(PATIENCE, waiter).await.expect("it is answered").unwrap().unwrap();
    assert_eq!(contents(&desk.remove(client, queue, 9).await), ["first"]);
}

/// They may be more than PostgreSQL has locks for, and are waited for by who begins to wait in any.
#[tokio::test]
async fn who_sends_to_very_many_queues_at_once_has_few_locks() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let [caller, look] =
        [cluster.connect(name(&options)).await, cluster.connect(name(&options)).await];
    // Every second one is for the dead letters of the one before it.
    let fill = "INSERT INTO knee_queue.client (middleware) VALUES (1);
        INSERT INTO knee_queue.queue (creator, attempts_max, dead_letters)
            SELECT 1, 1, CASE n % 2 WHEN 1 THEN n + 1 END FROM generate_series(1, 1000) n;
        INSERT INTO knee_queue.watched_queue SELECT id FROM knee_queue.queue;
        INSERT INTO knee_queue.message
            (id, queue, sender, receiver, arrived_at, leased_until, attempts, content)
        SELECT nextval('knee_queue.message_id'), id, 1, 1, now(), 'infinity', 1, 'x'
        FROM knee_queue.queue WHERE dead_letters IS NOT NULL";
    caller.batch_execute(fill).await.unwrap();
    let (locks, senders) = (
        "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()",
        "SELECT queue FROM knee_queue.senders('{1, 2, 999, 1000}') ORDER BY queue",
    );
    let released =
        "SELECT r.message FROM (SELECT array_agg(id) AS ids, array_agg(attempts) AS attempts
            FROM knee_queue.message) m, knee_queue.release(m.ids, m.attempts) r";
    let sent = "SELECT s.problem FROM (SELECT array_agg(0) AS calls, array_agg(1) AS clients,
                array_agg(id) AS queues, array_agg('x'::text) AS contents FROM knee_queue.queue) a,
            knee_queue.send_all(a.calls, a.clients, a.clients, a.queues, a.contents) s
        WHERE s.problem = 0";
    for (call, rows) in [(released, 500), (sent, 1000)] {
        caller.batch_execute("BEGIN").await.unwrap();
        assert_eq!(caller.query(call, &[]).await.unwrap().len(), rows, "{call}");
        let locks: i64 = caller.query_one(locks, &[]).await.unwrap().get(0);
        assert!(locks <= 64, "{locks} locks: {call}");
        let seen = look.query(senders, &[]).await.unwrap();
        let seen: Vec<i32> = seen.iter().map(|row| row.get(0)).collect();
        assert_eq!(seen, [1, 2, 999, 1000], "{call}");
        caller.batch_execute("COMMIT").await.unwrap();
        assert!(look.query(senders, &[]).await.unwrap().is_empty());
    }
}

/// As where who deletes them waits for a standby.
#[tokio::test]
async fn who_begins_to_wait_where_that_is_held_up_stops_nobody_elsewhere() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Arc::new(Desk::open(&options).await);
    let client = desk.client().await;
    let _arrivals = desk.0.arrivals().await.unwrap();
    let holder = cluster.connect(name(&options)).await;
    let queues = many_queues(&holder, 2500).await;
    let holds = "BEGIN; SELECT FROM knee_queue.watched_queue FOR UPDATE";
    holder.batch_execute(holds).await.unwrap();
    let free = desk.queue(client).await;
    let watches: Vec<_> = queues.into_iter().map(|queue| watching(&desk, queue)).collect();
    // Behind them.
    let elsewhere = timeout(PATIENCE, watching(&desk, free)).await;
    elsewhere.expect("it is not held up").unwrap().unwrap();
    assert!(!watches.iter().any(JoinHandle::is_finished));
    holder.batch_execute("COMMIT").await.unwrap();
    for watch in watches {
        timeout(PATIENCE, watch).await.expect("it is answered").unwrap().unwrap();
    }
}

#[tokio::test]
async fn who_begins_to_wait_in_a_queue_that_goes_is_told_so() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Arc::new(Desk::open(&options).await);
    let client = desk.client().await;
    let (queue, other) = (desk.queue(client).await, desk.queue(client).await);
    let _arrivals = desk.0.arrivals().await.unwrap();
    let deleter = cluster.connect(name(&options)).await;
    let delete = format!("BEGIN; SELECT knee_queue.delete_queue({queue})");
    deleter.batch_execute(&delete).await.unwrap();
    let [waiter, elsewhere] = [watching(&desk, queue), watching(&desk, other)];
    timeout(PATIENCE, elsewhere).await.expect("it is answered").unwrap().unwrap();
    assert!(!waiter.is_finished());
    deleter.batch_execute("COMMIT").await.unwrap();
    let failed = timeout(PATIENCE, waiter).await.expect("it is answered").unwrap();
    assert!(matches!(&failed, Err(Failure::NotThere(_))), "{failed:?}");
}

#[tokio::test]
async fn who_begins_to_wait_and_leaves_again_and_again_leaves_nothing_behind() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let client = desk.client().await;
    let _arrivals = desk.0.arrivals().await.unwrap();
    let queue = desk.queue(client).await;
    let holder = cluster.connect(name(&options)).await;
    // What has to be done anyway is no part of it, once it has its connections.
    let upkeep = "SELECT count(*) FROM pg_stat_activity
        WHERE query ~ 'end_leases|begin_round|horizon' AND pid <> pg_backend_pid()
            AND datname = current_database()";
    desk.at_last(async || {
        let connected: i64 = holder.query_one(upkeep, &[]).await.unwrap().get(0);
        (connected == 2).then_some(())
    })
    .await;
    let holds = "BEGIN; SELECT FROM knee_queue.watched_queue FOR UPDATE";
    holder.batch_execute(holds).await.unwrap();
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    for _ in 0..200 {
        let watch = timeout(Duration::from_millis(1), desk.0.watch(queue)).await;
        assert!(watch.is_err(), "{watch:?}");
    }
    // The one who asks, and a connection.
    assert!(tasks.num_alive_tasks() <= before + 8, "{}", tasks.num_alive_tasks() - before);
    holder.batch_execute("COMMIT").await.unwrap();
    timeout(PATIENCE, desk.0.watch(queue)).await.expect("it is answered").unwrap();
}

/// However many begin at once, as when the connection was lost that listens.
#[tokio::test]
async fn nobody_is_refused_who_only_begins_to_wait() {
    let cluster = Cluster::shared();
    let options = Options { connection_wait: Duration::from_millis(1), ..cluster.migrated().await };
    let desk = Arc::new(Desk::open(&options).await);
    let client = desk.client().await;
    let _arrivals = desk.0.arrivals().await.unwrap();
    let mut watches = Vec::new();
    for _ in 0..200 {
        let (queue, desk) = (desk.queue(client).await, Arc::clone(&desk));
        watches.push(async move { desk.0.watch(queue).await });
    }
    let watches: Vec<_> = watches.into_iter().map(tokio::spawn).collect();
    for watch in watches {
        watch.await.unwrap().unwrap();
    }
}

/// Who begins to wait while somebody sends is told, or finds the message when he looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_arrival_is_missed_by_who_begins_to_wait() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let one = Desk::open(&options).await;
    let two = Desk::open(&options).await;
    let client = one.client().await;
    let mut arrivals = two.0.arrivals().await.unwrap();
    for round in 0..40 {
        let queue = one.queue(client).await;
        let send = async {
            sleep(Duration::from_micros(100 * round)).await;
            one.send(client, client, queue, "x").await;
        };
        let wait = async {
            two.0.watch(queue).await.unwrap();
            while two.remove(client, queue, 1).await.is_empty() {
                while arrivals.recv().await.unwrap().queue != queue {}
            }
        };
        timeout(PATIENCE, async { tokio::join!(send, wait) }).await.expect("it is not missed");
    }
}
