//! The schema, in versions that follow each other.

use tokio_postgres::Client;

use super::address::Address;
use super::failure;
use crate::database::Failure;

/// A version of the schema.
#[derive(Clone, Copy)]
struct Migration {
    number: i32,
    name: &'static str,
    sql: &'static str,
}

/// In their order. What was released is not changed any more: a change is a further one.
const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "tables", sql: include_str!("sql/001_tables.sql") },
    Migration { number: 2, name: "registration", sql: include_str!("sql/002_registration.sql") },
    Migration { number: 3, name: "sending", sql: include_str!("sql/003_sending.sql") },
    Migration { number: 4, name: "taking", sql: include_str!("sql/004_taking.sql") },
    Migration { number: 5, name: "reading", sql: include_str!("sql/005_reading.sql") },
    Migration { number: 6, name: "leases", sql: include_str!("sql/006_leases.sql") },
    Migration { number: 7, name: "upkeep", sql: include_str!("sql/007_upkeep.sql") },
    Migration { number: 8, name: "watching", sql: include_str!("sql/008_watching.sql") },
];

/// A migration takes as long as it takes, and plans as for the tables that there are.
const SESSION: &str =
    "SET statement_timeout = 0; SET enable_seqscan = on; SET enable_bitmapscan = on;
    SET plan_cache_mode = auto";

/// The earliest major version that has what the schema needs: `xid8`, and the functions that answer it.
const VERSION_MIN: i32 = 13;

/// Held by whoever migrates: one at a time.
const LOCK: i64 = 0x6b6e_6565_0001;

/// Installs what is missing, and answers the names of that. Each migration is a transaction.
pub(super) async fn migrate(address: &Address) -> Result<Vec<String>, Failure> {
    install(address, MIGRATIONS).await
}

async fn install(address: &Address, migrations: &[Migration]) -> Result<Vec<String>, Failure> {
    let mut client = connect(address).await?;
    let calling = |error| failure::calling(&error);
    let version = "SELECT current_setting('server_version_num')::integer";
    check_version(client.query_one(version, &[]).await.map_err(calling)?.get(0))?;
    client.batch_execute(SESSION).await.map_err(calling)?;
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.map_err(calling)?;
    // Who may not make a schema may find all there.
    if !is_there(&client).await? {
        client
            .batch_execute(
                "CREATE SCHEMA IF NOT EXISTS knee_queue;
             CREATE TABLE IF NOT EXISTS knee_queue.migration (
                 number integer PRIMARY KEY, name text NOT NULL, checksum bigint NOT NULL,
                 installed_at timestamptz NOT NULL DEFAULT now())",
            )
            .await
            .map_err(calling)?;
    }
    let installed = check_known(&client, migrations).await?;
    let mut done = Vec::new();
    for migration in migrations.iter().skip(installed) {
        let transaction = client.transaction().await.map_err(calling)?;
        transaction
            .batch_execute(&format!("SET LOCAL search_path = knee_queue; {}", migration.sql))
            .await
            .map_err(|error| in_migration(migration, &error))?;
        transaction
            .execute(
                "INSERT INTO knee_queue.migration (number, name, checksum) VALUES ($1, $2, $3)",
                &[&migration.number, &migration.name, &checksum(migration)],
            )
            .await
            .map_err(|error| in_migration(migration, &error))?;
        transaction.commit().await.map_err(|error| in_migration(migration, &error))?;
        done.push(format!("{:03}_{}", migration.number, migration.name));
    }
    Ok(done)
}

/// Whether a server of this `server_version_num` can have the schema.
fn check_version(number: i32) -> Result<(), Failure> {
    // Since PostgreSQL 10.
    let (major, minor) = (number / 10_000, number % 10_000);
    if major >= VERSION_MIN {
        return Ok(());
    }
    Err(too_old(&format!("{major}.{minor}")))
}

/// Of a server of such a version.
pub(super) fn too_old(version: &str) -> Failure {
    Failure::NotMigrated(format!(
        "the database is of PostgreSQL {version}, which has not what knee-queue needs: use \
         {VERSION_MIN} or a later one"
    ))
}

/// Whether the schema is the one that this server needs.
pub(super) async fn check(address: &Address) -> Result<(), Failure> {
    check_against(address, MIGRATIONS).await
}

async fn check_against(address: &Address, migrations: &[Migration]) -> Result<(), Failure> {
    let client = connect(address).await?;
    address.in_time(check_all(&client, migrations)).await
}

/// Whether something was ever installed.
async fn is_there(client: &Client) -> Result<bool, Failure> {
    let there = client
        .query_one("SELECT to_regclass('knee_queue.migration') IS NOT NULL", &[])
        .await
        .map_err(|error| failure::opening(&error))?;
    Ok(there.get(0))
}

async fn check_all(client: &Client, migrations: &[Migration]) -> Result<(), Failure> {
    let installed =
        if is_there(client).await? { check_known(client, migrations).await? } else { 0 };
    if installed == migrations.len() {
        return Ok(());
    }
    Err(Failure::NotMigrated(format!(
        "the database has {installed} of the {} migrations that this server needs: run \
         `knee-queue migrate`",
        migrations.len()
    )))
}

async fn connect(address: &Address) -> Result<Client, Failure> {
    let (client, connection) = address.connect().await?;
    // Its errors are those of the calls.
    tokio::spawn(connection);
    Ok(client)
}

/// How many migrations are installed, which must be the first of ours, unchanged.
async fn check_known(client: &Client, migrations: &[Migration]) -> Result<usize, Failure> {
    let rows = client
        .query("SELECT number, name, checksum FROM knee_queue.migration ORDER BY number", &[])
        .await
        .map_err(|error| failure::opening(&error))?;
    for (place, row) in rows.iter().enumerate() {
        let (number, name): (i32, String) = (row.get(0), row.get(1));
        let Some(ours) = migrations.get(place).filter(|ours| ours.number == number) else {
            return Err(Failure::NotMigrated(format!(
                "the database has migration {number:03}_{name}, which this program does not know: run \
                 a later knee-queue"
            )));
        };
        if row.get::<_, i64>(2) != checksum(ours) {
            return Err(Failure::NotMigrated(format!(
                "the database has another migration {number:03}_{name} than this program: they are of \
                 different builds"
            )));
        }
    }
    Ok(rows.len())
}

fn checksum(migration: &Migration) -> i64 {
    i64::from(crc32c::crc32c(migration.sql.as_bytes()))
}

fn in_migration(migration: &Migration, error: &tokio_postgres::Error) -> Failure {
    let Migration { number, name, .. } = migration;
    let told = |text: String| format!("migration {number:03}_{name}: {text}");
    match failure::calling(error) {
        // What is missing is what the migration itself asks for: to migrate is no help.
        Failure::NotMigrated(_) => Failure::Broken(told(failure::text(error))),
        Failure::NotAllowed(text) => Failure::NotAllowed(told(text)),
        Failure::Full(text) => Failure::Full(told(text)),
        Failure::Unavailable(text) => Failure::Unavailable(told(text)),
        Failure::Unknown(text) => Failure::Unknown(told(text)),
        Failure::Broken(text) => Failure::Broken(told(text)),
        other => other,
    }
}

#[cfg(test)]
mod upgrades;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_refused_that_is_too_old_for_the_schema() {
        for (number, is_refused) in [(120_022, true), (130_000, false), (150_014, false)] {
            let checked = check_version(number);
            assert_eq!(checked.is_err(), is_refused, "{number}");
            if let Err(failed) = checked {
                let (told, version) = (failed.to_string(), number / 10_000);
                assert!(told.contains(&format!("PostgreSQL {version}.2")), "{told}");
                assert!(told.contains("use 13 or a later one"), "{told}");
            }
        }
    }
}
