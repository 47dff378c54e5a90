//! A PostgreSQL cluster for tests, with its own directory and port. All tests of an executable share one, or a test has
//! its own.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use knee_queue::postgres::{self, Options, Postgres};
use knee_testkit::{Disk, free_port};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use super::desk::PATIENCE;
use super::no_log;

/// Longest time of a call, as `knee-queue` sets it by default.
pub(crate) const CALL_MAX: Duration = Duration::from_secs(30);

/// How to stop a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// Like an administrator.
    Fast,
    /// Like a crash.
    Immediate,
}

/// A running cluster.
pub(crate) struct Cluster {
    place: PathBuf,
    port: u16,
    server: Option<Child>,
    /// The database that `migrated` copies.
    template: OnceCell<String>,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A new directory of PostgreSQL's user.
fn place() -> PathBuf {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let place = PathBuf::from(format!("/tmp/knee-postgres-{}-{number}", std::process::id()));
    fs::create_dir(&place).unwrap();
    if let Some((user, group)) = owner() {
        std::os::unix::fs::chown(&place, Some(user), Some(group)).unwrap();
    }
    place
}

/// The data directory that each cluster copies: `initdb` takes a second of a processor.
fn initialised() -> &'static Path {
    static INITIALISED: OnceLock<(PathBuf, Child)> = OnceLock::new();
    let (data, _) = INITIALISED.get_or_init(|| {
        let place = place();
        let data = place.join("data");
        let made = program("initdb")
            .args(["--no-sync", "--auth=trust", "--username=knee", "--encoding=UTF8"])
            .args(["--locale=C", "--wal-segsize=1", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let guard = guard(&place, None);
        (data, guard)
    });
    data
}

/// Stops a server and removes a directory when this process ends, which closes the guard's input.
fn guard(place: &Path, server: Option<&Child>) -> Child {
    let script = "read -r _; [ \"$2\" = 0 ] || kill -QUIT \"$2\"; \
        while [ \"$2\" != 0 ] && kill -0 \"$2\" 2>/dev/null; do sleep 0.05; done; rm -rf \"$1\"";
    Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(place)
        .arg(server.map_or(0, Child::id).to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap()
}

impl Cluster {
    /// Makes and starts a cluster, which does not wait for the disk: killed processes lose no written page.
    pub(crate) fn start() -> Cluster {
        let mut cluster = Cluster::make();
        cluster.restart();
        cluster
    }

    /// Makes and starts a cluster with all files on a disk, except for the write-ahead log.
    pub(crate) fn start_on(disk: &Disk) -> Cluster {
        let mut cluster = Cluster::make();
        let (made, log) = (cluster.place.join("data"), cluster.place.join("wal"));
        let data = disk.directory.join("data");
        fs::rename(made.join("pg_wal"), &log).unwrap();
        symlink(&log, made.join("pg_wal")).unwrap();
        copy(&made, &data);
        fs::remove_dir_all(&made).unwrap();
        symlink(&data, &made).unwrap();
        cluster.restart();
        cluster
    }

    fn make() -> Cluster {
        let place = place();
        copy(initialised(), &place.join("data"));
        Cluster { place, port: free_port(), server: None, template: OnceCell::new() }
    }

    /// The cluster that tests share. A guard stops it when this process ends.
    pub(crate) fn shared() -> &'static Cluster {
        static CLUSTER: OnceLock<(Cluster, Child)> = OnceLock::new();
        let (cluster, _) = CLUSTER.get_or_init(|| {
            let cluster = Cluster::start();
            let guard = guard(&cluster.place, cluster.server.as_ref());
            (cluster, guard)
        });
        cluster
    }

    pub(crate) fn restart(&mut self) {
        let log =
            fs::File::options().create(true).append(true).open(self.place.join("log")).unwrap();
        let mut server = program("postgres");
        server
            .arg("-D")
            .arg(self.place.join("data"))
            .args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "unix_socket_directories=", "-c", "max_connections=1000"])
            .args(["-c", "shared_buffers=64MB", "-c", "fsync=off"])
            .args(["-c", "log_line_prefix=%d "])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.server = Some(server.spawn().unwrap());
        let begun = Instant::now();
        while !self.answers() {
            let log = || fs::read_to_string(self.place.join("log")).unwrap_or_default();
            let ended = self.server.as_mut().and_then(|server| server.try_wait().unwrap());
            assert!(ended.is_none(), "it has ended: {}", log());
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        let asked = program("pg_isready")
            .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
            .status();
        asked.is_ok_and(|status| status.success())
    }

    pub(crate) fn stop(&mut self, how: Stop) {
        let Some(mut server) = self.server.take() else { return };
        let signal = match how {
            Stop::Fast => libc::SIGINT,
            Stop::Immediate => libc::SIGQUIT,
        };
        // SAFETY: the process is a child that was not waited for yet.
        unsafe { libc::kill(server.id().cast_signed(), signal) };
        server.wait().unwrap();
    }

    pub(crate) fn options(&self, database: &str) -> Options {
        Options {
            address: format!("postgresql://knee@127.0.0.1:{}/{database}", self.port),
            password_file: None,
            connections: 4,
            connection_wait: Duration::from_secs(10),
            call_max: CALL_MAX,
            idle_max: None,
            combine_max: 1,
            log: no_log(),
        }
    }

    /// Requires a password of a user from now on.
    pub(crate) fn let_in_by_password(&mut self, user: &str) {
        let rules = self.place.join("data/pg_hba.conf");
        let others = fs::read_to_string(&rules).unwrap();
        fs::write(&rules, format!("host all {user} 127.0.0.1/32 scram-sha-256\n{others}")).unwrap();
        self.stop(Stop::Fast);
        self.restart();
    }

    /// Logs all calls in a database from later connections.
    pub(crate) async fn log_calls(&self, database: &str) {
        let log = format!("ALTER DATABASE {database} SET log_statement = 'all'");
        self.connect("postgres").await.batch_execute(&log).await.unwrap();
    }

    /// Waits for a remove in a database with a floor above this number; needs `log_calls`.
    pub(crate) async fn floors_are_up(&self, database: &str, above: u64) {
        let mut log = fs::File::open(self.place.join("log")).unwrap();
        log.seek(SeekFrom::End(0)).unwrap();
        let (mut written, begun) = (Vec::new(), Instant::now());
        let is_up = |written: &[u8]| {
            let text = String::from_utf8_lossy(written);
            // The last line may be incomplete.
            let lines = text.lines().filter_map(|line| line.strip_prefix(database));
            lines.filter_map(floor).any(|floor| floor > above)
        };
        while !is_up(&written) {
            assert!(begun.elapsed() < PATIENCE, "no floor is above {above}");
            tokio::time::sleep(Duration::from_millis(10)).await;
            log.read_to_end(&mut written).unwrap();
        }
    }

    /// Keeps a copy of the stopped cluster's data.
    pub(crate) fn keep_copy(&self) {
        assert!(self.server.is_none());
        copy(&self.place.join("data"), &self.place.join("copy"));
    }

    /// Restores the stopped cluster's data from the copy.
    pub(crate) fn put_copy_back(&self) {
        assert!(self.server.is_none());
        fs::remove_dir_all(self.place.join("data")).unwrap();
        fs::rename(self.place.join("copy"), self.place.join("data")).unwrap();
    }

    /// Makes a cluster that offers TLS, with this certificate and key. Its superuser `carded` must present a
    /// certificate of the issuer.
    pub(crate) async fn encrypted(issuer: &str, certificate: &str, key: &str) -> Cluster {
        let mut cluster = Cluster::start();
        let users = "CREATE ROLE carded SUPERUSER LOGIN";
        cluster.connect("postgres").await.batch_execute(users).await.unwrap();
        for (name, text) in
            [("issuer.crt", issuer), ("server.crt", certificate), ("server.key", key)]
        {
            cluster.file(&format!("data/{name}"), text);
        }
        let rules = cluster.place.join("data/pg_hba.conf");
        let others = fs::read_to_string(&rules).unwrap();
        let own = "hostssl all carded 127.0.0.1/32 trust clientcert=verify-ca
            host all carded 127.0.0.1/32 reject";
        fs::write(&rules, format!("{own}\n{others}")).unwrap();
        let mut settings = fs::File::options();
        let settings = settings.append(true).open(cluster.place.join("data/postgresql.conf"));
        settings.unwrap().write_all(b"\nssl = on\nssl_ca_file = 'issuer.crt'\n").unwrap();
        cluster.stop(Stop::Fast);
        cluster.restart();
        cluster
    }

    /// Makes a file in the cluster's directory that no other user can read.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.place.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((user, group)) = owner() {
            std::os::unix::fs::chown(&path, Some(user), Some(group)).unwrap();
        }
        path
    }

    /// A direct connection, without knee-queue.
    pub(crate) async fn connect(&self, database: &str) -> Client {
        let address = self.options(database).address;
        let (client, connection) = tokio_postgres::connect(&address, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// A new, empty database.
    pub(crate) async fn database(&self) -> String {
        let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let client = self.connect("postgres").await;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        name
    }

    /// A new database with the schema: a copy of the first one.
    pub(crate) async fn migrated(&self) -> Options {
        let template = self.template.get_or_init(async || {
            let options = self.options(&self.database().await);
            postgres::migrate(&options).await.unwrap();
            name(&options).to_owned()
        });
        let template = template.await;
        let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let client = self.connect("postgres").await;
        let create = format!("CREATE DATABASE {name} TEMPLATE {template}");
        // The session that installed the schema may still be open, which prevents a copy.
        let begun = Instant::now();
        while let Err(error) = client.batch_execute(&create).await {
            assert!(begun.elapsed() < PATIENCE, "{error:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.options(&name)
    }

    pub(crate) async fn open(&self) -> Postgres {
        Postgres::open(&self.migrated().await).await.unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop(Stop::Immediate);
        let _ = fs::remove_dir_all(&self.place);
    }
}

/// The database that an address names.
pub(crate) fn name(options: &Options) -> &str {
    let (address, _) = options.address.split_once('?').unwrap_or((&options.address, ""));
    address.rsplit('/').next().unwrap()
}

/// The highest floor in a call of `take` or `take_each`, if this log line has its parameters.
fn floor(line: &str) -> Option<u64> {
    let (_, values) = line.split_once("DETAIL:  parameters: ")?;
    let value = |number: &str| {
        let (_, from) = values.split_once(&format!("{number} = '"))?;
        Some(from.split_once('\'')?.0)
    };
    let floors = if value("$8").is_some() {
        [value("$6")?, value("$7")?]
    } else {
        value("$6").filter(|epochs| epochs.starts_with('{'))?;
        [value("$4")?, value("$5")?]
    };
    let numbers = floors.iter().flat_map(|floor| floor.trim_matches(['{', '}']).split(','));
    numbers.filter_map(|number| number.parse().ok()).max()
}

/// The user of PostgreSQL's processes if the tests run as root, which PostgreSQL refuses.
fn owner() -> Option<(u32, u32)> {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let found = users.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        (fields[0] == "postgres").then(|| (fields[2].parse().unwrap(), fields[3].parse().unwrap()))
    });
    Some(found.expect("the user `postgres` of Debian's package"))
}

/// A program of PostgreSQL.
fn program(name: &str) -> Command {
    owned(Command::new(path(name)))
}

/// Copies a directory with its owners.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// The path of a program: Debian keeps PostgreSQL's programs out of PATH.
fn path(name: &str) -> PathBuf {
    let mut versions: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin").join(name)))
        .filter(|path| path.exists())
        .collect();
    versions.sort();
    versions.pop().unwrap_or_else(|| Path::new(name).to_owned())
}

fn owned(mut command: Command) -> Command {
    command.current_dir("/");
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group);
    }
    command
}
