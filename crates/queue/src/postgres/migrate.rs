//! Installs the schema in an empty database, and recognises it by its checksum.

use tokio_postgres::{Client, Error};

use super::address::Address;
use super::failure;
use crate::database::Failure;

/// The schema's files, in the order of their installation.
const FILES: [&str; 7] = [
    include_str!("sql/001_tables.sql"),
    include_str!("sql/002_registration.sql"),
    include_str!("sql/003_sending.sql"),
    include_str!("sql/004_taking.sql"),
    include_str!("sql/005_reading.sql"),
    include_str!("sql/006_leases.sql"),
    include_str!("sql/007_upkeep.sql"),
];

/// The installation has no time limit.
const SESSION: &str = "SET statement_timeout = 0";

/// The earliest version with `xid8` and its functions, as `server_version_num`.
const VERSION_MIN: i32 = 130_000;

/// The advisory lock that the installation holds.
const LOCK: i64 = 0x6b6e_6565_0001;

/// Installs the schema, in one transaction; returns whether it was missing.
pub(super) async fn migrate(address: &Address) -> Result<bool, Failure> {
    let mut client = connect(address).await?;
    let version = "SELECT current_setting('server_version_num')::integer";
    let version: i32 = client.query_one(version, &[]).await.map_err(installing)?.get(0);
    if version < VERSION_MIN {
        return Err(Failure::NotMigrated(format!(
            "the database is PostgreSQL {}: use PostgreSQL 13 or later",
            version / 10_000
        )));
    }
    client.batch_execute(SESSION).await.map_err(installing)?;
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.map_err(installing)?;
    if is_installed(&client).await? {
        return Ok(false);
    }
    let transaction = client.transaction().await.map_err(installing)?;
    let begin = "CREATE SCHEMA IF NOT EXISTS knee_queue; SET LOCAL search_path = knee_queue;
        CREATE TABLE version (checksum bigint NOT NULL)";
    for sql in [begin].iter().chain(&FILES) {
        transaction.batch_execute(sql).await.map_err(installing)?;
    }
    let insert = "INSERT INTO knee_queue.version VALUES ($1)";
    transaction.execute(insert, &[&checksum()]).await.map_err(installing)?;
    transaction.commit().await.map_err(installing)?;
    Ok(true)
}

/// Checks that the database has this program's schema.
pub(super) async fn check(address: &Address) -> Result<(), Failure> {
    let client = connect(address).await?;
    if address.in_time(is_installed(&client)).await? {
        return Ok(());
    }
    let text = "the database lacks this server's schema: run `knee-queue migrate`";
    Err(Failure::NotMigrated(text.to_owned()))
}

async fn connect(address: &Address) -> Result<Client, Failure> {
    let (client, connection) = address.connect().await?;
    // The calls report its errors.
    tokio::spawn(connection);
    Ok(client)
}

async fn is_installed(client: &Client) -> Result<bool, Failure> {
    let opening = |error: Error| failure::opening(&error);
    let there = "SELECT to_regclass('knee_queue.message') IS NOT NULL,
        to_regclass('knee_queue.version') IS NOT NULL";
    let row = client.query_one(there, &[]).await.map_err(opening)?;
    let (is_there, has_version): (bool, bool) = (row.get(0), row.get(1));
    if !is_there && !has_version {
        return Ok(false);
    }
    // The table of another build may lack the column.
    let checksums = "SELECT (to_jsonb(v) ->> 'checksum')::bigint FROM knee_queue.version v";
    let rows =
        if has_version { client.query(checksums, &[]).await.map_err(opening)? } else { Vec::new() };
    match rows.as_slice() {
        [row] if row.get::<_, Option<i64>>(0) == Some(checksum()) => Ok(true),
        _ => Err(Failure::NotMigrated(
            "the database has the schema of another build of knee-queue: use that build, or an empty database"
                .to_owned(),
        )),
    }
}

fn checksum() -> i64 {
    checksum_of(&FILES)
}

/// The checksum of the statements, without lines of comments and empty lines.
fn checksum_of(files: &[&str]) -> i64 {
    let lines = files.iter().flat_map(|sql| sql.lines()).map(str::trim);
    let statements = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
    statements.fold(0, |sum, line| crc32c::crc32c_append(sum, line.as_bytes())).into()
}

fn installing(error: Error) -> Failure {
    match failure::calling(&error) {
        // The installation itself lacks a table, a column or a function.
        Failure::NotMigrated(text) => Failure::Broken(text),
        failure => failure,
    }
}

#[test]
fn checksum_covers_statements_alone() {
    let sum = checksum_of(&["CREATE TABLE a (b int);\nSELECT 1;\n"]);
    assert_eq!(
        checksum_of(&["-- A table.\nCREATE TABLE a (b int);\n\n  -- One.\n  SELECT 1;\n"]),
        sum
    );
    assert_ne!(checksum_of(&["CREATE TABLE a (b int);\nSELECT 2;\n"]), sum);
    assert_ne!(checksum_of(&["-- CREATE TABLE a (b int);\nSELECT 1;\n"]), sum);
}
