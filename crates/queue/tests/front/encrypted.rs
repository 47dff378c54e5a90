//! TLS to PostgreSQL.

use std::time::Duration;

use knee_queue::database::Database;
use knee_queue::postgres::{self, Options, Postgres};
use tokio::time::{sleep, timeout};

use crate::harness::cluster::Cluster;
use crate::harness::desk::{Desk, PATIENCE};
use crate::tls::Authority;

/// The same database by another name of its host, and with these settings.
fn at(options: &Options, host: &str, settings: &str) -> Options {
    let address = options.address.replace("127.0.0.1", host);
    Options { address: format!("{address}?{settings}"), ..options.clone() }
}

/// What is told to who serves, and to who migrates.
async fn refused(options: &Options) -> String {
    let Err(serving) = Postgres::open(options).await else {
        panic!("{} is served", options.address)
    };
    let migrating = postgres::migrate(options).await.expect_err("neither does it migrate");
    assert_eq!(serving, migrating);
    serving.to_string()
}

/// Whether the sessions of who serves are encrypted, that of who listens as well. Those of who served
/// before may end later.
async fn is_encrypted(cluster: &Cluster, options: &Options) -> bool {
    let desk = Desk(Postgres::open(options).await.unwrap());
    desk.client().await;
    let _arrivals = desk.0.arrivals().await.unwrap();
    let database = options.address.rsplit('/').find(|part| part.starts_with("test")).unwrap();
    let database = database.split('?').next().unwrap();
    let sessions = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE datname = current_database() AND application_name = 'knee-queue'";
    let client = cluster.connect(database).await;
    desk.at_last(async || {
        let rows = client.query(sessions, &[]).await.unwrap();
        let encrypted: Vec<bool> = rows.iter().map(|row| row.get(0)).collect();
        let agreed = encrypted.len() >= 2 && encrypted.iter().all(|&one| one == encrypted[0]);
        agreed.then(|| encrypted[0])
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_trusted_as_far_as_was_asked() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (certificate, key) = authority.issue("localhost");
    let cluster = Cluster::encrypted(&authority.certificate, &certificate, &key).await;
    let options = cluster.options(&cluster.database().await);
    let root = |name: &str, authority: &Authority| {
        format!("sslrootcert={}", cluster.file(name, &authority.certificate).display())
    };
    // The other issuer has the same name.
    let (right, wrong) = (root("right.crt", &authority), root("wrong.crt", &other));

    let full = format!("sslmode=verify-full&{right}");
    let done = postgres::migrate(&at(&options, "localhost", &full)).await.unwrap();
    assert!(!done.is_empty());
    for (host, settings, encrypted) in [
        ("localhost", full.clone(), true),
        ("127.0.0.1", format!("sslmode=verify-ca&{right}"), true),
        ("127.0.0.1", format!("sslmode=require&{right}"), true),
        ("127.0.0.1", "sslmode=require".to_owned(), true),
        ("127.0.0.1", format!("sslmode=prefer&{wrong}"), true),
        ("127.0.0.1", String::new(), true),
        ("127.0.0.1", "sslmode=disable".to_owned(), false),
    ] {
        let is = is_encrypted(&cluster, &at(&options, host, &settings)).await;
        assert_eq!(is, encrypted, "{settings}");
    }

    for (settings, told) in [
        (full, "its certificate is not for 127.0.0.1"),
        (format!("sslmode=verify-full&{wrong}"), "issuer in sslrootcert"),
        (format!("sslmode=verify-ca&{wrong}"), "issuer in sslrootcert"),
        (format!("sslmode=require&{wrong}"), "issuer in sslrootcert"),
    ] {
        let why = refused(&at(&options, "127.0.0.1", &settings)).await;
        assert!(why.contains(told), "{settings}: {why}");
    }

    // Who has to show a certificate.
    let (certificate, key) = authority.issue("carded");
    let (card, key) = (cluster.file("card.crt", &certificate), cluster.file("card.key", &key));
    let address = options.address.replace("knee@", "carded@");
    let carded = Options { address, ..options };
    let why = refused(&at(&carded, "127.0.0.1", "sslmode=require")).await;
    assert!(why.contains("certificate"), "{why}");
    let shown = format!("sslmode=require&sslcert={}&sslkey={}", card.display(), key.display());
    assert!(is_encrypted(&cluster, &at(&carded, "127.0.0.1", &shown)).await);
}

#[tokio::test]
async fn nothing_is_sent_in_the_clear_where_that_was_not_asked_for() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    assert!(!is_encrypted(&cluster, &at(&options, "127.0.0.1", "sslmode=prefer")).await);
    let authority = Authority::new();
    let root = cluster.file("root.crt", &authority.certificate);
    for settings in [
        "sslmode=require".to_owned(),
        format!("sslmode=verify-full&sslrootcert={}", root.display()),
    ] {
        let why = refused(&at(&options, "127.0.0.1", &settings)).await;
        assert!(why.contains("server does not support TLS"), "{why}");
    }
}

/// As libpq does.
#[tokio::test]
async fn who_only_prefers_tls_does_without_where_it_fails() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("localhost");
    let cluster = Cluster::encrypted(&authority.certificate, &certificate, &key).await;
    let options = cluster.migrated().await;
    let with = |settings: &str| at(&options, "127.0.0.1", settings);
    // Who is let in only without.
    let address = options.address.replace("knee@", "uncarded@");
    let uncarded = Options { address, ..options.clone() };
    assert!(!is_encrypted(&cluster, &at(&uncarded, "127.0.0.1", "sslmode=prefer")).await);
    let why = refused(&at(&uncarded, "127.0.0.1", "sslmode=require")).await;
    assert!(why.contains("uncarded"), "{why}");
    // Who is let in only with it, by a certificate that he has not.
    let address = options.address.replace("knee@", "carded@");
    let carded = Options { address, ..options.clone() };
    let why = refused(&at(&carded, "127.0.0.1", "sslmode=prefer")).await;
    assert!(why.contains("certificate") && why.contains("nor in the clear"), "{why}");

    let database = cluster.connect("postgres").await;
    for old in [
        "ALTER SYSTEM SET ssl_min_protocol_version = 'TLSv1'",
        "ALTER SYSTEM SET ssl_max_protocol_version = 'TLSv1.1'",
        "SELECT pg_reload_conf()",
    ] {
        database.batch_execute(old).await.unwrap();
    }
    let told = async {
        loop {
            match Postgres::open(&with("sslmode=require")).await {
                Err(failed) => return failed.to_string(),
                Ok(_) => sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let why = timeout(PATIENCE, told).await.expect("it is read at last");
    assert!(why.contains("TLS handshake"), "{why}");
    assert!(!is_encrypted(&cluster, &with("sslmode=prefer")).await);
}
