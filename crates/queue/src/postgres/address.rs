//! Where the database is, and who asks: libpq's way, but for a password in the address, which others
//! could read in a list of processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::failure;
use super::tls::{Encrypted, Settings, Tls};
use crate::database::Failure;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long what was sent may stay unacknowledged by the server's machine.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);
/// What every session is set to. Plans are made once, or PostgreSQL would plan anew in each call what it
/// thinks depends on the numbers; and as for full tables, though they may be empty then. No call takes long.
/// Each statement of a function sees what was committed before it began: who has waited for a lock needs that.
const SESSION: &str = "-c plan_cache_mode=force_generic_plan -c jit=off \
    -c enable_seqscan=off -c enable_bitmapscan=off \
    -c default_transaction_isolation=read\\ committed -c default_transaction_deferrable=off \
    -c statement_timeout=30s -c client_encoding=UTF8";

/// What every session asks for first: a commit that is answered is on the disk, whatever role or database
/// are set to. Who waits for standbys as well goes on doing so.
pub(super) const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'";

/// Where the database is, who asks, and how connections are encrypted.
#[derive(Debug, Clone)]
pub(super) struct Address {
    config: Config,
    tls: Tls,
}

impl Address {
    /// Another connection, for a task of its own.
    pub(super) async fn connect(&self) -> Result<(Client, Connection<Socket, Encrypted>), Failure> {
        let connected = self.config.connect(self.tls.clone()).await;
        connected.map_err(|error| failure::connecting(&error))
    }
}

/// Reads an address, `postgresql://USER@HOST:PORT/DATABASE` or `host=... user=...`, and finds its
/// password: in the given file, in `PGPASSWORD`, or in the file that `PGPASSFILE` names or `~/.pgpass`.
///
/// # Errors
/// When it cannot be read, or has a password; when there is not what it names for TLS.
pub(super) fn address(text: &str, password_file: Option<&Path>) -> Result<Address, Failure> {
    let (text, settings) = Settings::take_from(text);
    let mut config: Config = text.parse().map_err(|error: tokio_postgres::Error| {
        // Not the address itself: it may have a password.
        Failure::Invalid(format!("the database's address cannot be read: {error}"))
    })?;
    if config.get_password().is_some() {
        return Err(Failure::Invalid(
            "the database's address has a password, which others could read: put it into a file, or \
             into PGPASSWORD or ~/.pgpass"
                .to_owned(),
        ));
    }
    if config.get_user().is_none() {
        let user = std::env::var("PGUSER").or_else(|_| std::env::var("USER"));
        config.user(user.unwrap_or_else(|_| "postgres".to_owned()));
    }
    if let Some(password) = password(&config, password_file)? {
        config.password(password);
    }
    let options = config.get_options().unwrap_or_default();
    config.options(format!("{SESSION} {options}"));
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    config.tcp_user_timeout(UNACKNOWLEDGED);
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
    Ok(Address { config, tls })
}

fn password(config: &Config, file: Option<&Path>) -> Result<Option<String>, Failure> {
    if let Some(file) = file {
        let text = read(file)?;
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

/// Host, port, database and user, as an entry has them.
fn wanted(config: &Config) -> [String; 4] {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
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
    use super::*;

    #[test]
    fn a_password_in_the_address_is_refused_and_not_repeated() {
        for text in
            ["postgresql://me:secret@localhost/db", "host=localhost user=me password=secret"]
        {
            let Err(Failure::Invalid(told)) = address(text, None) else {
                panic!("{text} is taken")
            };
            assert!(told.contains("PGPASSWORD") && !told.contains("secret"), "{told}");
        }
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
    fn passwords_are_not_shown() {
        let mut address = address("postgresql://me@localhost/db", None).unwrap();
        address.config.password("swordfish");
        assert!(!format!("{address:?}").contains("swordfish"));
    }
}
