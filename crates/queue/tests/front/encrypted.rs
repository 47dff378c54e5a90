//! TLS to PostgreSQL.

use knee_queue::postgres::{self, Options, Postgres};

use super::tls::Authority;
use crate::harness::cluster::{Cluster, name};
use crate::harness::desk::Desk;

/// The same database, with another name of its host and with these settings.
fn at(options: &Options, host: &str, settings: &str) -> Options {
    let address = options.address.replace("127.0.0.1", host);
    Options { address: format!("{address}?{settings}"), ..options.clone() }
}

/// The reason why serving and migrating are refused.
async fn refused(options: &Options) -> String {
    let Err(serving) = Postgres::open(options).await else {
        panic!("{} is served", options.address)
    };
    let migrating = postgres::migrate(options).await.expect_err("neither does it migrate");
    assert_eq!(serving, migrating);
    serving.to_string()
}

/// Whether the server's sessions are encrypted, including the listening one. Sessions of an earlier server may still be
/// open.
async fn is_encrypted(cluster: &Cluster, options: &Options) -> bool {
    let desk = Desk(Postgres::open(options).await.unwrap());
    desk.client().await;
    let database = name(options);
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
async fn sslmode_decides_which_server_is_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (certificate, key) = authority.issue("localhost");
    let cluster = Cluster::encrypted(&authority.certificate, &certificate, &key).await;
    let options = cluster.options(&cluster.database().await);
    let root = |name: &str, authority: &Authority| {
        format!("sslrootcert={}", cluster.file(name, &authority.certificate).display())
    };
    let (right, wrong) = (root("right.crt", &authority), root("wrong.crt", &other));

    let full = format!("sslmode=verify-full&{right}");
    let done = postgres::migrate(&at(&options, "localhost", &full)).await.unwrap();
    assert!(done);
    for (host, settings, encrypted) in [
        ("localhost", full.clone(), true),
        ("127.0.0.1", "sslmode=require".to_owned(), true),
        ("127.0.0.1", format!("sslmode=prefer&{wrong}"), true),
        ("127.0.0.1", String::new(), true),
        ("127.0.0.1", "sslmode=disable".to_owned(), false),
    ] {
        let is = is_encrypted(&cluster, &at(&options, host, &settings)).await;
        assert_eq!(is, encrypted, "{settings}");
    }

    for (settings, expected) in [
        (full, "the server's certificate names another host"),
        // The other issuer has the same name, but another key.
        (format!("sslmode=verify-full&{wrong}"), "TLS failed: invalid peer certificate"),
        (format!("sslmode=require&{right}"), "use verify-full"),
    ] {
        let why = refused(&at(&options, "127.0.0.1", &settings)).await;
        assert!(why.contains(expected), "{settings}: {why}");
    }

    // A user that must present a client certificate.
    let (certificate, key) = authority.issue("carded");
    let (card, key) = (cluster.file("card.crt", &certificate), cluster.file("card.key", &key));
    let address = options.address.replace("knee@", "carded@");
    let carded = Options { address, ..options };
    let why = refused(&at(&carded, "127.0.0.1", "sslmode=require")).await;
    assert!(why.contains("does not admit the user"), "{why}");
    let shown = format!("sslmode=require&sslcert={}&sslkey={}", card.display(), key.display());
    assert!(is_encrypted(&cluster, &at(&carded, "127.0.0.1", &shown)).await);
}

#[tokio::test]
async fn required_tls_is_never_replaced_by_clear_text() {
    let cluster = Cluster::shared();
    let options = cluster.migrated().await;
    assert!(!is_encrypted(cluster, &at(&options, "127.0.0.1", "sslmode=prefer")).await);
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
