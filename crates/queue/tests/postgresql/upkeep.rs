//! Upkeep: work that no call requests.

use std::time::Duration;

use knee_queue::operation::QueueSettings;
use knee_queue::postgres::Options;
use knee_server::Trace;
use knee_testkit::Lines;
use tokio_postgres::types::ToSql;

use crate::harness::cluster::Cluster;
use crate::harness::cluster::name;
use crate::harness::desk::{Desk, LONG, contents, settings};

#[tokio::test]
async fn failing_upkeep_is_reported_and_disturbs_no_request() {
    let cluster = Cluster::shared();
    let lines = Lines::default();
    let options =
        Options { log: Trace::to_sink("test", lines.clone()), ..cluster.migrated().await };
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    let written = async |text: &str| {
        desk.at_last(async || lines.text().contains(text).then_some(())).await;
    };
    let database = cluster.connect(name(&options)).await;
    let fails = "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
        CREATE TRIGGER fails BEFORE UPDATE ON knee_queue.message
            FOR EACH ROW WHEN (NEW.leased_until IS NULL) EXECUTE FUNCTION fails()";
    database.batch_execute(fails).await.unwrap();
    desk.send(client, client, queue, "x").await;
    assert_eq!(desk.lease(client, queue, 1, Duration::ZERO).await.len(), 1);
    written("ending leases fails: their messages stay hidden: not now").await;
    desk.send(client, client, queue, "y").await;
    assert_eq!(contents(&desk.remove(client, queue, 1).await), ["y"]);
    database.batch_execute("DROP TRIGGER fails ON knee_queue.message").await.unwrap();
    written("works again: ending leases fails").await;
    assert_eq!(lines.text().matches("not now").count(), 1);
}

#[tokio::test]
async fn ending_leases_and_retention_do_not_wait_for_each_other() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let (client, leased) = desk.begin().await;
    let retention = Some(Duration::from_millis(1));
    let kept = desk.queue_with(client, QueueSettings { retention, ..settings() }).await;
    desk.send(client, client, leased, "leased").await;
    // `look` opens no transaction: it would keep the view of its first query.
    let [lock, look] =
        [cluster.connect(name(&options)).await, cluster.connect(name(&options)).await];
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND datname = current_database()";
    let waits = async || {
        desk.at_last(async || {
            let row = look.query_one(waiting, &[]).await.unwrap();
            (row.get::<_, i64>(0) == 1).then_some(())
        })
        .await;
    };
    // Lock the queue whose epoch rises when the message is put back.
    let of_leases = format!("BEGIN; SELECT FROM knee_queue.queue WHERE id = {leased} FOR UPDATE");
    lock.batch_execute(&of_leases).await.unwrap();
    desk.lease(client, leased, 1, Duration::ZERO).await;
    waits().await;
    desk.send(client, client, kept, "old").await;
    desk.at_last(async || (desk.counts().await.messages == 1).then_some(())).await;
    lock.batch_execute("COMMIT").await.unwrap();
    desk.lease_at_last(client, leased, Duration::from_millis(500)).await;

    let of_rounds = "BEGIN; LOCK TABLE knee_queue.deleted_queue IN ACCESS EXCLUSIVE MODE";
    lock.batch_execute(of_rounds).await.unwrap();
    waits().await;
    desk.lease_at_last(client, leased, LONG).await;
    lock.batch_execute("COMMIT").await.unwrap();
}

/// Another call takes the locked message, or the next round removes it.
#[tokio::test]
async fn retention_skips_locked_messages() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    // Without a server, whose background jobs would interfere.
    let database = cluster.connect(name(&options)).await;
    let fill = "SET lock_timeout = '5s';
        INSERT INTO knee_queue.queue (creator, attempts_max, retention) VALUES (0, 0, '1 hour');
        INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
        SELECT n, 1, 0, 0, now() - CASE WHEN n < 4 THEN interval '2 hours' ELSE '0' END, 'x'
        FROM generate_series(1, 5) n";
    database.batch_execute(fill).await.unwrap();
    let sweep = async || {
        let rows = database.query("SELECT * FROM knee_queue.sweep(0, -1, 500, 0)", &[]).await;
        rows.unwrap()[0].get::<_, i32>(2)
    };
    let taker = cluster.connect(name(&options)).await;
    let take = "BEGIN; SELECT FROM knee_queue.message WHERE id = 2 FOR UPDATE";
    taker.batch_execute(take).await.unwrap();
    assert_eq!(sweep().await, 2);
    assert_eq!(sweep().await, 0);
    // A locked message does not shorten a batch: later messages fill it.
    let more = "INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
        SELECT n, 1, 0, 9, now() - interval '2 hours', 'x' FROM generate_series(11, 15) n";
    database.batch_execute(more).await.unwrap();
    taker
        .batch_execute("SELECT FROM knee_queue.message WHERE id IN (11, 13) FOR UPDATE")
        .await
        .unwrap();
    let (hour_us, fill) = (3_600_000_000_i64, "SELECT * FROM knee_queue.sweep(8, 0, 3, $1)");
    let row = database.query_one(fill, &[&hour_us]).await.unwrap();
    assert_eq!([0, 1, 2].map(|column| row.get::<_, i32>(column)), [8, 0, 3]);
    taker.batch_execute("ROLLBACK").await.unwrap();
    database.batch_execute("DELETE FROM knee_queue.message WHERE id > 10").await.unwrap();
    assert_eq!(sweep().await, 1);
    let left = "SELECT array_agg(id ORDER BY id) FROM knee_queue.message";
    let left = database.query_one(left, &[]).await.unwrap();
    assert_eq!(left.get::<_, Vec<i64>>(0), [4, 5]);
}

/// The number of rows shows whether there may be more expired leases.
#[tokio::test]
async fn leases_of_a_deleted_queue_count_in_their_batch() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    // Without a server, whose background jobs would interfere.
    let database = cluster.connect(name(&options)).await;
    let fill = "INSERT INTO knee_queue.queue (creator, attempts_max) VALUES (0, 0);
        INSERT INTO knee_queue.message
            (id, queue, sender, receiver, arrived_at, leased_until, attempts, content)
        SELECT n, CASE WHEN n < 3 THEN 2 ELSE 1 END, 0, 0, now(), now() + n * interval '1 us', 1, 'x'
        FROM generate_series(1, 3) n";
    database.batch_execute(fill).await.unwrap();
    let end = async || {
        let rows = database.query("SELECT queue FROM knee_queue.end_leases(2)", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect::<Vec<Option<i32>>>()
    };
    assert_eq!(end().await, [None, None]);
    assert_eq!(end().await, [Some(1)]);
    assert_eq!(end().await, []);
}

/// Messages of each kind that no call should scan.
const OTHERS: i32 = 20_000;
/// Queues, and clients, that no call should scan.
const QUEUES: i32 = 1000;
/// Largest number of index entries that a call may read: the requested ones, and entries that earlier calls left.
const FOUND_MAX: i64 = 100;

/// An index holds only leased messages, or only messages that are not leased. A query that names neither scans all
/// messages. So does a query that skips leased or foreign messages, or a plan made for few leases or queues.
#[tokio::test]
async fn no_call_scans_all_messages() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let (client, queue) = Desk::open(&options).await.begin().await;
    let database = cluster.connect(name(&options)).await;
    let ask = async |what: &str| database.query(what, &[]).await.unwrap();
    let tables = ["message", "queue", "client"].map(|t| format!("knee_queue.{t}"));
    let analyze = format!("ANALYZE {}", tables.join(", "));
    // Only this test updates the planner's statistics.
    for table in &tables {
        ask(&format!("ALTER TABLE {table} SET (autovacuum_enabled = off)")).await;
    }
    // Messages from other senders, for other receivers, behind the requested ones, and leased ones.
    for (sender, receiver, leased_until) in [
        (client + 1, client, "NULL"),
        (client, client + 1, "NULL"),
        (client, client, "NULL"),
        (client, client, "now() + interval '1 day'"),
    ] {
        ask(&analyze).await;
        let fill = format!(
            "INSERT INTO knee_queue.message
                (id, queue, sender, receiver, arrived_at, leased_until, content)
             SELECT nextval('knee_queue.message_id'), {queue}, {sender}, {receiver}, now(),
                {leased_until}, 'x' FROM generate_series(1, {OTHERS})"
        );
        ask(&fill).await;
    }
    for setting in ["enable_seqscan = off", "enable_bitmapscan = off", "jit = off"] {
        ask(&format!("SET {setting}")).await;
    }
    ask("SET plan_cache_mode = force_generic_plan").await;
    let known = async || -> (bool, bool) {
        let rows = ask(&format!(
            "SELECT s.null_frac < 1, q.reltuples > {QUEUES} FROM pg_stats s, pg_class q
            WHERE s.schemaname = 'knee_queue' AND s.tablename = 'message'
              AND s.attname = 'leased_until' AND q.oid = 'knee_queue.queue'::regclass"
        ))
        .await;
        (rows[0].get(0), rows[0].get(1))
    };
    let of_tables = format!("'{{{}}}'::regclass[]", tables.join(", "));
    // Counts of this transaction so far: rows read from the tables, and entries read from their indexes.
    let found = async || -> (i64, i64) {
        let rows = ask(&format!(
            "SELECT (SELECT sum(pg_stat_get_xact_tuples_returned(t))::bigint FROM unnest({of_tables}) t),
                sum(pg_stat_get_xact_tuples_returned(i.indexrelid))::bigint
            FROM pg_index i WHERE i.indrelid = ANY ({of_tables})"
        ))
        .await;
        (rows[0].get(0), rows[0].get(1))
    };
    let take = format!("take({client}, {queue}, 1, 1000");
    let sends = format!("ARRAY[1], ARRAY[{client}], ARRAY[{client}], ARRAY[{queue}], ARRAY['x']");
    let (zero, none) = ("ARRAY[0::bigint]", "ARRAY[NULL::bigint]");
    let calls = [
        "acknowledge($)",
        "release($)",
        "extend($, 1000)",
        "end_leases(10)",
        &format!("send({client}, {client}, {queue}, 'x')"),
        &format!("send_all({sends})"),
        &format!("{take}, NULL, 0, 0, 0)"),
        &format!("take_each(ARRAY[{client}], ARRAY[{queue}], {none}, {zero}, {zero}, {zero})"),
        &format!("read({client}, {queue}, 0, 10, 1000, 0, 0, 0)"),
        &format!("read_from({client}, {client})"),
        &format!("list_queues({client})"),
        "begin_round()",
        &format!("sweep({client}, {}, 10, 0)", queue - 1),
        &format!("sweep({client}, {queue}, 10, 0)"),
    ];
    let mut prepared = Vec::new();
    for call in calls {
        let select = format!("SELECT * FROM knee_queue.{}", call.replace('$', "$1, $2"));
        prepared.push((call, database.prepare(&select).await.unwrap()));
    }
    let lease = format!("SELECT id, attempt FROM knee_queue.{take}, 0, 0, 0, 0)");
    let lease = database.prepare(&lease).await.unwrap();
    // Runs all calls; returns the rows and index entries that each call read.
    let call_all = async || {
        let mut all = Vec::new();
        for (call, statement) in &prepared {
            let begun = found().await;
            let leased = database.query(&lease, &[]).await.unwrap();
            let lease = (vec![leased[0].get::<_, i64>(0)], vec![leased[0].get::<_, i32>(1)]);
            let arguments: &[&(dyn ToSql + Sync)] = &[&lease.0, &lease.1];
            let arguments = if call.contains('$') { arguments } else { &[] };
            let rows = database.query(statement, arguments).await.unwrap();
            assert!(!rows.is_empty(), "{call}");
            let now = found().await;
            all.push((*call, now.0 - begun.0, now.1 - begun.1));
        }
        all
    };
    let mut walks = Vec::new();
    for are_known in [false, true] {
        if are_known {
            ask(&analyze).await;
        }
        // Plan the calls for the present queues and clients. Further ones do not change the plans.
        ask("BEGIN").await;
        call_all().await;
        ask("ROLLBACK").await;
        let add = format!(
            "WITH added AS (INSERT INTO knee_queue.queue (creator, attempts_max)
                SELECT {client}, 5 FROM generate_series(1, {QUEUES}))
            INSERT INTO knee_queue.client (middleware) SELECT 1 FROM generate_series(1, {QUEUES})"
        );
        ask(&add).await;
        ask("BEGIN").await;
        for (call, rows, entries) in call_all().await {
            // At least the entries of `take`; otherwise nothing was counted.
            assert!(entries > 0, "{call}");
            walks.extend(
                (rows > 0 || entries > FOUND_MAX)
                    .then(|| format!("{call}, known {are_known}: {rows} rows, {entries} entries")),
            );
        }
        ask("COMMIT").await;
        assert_eq!(known().await, (are_known, are_known));
    }
    assert!(walks.is_empty(), "{walks:#?}");
}
