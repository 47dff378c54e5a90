//! Access to the database, its schema and its settings, and the failures that clients see.

use std::time::Duration;

use knee_queue::database::{Arrival, Database, Failure};
use knee_queue::operation::Request;
use knee_queue::postgres::{self, Options, Postgres};
use knee_random::Random;
use knee_testkit::Disk;
use tokio::time::sleep;

use super::notifier::heard;
use crate::harness::cluster::name;
use crate::harness::cluster::{Cluster, Stop};
use crate::harness::desk::{Desk, contents, outgoing};

#[tokio::test]
async fn schema_is_installed_once_and_another_one_is_refused() {
    let cluster = Cluster::shared();
    let options = cluster.options(&cluster.database().await);
    let Err(Failure::NotMigrated(text)) = Postgres::open(&options).await else {
        panic!("it opens")
    };
    assert!(text.contains("knee-queue migrate"), "{text}");
    // One of two concurrent migrations installs the schema, and the other finds it.
    let (one, two) = tokio::join!(postgres::migrate(&options), postgres::migrate(&options));
    assert_ne!(one.unwrap(), two.unwrap());
    assert!(!postgres::migrate(&options).await.unwrap());
    let desk = Desk::open(&options).await;
    desk.client().await;
    let client = cluster.connect(name(&options)).await;
    let change = "UPDATE knee_queue.version SET checksum = checksum + 1";
    client.batch_execute(change).await.unwrap();
    for refused in [postgres::migrate(&options).await.err(), Postgres::open(&options).await.err()] {
        let Some(Failure::NotMigrated(text)) = refused else { panic!("{refused:?}") };
        assert!(text.contains("use that build, or an empty database"), "{text}");
    }
    // Earlier builds had another table `version`, or none.
    for change in [
        "ALTER TABLE knee_queue.version RENAME COLUMN checksum TO number",
        "DROP TABLE knee_queue.version",
    ] {
        client.batch_execute(change).await.unwrap();
        let refused =
            [postgres::migrate(&options).await.err(), Postgres::open(&options).await.err()];
        for refused in refused {
            let Some(Failure::NotMigrated(text)) = refused else { panic!("{refused:?}") };
            assert!(text.contains("use that build, or an empty database"), "{text}");
        }
    }
    // The schema disappears while the server runs.
    client.batch_execute("DROP SCHEMA knee_queue CASCADE").await.unwrap();
    let failed = desk.ask(Request::Counts).await;
    assert!(matches!(&failed, Err(Failure::NotMigrated(_))), "{failed:?}");
    // An empty schema may already exist.
    client.batch_execute("CREATE SCHEMA knee_queue").await.unwrap();
    assert!(postgres::migrate(&options).await.unwrap());
}

#[tokio::test]
async fn migration_ignores_the_limit_of_calls() {
    let cluster = Cluster::shared();
    let options = Options {
        call_max: Duration::from_millis(50),
        ..cluster.options(&cluster.database().await)
    };
    let client = cluster.connect(name(&options)).await;
    // The lock of a migration.
    client
        .batch_execute(&format!("SELECT pg_advisory_lock({})", 0x6b6e_6565_0001_i64))
        .await
        .unwrap();
    let (done, ()) = tokio::join!(postgres::migrate(&options), async {
        sleep(Duration::from_millis(500)).await;
        client.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    });
    assert!(done.unwrap());
}

#[tokio::test]
async fn refused_user_has_a_reason_without_its_name() {
    let mut cluster = Cluster::start();
    let options = cluster.migrated().await;
    let client = cluster.connect("postgres").await;
    client.batch_execute("CREATE ROLE guest LOGIN PASSWORD 'right-one'").await.unwrap();
    drop(client);
    cluster.let_in_by_password("guest");
    let place = std::env::temp_dir().join(format!("knee-password-{}", std::process::id()));
    let guest = Options {
        address: options.address.replace("knee@", "guest@"),
        password_file: Some(place.clone()),
        ..options.clone()
    };
    std::fs::write(&place, "wrong-one\n").unwrap();
    let failed = Postgres::open(&guest).await.unwrap_err();
    assert!(matches!(&failed, Failure::NotAllowed(_)), "{failed:?}");
    let text = failed.to_string();
    assert!(text.contains("password is refused") && !text.contains("guest"), "{text}");
    std::fs::write(&place, "right-one\n").unwrap();
    // The user is admitted, but has no rights.
    let failed = Postgres::open(&guest).await.unwrap_err();
    assert!(matches!(&failed, Failure::NotAllowed(_)), "{failed:?}");
    assert!(failed.to_string().contains("permission denied"), "{failed}");
    // The rights that docs/knee-queue.md names are enough.
    let rights = "GRANT USAGE ON SCHEMA knee_queue TO guest;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA knee_queue TO guest;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA knee_queue TO guest";
    cluster.connect(name(&options)).await.batch_execute(rights).await.unwrap();
    assert!(!postgres::migrate(&guest).await.unwrap());
    let desk = Desk::open(&guest).await;
    let (client, queue) = desk.begin().await;
    let mut arrivals = desk.0.arrivals();
    desk.send(client, client, queue, "x").await;
    heard(&mut arrivals, Arrival { queue, receiver: client }).await;
    assert_eq!(contents(&desk.read(client, queue, 0, 9).await), ["x"]);
    let lease = desk.lease(client, queue, 1, Duration::from_millis(1)).await;
    assert_eq!(lease.len(), 1);
    // Background jobs have the rights, too: they put the message back.
    desk.at_last(async || desk.remove(client, queue, 1).await.pop()).await;
    desk.delete(queue).await.unwrap();
    let nowhere = Options { address: format!("{}x", options.address), ..options.clone() };
    let failed = Postgres::open(&nowhere).await.unwrap_err();
    assert!(matches!(&failed, Failure::NotAllowed(_)), "{failed:?}");
    std::fs::remove_file(&place).unwrap();

    cluster.stop(Stop::Fast);
    let failed = Postgres::open(&options).await.unwrap_err();
    assert!(matches!(&failed, Failure::Unavailable(_)), "{failed:?}");
}

#[tokio::test]
async fn read_only_database_answers_reads_and_refuses_sends() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    desk.send(client, client, queue, "x").await;
    let read_only = Options {
        address: format!("{}?options=-cdefault_transaction_read_only=on", options.address),
        ..options
    };
    let desk = Desk::open(&read_only).await;
    let failed = desk.send_all(client, vec![outgoing(client, queue, "y")]).await;
    let Err(Failure::Unavailable(text)) = failed else { panic!("{failed:?}") };
    assert!(text.contains("read-only"), "{text}");
    assert_eq!(desk.read(client, queue, 0, 9).await.len(), 1);
}

#[test]
fn full_disk_refuses_sends_and_loses_nothing() {
    Disk::with(64, |disk| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(fill(disk, &Cluster::start_on(disk)));
    });
}

async fn fill(disk: &Disk, cluster: &Cluster) {
    let desk = Desk::open(&cluster.migrated().await).await;
    let (client, queue) = desk.begin().await;
    let mut random = Random::stream(1, 1);
    let mut kept = Vec::new();
    // Content that cannot be compressed, in sends of one or two messages.
    let mut send = async |kept: &mut Vec<String>| {
        let mut content = || -> String {
            (0..100_000).map(|_| char::from(b' ' + random.below(95) as u8)).collect()
        };
        let contents: Vec<_> = (0..1 + kept.len() % 2).map(|_| content()).collect();
        let messages = contents.iter().map(|content| outgoing(client, queue, content)).collect();
        let sent = desk.send_all(client, messages).await;
        kept.extend(sent.is_ok().then_some(contents).into_iter().flatten());
        sent
    };
    for _ in 0..3 {
        send(&mut kept).await.unwrap();
    }
    disk.take_rest();
    let failed = loop {
        if let Err(failed) = send(&mut kept).await {
            break failed;
        }
    };
    assert!(matches!(&failed, Failure::Full(text) if text.contains("No space left")), "{failed:?}");
    assert_eq!(contents(&desk.read(client, queue, 0, 1000).await), kept);
    // Stored messages can be removed.
    assert_eq!(contents(&desk.remove(client, queue, 2).await), kept[..2]);
    for _ in 0..3 {
        let failed = send(&mut kept).await;
        assert!(matches!(&failed, Err(Failure::Full(_))), "{failed:?}");
    }
    disk.give_back();
    for _ in 0..3 {
        send(&mut kept).await.unwrap();
    }
    assert_eq!(contents(&desk.remove(client, queue, 1000).await), kept[2..]);
}

/// The sessions ignore the database's setting, unless it waits for standbys.
#[tokio::test]
async fn answered_change_is_durable_whatever_the_setting() {
    let cluster = Cluster::start();
    let options = cluster.migrated().await;
    let database = cluster.connect(name(&options)).await;
    let tells = "CREATE FUNCTION tells() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            NEW.content := current_setting('synchronous_commit'); RETURN NEW; END $$;
        CREATE TRIGGER tells BEFORE INSERT ON knee_queue.message
            FOR EACH ROW EXECUTE FUNCTION tells()";
    database.batch_execute(tells).await.unwrap();
    let set_to = async |desk: &Desk<Postgres>| {
        let (client, queue) = desk.begin().await;
        desk.send(client, client, queue, "").await;
        desk.remove(client, queue, 1).await.pop().unwrap().content
    };
    let early = Desk::open(&options).await;
    assert_eq!(set_to(&early).await, "on");
    for (set, is) in [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")] {
        let alter = format!("ALTER DATABASE {} SET synchronous_commit = {set}", name(&options));
        database.batch_execute(&alter).await.unwrap();
        let desk = Desk::open(&options).await;
        assert_eq!(set_to(&desk).await, is, "{set}");
    }
    // Nor does a reload change the setting of open connections.
    for alter in ["ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()"] {
        database.batch_execute(alter).await.unwrap();
    }
    early
        .at_last(async || {
            let row = database.query_one("SHOW synchronous_commit", &[]).await.unwrap();
            (row.get::<_, &str>(0) == "off").then_some(())
        })
        .await;
    assert_eq!(set_to(&early).await, "on");
}

/// Otherwise concurrent removes would fail.
#[tokio::test]
async fn calls_read_committed_whatever_the_setting() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let database = cluster.connect(name(&options)).await;
    let tells = "CREATE FUNCTION tells() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            NEW.content := current_setting('transaction_isolation'); RETURN NEW; END $$;
        CREATE TRIGGER tells BEFORE INSERT ON knee_queue.message
            FOR EACH ROW EXECUTE FUNCTION tells()";
    database.batch_execute(tells).await.unwrap();
    let set = format!(
        "ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'",
        name(&options)
    );
    database.batch_execute(&set).await.unwrap();
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    desk.send(client, client, queue, "").await;
    assert_eq!(contents(&desk.remove(client, queue, 1).await), ["read committed"]);
}

/// After some errors, the commit may have come first.
#[tokio::test]
async fn failed_change_is_unknown_where_it_may_be_done() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    let desk = Desk::open(&options).await;
    let (client, queue) = desk.begin().await;
    let database = cluster.connect(name(&options)).await;
    let fails = "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.content = 'ended' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
            RAISE 'no' USING ERRCODE = NEW.content; END $$;
        CREATE TRIGGER fails BEFORE INSERT ON knee_queue.message
            FOR EACH ROW EXECUTE FUNCTION fails()";
    database.batch_execute(fails).await.unwrap();
    for (code, is_known) in [
        ("53100", true),
        ("58030", true),
        ("40P01", true),
        ("08006", false),
        ("40003", false),
        ("ended", false),
    ] {
        let failed = desk.send_all(client, vec![outgoing(client, queue, code)]).await.unwrap_err();
        assert_eq!(!matches!(failed, Failure::Unknown(_)), is_known, "{code}: {failed:?}");
    }
}
