//! Where the database is, and who asks: libpq's way, but for a password in the address, which others
//! could read in a list of processes.

use std::error::Error as _;
use std::fs;
use std::net::Ipv6Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::failure::Withheld;
use super::tls::{Encrypted, Settings, Tls};
use super::{Options, failure};
use crate::database::Failure;
use crate::plain::{is_name, is_path};

/// How long it may take until a connection can be used, where the address does not say.
const CONNECT: Duration = Duration::from_secs(10);
/// How long what was sent may stay unacknowledged by the server's machine.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);
/// How long nothing may come before the server's machine is asked whether it is there; how often then, and
/// how many times without an answer. Who listens sends nothing else.
const QUIET: Duration = Duration::from_secs(15);
const PROBE: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// What every session is set to. Plans are made once, or PostgreSQL would plan anew in each call what it
/// thinks depends on the numbers; and as for full tables, though they may be empty then. A server that has not the first
/// of these settings is told from that (see `failure`).
/// Each statement of a function sees what was committed before it began: who has waited for a lock needs that.
const SESSION: &str = "-c plan_cache_mode=force_generic_plan -c jit=off \
    -c enable_seqscan=off -c enable_bitmapscan=off \
    -c default_transaction_isolation=read\\ committed -c default_transaction_deferrable=off \
    -c client_encoding=UTF8";

/// What every session asks for first: a commit that is answered is on the disk, whatever role or database
/// are set to, now or later. Who waits for standbys as well goes on doing so.
pub(super) const DURABLE: &str = "SELECT set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false)";

/// Where the database is, who asks, and how connections are encrypted.
#[derive(Debug, Clone)]
pub(super) struct Address {
    config: Config,
    tls: Tls,
    /// How long it may take until a connection can be used.
    connect_max: Duration,
    /// How long the database may take for a call.
    call_max: Duration,
    /// What of it is not repeated.
    withheld: Withheld,
}

impl Address {
    /// Another connection, for a task of its own.
    pub(super) async fn connect(&self) -> Result<(Client, Connection<Socket, Encrypted>), Failure> {
        // Its own limit is one of TCP's: who accepts may say nothing for ever.
        self.in_time(async {
            let tls = self.tls.anew();
            let withheld = &self.withheld;
            let encrypted = match self.config.connect(tls.clone()).await {
                Err(error) if self.may_be_clear(&tls) => error,
                connected => {
                    return connected.map_err(|error| failure::connecting(&error, None, withheld));
                }
            };
            // As libpq does where a server has said that it encrypts, and then it fails, or lets nobody in.
            let mut config = self.config.clone();
            let clear = config.ssl_mode(SslMode::Disable).connect(tls).await;
            clear.map_err(|error| failure::connecting(&encrypted, Some(&error), withheld))
        })
        .await
    }

    /// Whether a connection for which encrypting was begun may as well be in the clear.
    fn may_be_clear(&self, begun: &Tls) -> bool {
        self.config.get_ssl_mode() == SslMode::Prefer && begun.was_begun()
    }

    /// Does what has to be done until a connection can be used, in the time that there is for that.
    pub(super) async fn in_time<T>(
        &self,
        opening: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let max = self.connect_max;
        timeout(max, opening).await.unwrap_or_else(|_| {
            Err(Failure::Unavailable(format!(
                "cannot connect to the database: it has not answered within {max:?}"
            )))
        })
    }

    /// How long an answer is waited for: longer than the database takes until it gives up, which counts
    /// neither what it is sent nor the commit.
    pub(super) fn answer_max(&self) -> Duration {
        2 * self.call_max
    }
}

/// Reads the address, `postgresql://USER@HOST:PORT/DATABASE` or `host=... user=...`, and finds its
/// password: in the given file, in `PGPASSWORD`, or in the file that `PGPASSFILE` names or `~/.pgpass`.
///
/// # Errors
/// When it cannot be read, or has a password; when there is not what it names for TLS.
pub(super) fn address(options: &Options) -> Result<Address, Failure> {
    let (text, settings) = Settings::take_from(&options.address);
    let mut config = config(&text).map_err(|error| Failure::Invalid(unreadable(&text, &error)))?;
    if config.get_password().is_some() {
        return Err(Failure::Invalid(
            "the database's address has a password, which others could read: put it into a file, or \
             into PGPASSWORD or ~/.pgpass"
                .to_owned(),
        ));
    }
    // What one server has told of its numbers would be taken for another's.
    if config.get_hosts().len().max(config.get_hostaddrs().len()) > 1 {
        return Err(Failure::Invalid(
            "the database's address has several hosts: all connections have to be to the same server, so \
             name one host, such as one that follows the primary"
                .to_owned(),
        ));
    }
    if let Some(password) = password(&config, options.password_file.as_deref())? {
        config.password(password);
    }
    let withheld = withheld(&config);
    let call_max = options.call_max;
    let others = config.get_options().unwrap_or_default();
    let session = format!("{SESSION} -c statement_timeout={} {others}", call_max.as_millis());
    config.options(session);
    let connect_max = config.get_connect_timeout().copied().unwrap_or(CONNECT);
    config.connect_timeout(connect_max);
    config.tcp_user_timeout(UNACKNOWLEDGED);
    config.keepalives_idle(QUIET).keepalives_interval(PROBE).keepalives_retries(PROBES);
    if config.get_application_name().is_none() {
        config.application_name("knee-queue");
    }
    let tls = Tls::new(&settings.or_environment())?;
    // Nobody is between two processes of one machine: libpq encrypts no socket of Unix either.
    let is_unix = |host: &Host| matches!(host, Host::Unix(_));
    let is_local = !config.get_hosts().is_empty() && config.get_hosts().iter().all(is_unix);
    config.ssl_mode(if is_local { SslMode::Disable } else { tls.mode });
    if config.get_hosts().is_empty() {
        // Then the certificate is for that.
        let hosts: Vec<_> = config.get_hostaddrs().iter().map(ToString::to_string).collect();
        hosts.into_iter().for_each(|host| _ = config.host(host));
    }
    Ok(Address { config, tls, connect_max, call_max, withheld })
}

/// What to call the database that an address names, `USER@HOST:PORT/DATABASE`. `None` when the address cannot be read or
/// has no host, or where some of that is no plain name: one that was mistyped has its password anywhere.
#[must_use]
pub fn database_name(address: &str) -> Option<String> {
    let (text, _) = Settings::take_from(address);
    let config = config(&text).ok()?;
    let has_none = config.get_hosts().is_empty() && config.get_hostaddrs().is_empty();
    if has_none || config.get_password().is_some() || !is_of_names(&config) {
        return None;
    }
    let [mut host, port, database, user] = wanted(&config);
    match config.get_hosts().first() {
        Some(Host::Unix(socket)) => host = socket.display().to_string(),
        _ if host.contains(':') => host = format!("[{host}]"),
        _ => {}
    }
    Some(format!("{user}@{host}:{port}/{database}"))
}

/// Whether who asks, the host and the database have plain names: then none has a password in it that was meant to stand
/// elsewhere.
fn is_of_names(config: &Config) -> bool {
    let [_, _, database, user] = wanted(config);
    let is_host = |host: &Host| match host {
        Host::Tcp(name) => is_host(name),
        Host::Unix(socket) => socket.to_str().is_some_and(is_path),
    };
    is_name(&user) && is_name(&database) && config.get_hosts().iter().all(is_host)
}

fn is_host(name: &str) -> bool {
    is_name(name) || name.parse::<Ipv6Addr>().is_ok()
}

/// What of an address is not plain, of what a server is told: the host is in what begins TLS.
fn withheld(config: &Config) -> Withheld {
    let [host, _, database, user] = wanted(config);
    let names = [(is_name(&user), user), (is_host(&host), host), (is_name(&database), database)];
    let is_withheld = |(is_plain, name): &(bool, String)| !is_plain && !name.is_empty();
    let names = names.into_iter().filter(is_withheld).map(|(_, name)| name).collect();
    Withheld { names, options: !config.get_options().is_none_or(is_of_settings) }
}

/// Whether options of a server set plain names to plain values, and there is nothing else.
fn is_of_settings(options: &str) -> bool {
    let is_setting = |set: &str| {
        set.split_once('=').is_some_and(|(name, value)| is_name(name) && is_name(value))
    };
    let mut words = options.split_whitespace();
    while let Some(word) = words.next() {
        let set = match word {
            "-c" => words.next(),
            _ => word.strip_prefix("-c").or_else(|| word.strip_prefix("--")),
        };
        if !set.is_some_and(is_setting) {
            return false;
        }
    }
    true
}

/// What is wrong with an address. It is not repeated: it may have a password.
fn unreadable(text: &str, error: &tokio_postgres::Error) -> String {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let unknown = cause.strip_prefix("unknown option `").and_then(|cause| cause.strip_suffix('`'));
    match unknown {
        Some(option) if is_option(text, option) => {
            format!("the database's address has an option that is not known: {option}")
        }
        // These are named by what is known.
        None if cause.starts_with("invalid value for option `") => {
            format!("the database's address cannot be read: {cause}")
        }
        _ => format!("the database's address cannot be read: {error}"),
    }
}

/// Whether this is the name of an option of a URL, and not what a password goes on with behind a `?` or a `&`: the host
/// comes behind an `@`, and no option before is a password, or may be one in other letters.
fn is_option(url: &str, option: &str) -> bool {
    let is_plain = |name: &str| {
        !name.is_empty() && name.bytes().all(|letter| matches!(letter, b'a'..=b'z' | b'_'))
    };
    let Some((_, options)) = url.split_once('?') else { return false };
    let names = options.split('&').filter_map(|set| Some(set.split_once('=')?.0));
    let mut before = names.take_while(|name| *name != option);
    is_plain(option)
        && !options.contains('@')
        && before.all(|name| is_plain(name) && name != "password")
}

fn config(text: &str) -> Result<Config, tokio_postgres::Error> {
    let mut config: Config = text.parse()?;
    if config.get_user().is_none() {
        let user = std::env::var("PGUSER").or_else(|_| std::env::var("USER"));
        config.user(user.unwrap_or_else(|_| "postgres".to_owned()));
    }
    Ok(config)
}

fn password(config: &Config, file: Option<&Path>) -> Result<Option<String>, Failure> {
    if let Some(file) = file {
        // Who writes the password itself there finds no file.
        let text = fs::read_to_string(file).map_err(|error| {
            Failure::Invalid(format!("cannot read the file of --database-password-file: {error}"))
        })?;
        return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
    if let Ok(password) = std::env::var("PGPASSWORD") {
        return Ok(Some(password));
    }
    let named = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass"));
    let Some(file) = named.or_else(usual).filter(|file| file.is_file()) else { return Ok(None) };
    let mode = fs::metadata(&file).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        return Err(Failure::Invalid(format!(
            "{} can be read by others: `chmod 600` it",
            file.display()
        )));
    }
    Ok(entry(&read(&file)?, &wanted(config)))
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| {
        Failure::Invalid(format!("cannot read the password in {}: {error}", file.display()))
    })
}

/// Host, port, database and user, as an entry has them. A host without a name is its number: what is
/// there for localhost is not for another machine.
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

/// The password of the first line that fits: `HOST:PORT:DATABASE:USER:PASSWORD`, `*` for any, with `\`
/// before a colon or a `\` that is meant.
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn read(text: &str) -> Result<Address, Failure> {
        address(&Options {
            address: text.to_owned(),
            password_file: None,
            connections: 1,
            connection_wait: Duration::ZERO,
            call_max: Duration::from_secs(30),
            sending_max: Duration::ZERO,
            idle_max: None,
            combine_max: 1,
            tell: |_| {},
        })
    }

    #[test]
    fn a_password_in_the_address_is_refused_and_not_repeated() {
        for text in
            ["postgresql://me:secret@localhost/db", "host=localhost user=me password=secret"]
        {
            let Err(Failure::Invalid(told)) = read(text) else { panic!("{text} is taken") };
            assert!(told.contains("PGPASSWORD") && !told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_unless_it_may_be_of_a_password() {
        let unreadable = "the database's address cannot be read: ";
        let unknown = "the database's address has an option that is not known: ";
        for (text, prefix, named) in [
            ("postgres://me@there/db?foo=bar", unknown, "foo"),
            (
                "postgres://me@there?connect_timeout=3&sslmode=disable&gss_mode=bar",
                unknown,
                "gss_mode",
            ),
            ("postgres://there/db?pasword=secret&se=cret", unknown, "pasword"),
            ("postgres://me@there:port/db", unreadable, "invalid value for option `port`"),
            ("postgres://me:secret/db", unreadable, "invalid value for option `port`"),
            ("postgres://me@there/db?foo", unreadable, "invalid connection string"),
        ] {
            let Err(Failure::Invalid(told)) = read(text) else { panic!("{text} is taken") };
            assert_eq!(told, format!("{prefix}{named}"), "{text}");
        }
        for text in [
            "postgres://me:x@y?secret=z@there/db",
            "postgres://me:x@y?z&secret=z@there/db?foo=bar",
            "postgres://me@there/db?password=x&secret=y",
            "postgres://me@there/db?p%61ssword=x&secret=y",
            "postgres://me@there/db?password:secret=x",
            "postgres://me@there/db?x&secret=y",
            "postgres://me@there/db?=secret",
            "me:secret=x",
        ] {
            let Err(Failure::Invalid(told)) = read(text) else { panic!("{text} is taken") };
            assert_eq!(told, format!("{unreadable}invalid connection string"), "{text}");
        }
    }

    #[test]
    fn several_hosts_are_refused() {
        for text in [
            "postgresql://me@one,two:5433/db",
            "host=one,two user=me",
            "hostaddr=127.0.0.1,127.0.0.2 user=me",
        ] {
            let Err(Failure::Invalid(told)) = read(text) else { panic!("{text} is taken") };
            assert!(told.contains("several hosts"), "{told}");
        }
    }

    #[test]
    fn whether_the_other_machine_is_there_is_asked_soon() {
        let config = read("postgresql://me@localhost/db").unwrap().config;
        assert!(config.get_keepalives());
        assert_eq!(config.get_keepalives_idle(), QUIET);
        assert_eq!(config.get_keepalives_interval(), Some(PROBE));
        assert_eq!(config.get_keepalives_retries(), Some(PROBES));
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let wanted = ["here", "5432", "db", "me"].map(str::to_owned);
        let text = "# here:5432:db:me:no\nthere:5432:db:me:no\nhere:5433:db:me:no\nshort:line\n\
                    *:*:db:me:a\\:b\\\\c:d\nhere:5432:db:me:later";
        assert_eq!(entry(text, &wanted).unwrap(), "a:b\\c:d");
        assert_eq!(entry("here:5432:db:you:no", &wanted), None);
    }

    #[test]
    fn a_password_is_for_the_host_that_is_connected_to() {
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
    fn a_database_is_called_by_who_asks_and_where_it_is() {
        for (text, name) in [
            ("postgresql://me@there:5999/db?sslmode=disable", "me@there:5999/db"),
            ("host=there hostaddr=10.0.0.5 user=me", "me@there:5432/me"),
            ("hostaddr=10.0.0.5 user=me dbname=db", "me@10.0.0.5:5432/db"),
            ("host=::1 user=me", "me@[::1]:5432/me"),
            ("hostaddr=::1 user=me", "me@[::1]:5432/me"),
            (
                "postgresql://who_asks-1@there.example.org/d.b",
                "who_asks-1@there.example.org:5432/d.b",
            ),
            ("host=/run/postgresql user=me", "me@/run/postgresql:5432/me"),
        ] {
            assert_eq!(database_name(text).as_deref(), Some(name), "{text}");
        }
        for text in [
            "postgresql://me@there:port/db",
            "postgresql://me:se@cret@there/db",
            "postgresql://me@cret@there/db",
            "postgresql:///db",
            "host=there user=me password=secret",
            "postgresql://me%3Asecret@there/db",
            "postgresql://there/db?user=me:secret",
            "postgresql://me@there/db&password=secret",
            "postgresql://me@there/db;password=secret",
            "postgresql://me@there:12/se@cret/db",
            "postgresql://me:12/secret@there/db",
            "postgresql://me@there,secret@there/db",
            "postgresql://me@there%20password%3Dsecret/db",
            "postgresql://me@%2Frun%2Fpostgresql%3Apassword%3Dsecret/db",
            "host=/run/postgresql;password=secret user=me",
            "host='there password=secret' user=me",
            "host=there user='me password=secret'",
            "host=there user=me dbname=db;password=secret",
            "host=me:secret@there hostaddr=10.0.0.5 user=me",
        ] {
            assert_eq!(database_name(text), None, "{text}");
        }
    }

    /// What is told where a server says this to who asks as `user` for the database `db`, and what it was asked.
    async fn refuses(
        user: &str,
        db: &str,
        code: &'static str,
        said: &'static str,
    ) -> (Failure, String) {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let answers = tokio::spawn(async move {
            let (mut client, _) = server.accept().await.unwrap();
            let length = client.read_u32().await.unwrap();
            let mut startup = vec![0; length as usize - 4];
            client.read_exact(&mut startup).await.unwrap();
            let fields = format!("SFATAL\0VFATAL\0C{code}\0M{said}\0\0");
            client.write_u8(b'E').await.unwrap();
            client.write_u32(fields.len() as u32 + 4).await.unwrap();
            client.write_all(fields.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&startup).into_owned()
        });
        let separator = if db.contains('?') { '&' } else { '?' };
        let address =
            format!("postgresql://{user}@127.0.0.1:{port}/{db}{separator}sslmode=disable");
        let address = read(&address).unwrap();
        let failure = address.connect().await.err().unwrap();
        (failure, answers.await.unwrap())
    }

    /// What is told of a server that lacks a setting it was asked for.
    async fn lacks(said: &'static str) -> Failure {
        let (failure, startup) = refuses("me", "db", "42704", said).await;
        // Of several that it lacks it names the first.
        let first = startup.split_once("-c ").unwrap().1.split('=').next().unwrap();
        assert_eq!(first, "plan_cache_mode");
        failure
    }

    #[tokio::test]
    async fn what_a_server_says_of_who_asks_is_repeated_unless_it_may_have_a_password() {
        let (failure, _) = refuses("me", "db", "28000", "role \"me\" does not exist").await;
        let Failure::NotAllowed(told) = failure else { panic!("{failure:?}") };
        assert!(told.ends_with(": role \"me\" does not exist (28000)"), "{told}");
        let long = "me:secret-and-more-than-there-is-room-for-in-a-name-of-postgresql";
        for (user, db, code, said, words) in [
            (
                "me:secret",
                "db",
                "28000",
                "role \"me:secret\" does not exist",
                "the user is not let in",
            ),
            (
                "me",
                "é secret",
                "28P01",
                "\"me\" is not for \"é secret\"",
                "the password is refused",
            ),
            ("me", "é secret", "3D000", "no database \"é secret\"", "there is no such database"),
            ("me", "é secret", "42501", "denied: \"é secret\"", "the user may not connect"),
        ] {
            let user = user.replace(':', "%3A");
            let (failure, _) = refuses(&user, db, code, said).await;
            let Failure::NotAllowed(told) = failure else { panic!("{failure:?}") };
            assert_eq!(told, format!("cannot connect to the database: {words} ({code})"));
        }
        // Who lets in as many for each user, and a pooler.
        for (user, code, said) in [
            ("me:secret", "53300", "too many connections for role \"me:secret\""),
            ("me:secret", "08P01", "no such user: me:secret"),
            (
                long,
                "53300",
                "too many for \"me:secret-and-more-than-there-is-room-for-in-a-name-of-post\"",
            ),
        ] {
            let (failure, _) = refuses(&user.replace(':', "%3A"), "db", code, said).await;
            let Failure::Unavailable(told) = failure else { panic!("{failure:?}") };
            assert!(told.contains(code) && !told.contains("secret"), "{told}");
        }
    }

    #[tokio::test]
    async fn what_a_server_says_of_itself_is_repeated_whoever_asks() {
        for (user, db) in
            [("me%40example.com", "db"), ("me", "my%20db"), ("é", "db"), ("me", "db?options=a:b@c")]
        {
            for (code, said) in [
                ("53300", "sorry, too many clients already"),
                ("57P03", "the database system is starting up"),
            ] {
                let (failure, _) = refuses(user, db, code, said).await;
                let Failure::Unavailable(told) = failure else { panic!("{failure:?}") };
                assert_eq!(told, format!("cannot connect to the database: {said} ({code})"));
            }
        }
    }

    #[tokio::test]
    async fn what_a_server_says_of_options_is_repeated_where_they_are_plain() {
        for options in ["me:secret@there", "password=secret", "-c%20jit=me:secret", "secret", "-c"]
        {
            let db = format!("db?options={options}");
            for code in ["22023", "42601", "42501", "08P01"] {
                let (failure, _) = refuses("me", &db, code, "not known: secret").await;
                let told = failure.to_string();
                assert!(told.contains(code) && !told.contains("secret"), "{options}: {told}");
            }
            // This is said before they are read.
            let (failure, _) = refuses("me", &db, "3D000", "there is no \"db\"").await;
            assert!(failure.to_string().contains("there is no \"db\""), "{failure}");
        }
        for options in ["", "-cjit=so", "--jit=so", "-c%20jit=so%20-c%20work_mem=4MB"] {
            let db = format!("db?options={options}");
            let (failure, _) = refuses("me", &db, "22023", "no value: \"so\"").await;
            let told = failure.to_string();
            assert!(told.ends_with(": no value: \"so\" (22023)"), "{options}: {told}");
        }
    }

    #[test]
    fn a_password_in_place_of_its_file_is_not_repeated() {
        let config = config("host=there user=me").unwrap();
        let Err(Failure::Invalid(told)) = password(&config, Some(Path::new("/nowhere/secret")))
        else {
            panic!("it is read")
        };
        assert!(told.contains("--database-password-file") && !told.contains("secret"), "{told}");
    }

    #[tokio::test]
    async fn a_server_that_lacks_what_sessions_are_set_to_is_too_old() {
        let failure = lacks("unrecognized configuration parameter \"plan_cache_mode\"").await;
        let Failure::NotMigrated(told) = failure else { panic!("{failure:?}") };
        assert!(told.contains("PostgreSQL 11 or an earlier one"), "{told}");
        assert!(told.contains("use 13 or a later one"), "{told}");
        // As one that the address asks for.
        let failure = lacks("unrecognized configuration parameter \"no_such_setting\"").await;
        let Failure::Unavailable(told) = failure else { panic!("{failure:?}") };
        assert!(told.contains("no_such_setting"), "{told}");
    }

    #[test]
    fn passwords_are_not_shown() {
        let mut address = read("postgresql://me@localhost/db").unwrap();
        address.config.password("swordfish");
        assert!(!format!("{address:?}").contains("swordfish"));
    }
}
