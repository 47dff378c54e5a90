//! The address of the database, its password and the settings of each session.
//!
//! The address is never part of a message: a mistyped one may have a password anywhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure;
use super::options::Options;
use super::tls::Tls;
use crate::database::Failure;

/// Longest time until a new connection can be used. `connect_timeout` in the address replaces it.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// TCP closes a connection whose data the server's machine does not acknowledge for this time.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(20);
/// TCP probes a connection without traffic: the listening connection sends nothing.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// The settings of every session. A generic plan is made once, perhaps while the tables are empty. Without sequential
/// and bitmap scans, it also suits full tables. With READ COMMITTED, each statement of a function sees the commits
/// before the statement. A call that has waited for a lock needs that.
const SESSION: &str = "-c plan_cache_mode=force_generic_plan -c jit=off \
    -c enable_seqscan=off -c enable_bitmapscan=off \
    -c default_transaction_isolation=read\\ committed -c default_transaction_deferrable=off \
    -c client_encoding=UTF8";

/// Every session runs this first: an answered commit is on the disk, even if role or database set
/// `synchronous_commit = off`. Other values stay; they may wait for standbys.
pub(super) const DURABLE: &str = "SELECT set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false)";

/// Where the database is, as which user, and how connections are encrypted.
#[derive(Debug, Clone)]
pub(super) struct Address {
    config: Config,
    tls: Tls,
    connect_max: Duration,
    call_max: Duration,
}

type Encrypted = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

impl Address {
    /// Parses `postgresql://USER@HOST:PORT/DATABASE`. Finds the password in the given file, in `PGPASSWORD`, in the
    /// file that `PGPASSFILE` names, or in `~/.pgpass`.
    ///
    /// # Errors
    /// When the address cannot be parsed, or has a password or several hosts; when a file cannot be read.
    pub(super) fn read(options: &Options) -> Result<Address, Failure> {
        let (text, tls) = Tls::take_from(&options.address)?;
        let mut config: Config = text.parse().map_err(|_| {
            invalid("the address cannot be read: use postgresql://USER@HOST:PORT/NAME")
        })?;
        if config.get_user().is_none() {
            let user = std::env::var("PGUSER").or_else(|_| std::env::var("USER"));
            config.user(user.unwrap_or_else(|_| "postgres".to_owned()));
        }
        if config.get_password().is_some() {
            return Err(invalid(
                "the address has a password, which other users can see in the list of processes: use a file, \
                 PGPASSWORD or ~/.pgpass",
            ));
        }
        if config.get_hosts().len().max(config.get_hostaddrs().len()) > 1 {
            return Err(invalid(
                "the address has several hosts, but all connections need the same server: name one",
            ));
        }
        if let Some(password) = password(&config, options.password_file.as_deref())? {
            config.password(password);
        }
        let call_max = options.call_max;
        let others = config.get_options().unwrap_or_default();
        let session = format!("{SESSION} -c statement_timeout={} {others}", call_max.as_millis());
        config.options(session);
        let connect_max = config.get_connect_timeout().copied().unwrap_or(CONNECT_MAX);
        config.connect_timeout(connect_max);
        config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
        config
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES);
        if config.get_application_name().is_none() {
            config.application_name("knee-queue");
        }
        // A Unix socket stays within the machine; libpq does not encrypt it either.
        let is_local = matches!(config.get_hosts(), [Host::Unix(_)]);
        config.ssl_mode(if is_local { SslMode::Disable } else { tls.mode });
        Ok(Address { config, tls, connect_max, call_max })
    }

    /// Opens a connection. The caller must poll the `Connection`, for example in a task.
    pub(super) async fn connect(&self) -> Result<(Client, Connection<Socket, Encrypted>), Failure> {
        // The limit in `config` covers TCP's handshake alone.
        self.in_time(async {
            let connected = self.config.connect(self.tls.connect.clone()).await;
            connected.map_err(|error| failure::connecting(&error))
        })
        .await
    }

    /// Limits the time of a step that opens a connection.
    pub(super) async fn in_time<T>(
        &self,
        opening: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let max = self.connect_max;
        timeout(max, opening).await.unwrap_or_else(|_| {
            Err(Failure::Unavailable(format!(
                "cannot connect to the database: no answer within {max:?}"
            )))
        })
    }

    /// How long an answer may take: longer than the database's own limit, which counts neither the transfer nor the
    /// commit.
    pub(super) fn answer_max(&self) -> Duration {
        2 * self.call_max
    }
}

fn invalid(text: &str) -> Failure {
    Failure::Invalid(text.to_owned())
}

fn password(config: &Config, file: Option<&Path>) -> Result<Option<String>, Failure> {
    if let Some(file) = file {
        let text = fs::read_to_string(file).map_err(|error| {
            invalid(&format!("cannot read the file of --database-password-file: {error}"))
        })?;
        return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
    if let Ok(password) = std::env::var("PGPASSWORD") {
        return Ok(Some(password));
    }
    let named = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass"));
    let Some(file) = named.or_else(usual).filter(|file| file.is_file()) else { return Ok(None) };
    let failed = |why: &str| invalid(&format!("cannot use {}: {why}", file.display()));
    let mode = fs::metadata(&file).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        return Err(failed("other users can read it; `chmod 600` it"));
    }
    let text = fs::read_to_string(&file).map_err(|error| failed(&error.to_string()))?;
    Ok(entry(&text, &wanted(config)))
}

/// Host, port, database and user, in the order of an entry.
fn wanted(config: &Config) -> [String; 4] {
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(host)), _) => host.clone(),
        (None, Some(number)) => number.to_string(),
        _ => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user().unwrap_or_default().to_owned();
    let database = config.get_dbname().unwrap_or(&user).to_owned();
    [host, port, database, user]
}

/// The password of the first matching line `HOST:PORT:DATABASE:USER:PASSWORD`. A field `*` matches any value; a `\`
/// stands before a literal colon or `\`.
fn entry(text: &str, wanted: &[String; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = vec![String::new()];
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            match letter {
                ':' if fields.len() < 5 => fields.push(String::new()),
                '\\' => fields.last_mut()?.extend(letters.next()),
                _ => fields.last_mut()?.push(letter),
            }
        }
        let password = if fields.len() == 5 { fields.pop()? } else { return None };
        let fits = fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        fits.then_some(password)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io;

    use knee_server::Trace;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn read(text: &str) -> Result<Address, Failure> {
        Address::read(&Options {
            address: text.to_owned(),
            password_file: None,
            connections: 1,
            connection_wait: Duration::ZERO,
            call_max: Duration::from_secs(30),
            idle_max: None,
            combine_max: 1,
            log: Trace::to_sink("test", io::sink()),
        })
    }

    #[test]
    fn unusable_address_is_refused_and_not_repeated() {
        for (text, why) in [
            ("postgresql://me:secret@there/db", "PGPASSWORD"),
            ("postgresql://me@there/db?password=secret", "PGPASSWORD"),
            ("postgresql://me@there/db?secret=bar", "cannot be read"),
            ("postgresql://me:secret/db", "cannot be read"),
            ("postgresql://secret,two:5433/db", "several hosts"),
            ("postgresql://me@there/db?sslmode=secret", "sslmode"),
        ] {
            let Err(Failure::Invalid(refusal)) = read(text) else { panic!("{text} is taken") };
            assert!(refusal.contains(why) && !refusal.contains("secret"), "{refusal}");
        }
    }

    #[test]
    fn first_fitting_entry_has_the_password() {
        let wanted = ["here", "5432", "db", "me"].map(str::to_owned);
        let text = "# here:5432:db:me:no\nthere:5432:db:me:no\nhere:5433:db:me:no\nshort:line\n\
                    *:*:db:me:a\\:b\\\\c:d\nhere:5432:db:me:later";
        assert_eq!(entry(text, &wanted).unwrap(), "a:b\\c:d");
        assert_eq!(entry("here:5432:db:you:no", &wanted), None);
    }

    #[test]
    fn password_belongs_to_the_host_of_the_connection() {
        for (text, host) in [
            ("postgresql://me@there/db", "there"),
            ("host=there hostaddr=10.0.0.5 user=me", "there"),
            ("hostaddr=10.0.0.5 user=me", "10.0.0.5"),
            ("host=/run/postgresql user=me", "localhost"),
            ("user=me", "localhost"),
        ] {
            assert_eq!(wanted(&text.parse().unwrap())[0], host, "{text}");
        }
    }

    #[test]
    fn debug_output_has_no_password() {
        let mut address = read("postgresql://me@localhost/db").unwrap();
        address.config.password("swordfish");
        assert!(!format!("{address:?}").contains("swordfish"));
    }

    /// The failure of a connection attempt that a server answers with this error.
    async fn refused(code: &'static str, said: &'static str) -> Failure {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let answers = tokio::spawn(async move {
            let (mut client, _) = server.accept().await.unwrap();
            let length = client.read_u32().await.unwrap();
            client.read_exact(&mut vec![0; length as usize - 4]).await.unwrap();
            let fields = format!("SFATAL\0VFATAL\0C{code}\0M{said}\0\0");
            client.write_u8(b'E').await.unwrap();
            client.write_u32(fields.len() as u32 + 4).await.unwrap();
            client.write_all(fields.as_bytes()).await.unwrap();
        });
        let address = format!("postgresql://me@127.0.0.1:{port}/db?sslmode=disable");
        let failure = read(&address).unwrap().connect().await.err().unwrap();
        answers.await.unwrap();
        failure
    }

    #[tokio::test]
    async fn refused_connection_has_a_reason_and_not_the_servers_text() {
        for (code, why, is_allowed) in [
            ("28000", "does not admit the user", false),
            ("28P01", "password is refused", false),
            ("3D000", "no such database", false),
            ("42501", "may not connect", false),
            ("42704", "use PostgreSQL 13", true),
            ("53300", "too many connections", true),
            ("57P03", "starting or stopping", true),
            ("08P01", "refuses the connection", true),
        ] {
            let failure = refused(code, "role \"me:secret\" does not exist").await;
            assert_eq!(matches!(failure, Failure::Unavailable(_)), is_allowed, "{failure:?}");
            let text = failure.to_string();
            assert!(text.contains(why) && text.contains(code), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
