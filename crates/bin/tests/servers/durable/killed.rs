//! `knee-kv` killed at random moments, under load and as it starts. Acknowledged writes are stored, in their versions.
//! Bulk puts are complete. Appends to a list are stored once, in order. Versions only grow.
//!
//! A kill loses nothing at any durability. `KNEE_KILLS=n` kills it n times under load; kills at the start come on top.
//! Standard error has the number of kills.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use knee_rpc::kv::key_value_client::KeyValueClient;
use knee_rpc::kv::{
    AppendRequest, BulkPutRequest, Change, Nothing, ScanRequest, Value, WriteResponse, change,
};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::directory::Directory;
use crate::program::PATIENCE;

const GRPC_CLIENTS: [u64; 3] = [0, 1, 2];
const MEMCACHED_CLIENTS: [u64; 2] = [0, 1];
/// The number of keys that each client has to itself.
const OWN_KEYS: u64 = 20;
/// Keys that are always written together.
const GROUP_KEYS: u64 = 5;
/// Prefixes of such keys: one that all gRPC clients share, and one for each client.
const SHARED: &str = "shared";
const TOGETHER: &str = "together";
/// The prefix of lists. Each gRPC client has some of its own.
const LIST: &str = "list";
const OWN_LISTS: u64 = 3;
/// The largest number of elements of a list. Then the list is deleted, and grows again.
const ELEMENTS_MAX: usize = 200;
const ELEMENT_BYTES: usize = 20;
/// The store's limit, so small that it always reclaims space.
const MEMORY_MB: u64 = 32;
/// Beyond the limit: two segments in reserve, one that a start makes, and one for deletes. Each has 2 MiB, and 38 % for
/// the list of its keys.
const BEYOND_BYTES: u64 = 4 * (2 << 20) * 138 / 100;

/// Switches of syncs with durability always.
const SWITCHES: [&[&str]; 4] = [
    &[],
    &["--dally-us", "2000"],
    &["--batch-max", "1"],
    &["--dally-us", "500", "--batch-max", "3"],
];

type Client = KeyValueClient<Channel>;

/// The numbers of a value, and its version.
type Seen = (Vec<u64>, u64);

fn kills() -> u64 {
    std::env::var("KNEE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(15)
}

/// Random numbers from a seed (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The state of a key: missing, or a value with a version. The tests write numbers: a list holds several, other values
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Gone,
    There { numbers: Vec<u64>, version: Version },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Known(u64),
    /// The version is unknown, but larger than all acknowledged versions.
    Above(u64),
}

impl State {
    /// The acknowledged version.
    fn known(&self) -> Option<u64> {
        match self {
            State::There { version: Version::Known(version), .. } => Some(*version),
            _ => None,
        }
    }

    fn is(&self, seen: Option<&Seen>) -> bool {
        match (self, seen) {
            (State::Gone, None) => true,
            (State::There { numbers, version }, Some((seen, in_version))) => {
                numbers == seen
                    && match version {
                        Version::Known(known) => in_version == known,
                        Version::Above(before) => in_version > before,
                    }
            }
            _ => false,
        }
    }
}

/// The bytes that are written for a number. Their length varies, and no two numbers have the same bytes.
fn value_of(number: u64) -> Vec<u8> {
    let bytes = match number % 16 {
        0..8 => 20,
        8..12 => 400,
        12..15 => 6000,
        _ => 70_000,
    };
    element_of(number).into_iter().cycle().take(bytes).collect()
}

fn number_of(value: &[u8]) -> Option<u64> {
    let number = number_in(value.get(..ELEMENT_BYTES)?)?;
    (value_of(number) == value).then_some(number)
}

fn element_of(number: u64) -> Vec<u8> {
    format!("{number:020}").into_bytes()
}

fn number_in(element: &[u8]) -> Option<u64> {
    let number = std::str::from_utf8(element).ok()?.parse().ok()?;
    (element_of(number) == element).then_some(number)
}

/// The numbers of a value.
fn numbers_of(key: &str, value: &[u8]) -> Option<Vec<u64>> {
    if key.starts_with(LIST) {
        value.chunks(ELEMENT_BYTES).map(number_in).collect()
    } else {
        Some(vec![number_of(value)?])
    }
}

/// The writes of a client, in order.
#[derive(Debug, Default)]
struct Written {
    acknowledged: Vec<(String, State)>,
    /// Sent, and not answered when the server was killed.
    in_flight: Vec<(String, State)>,
    /// Numbers that the server refused to write, with its reason.
    refused: Vec<(u64, String)>,
    version_max: u64,
}

/// The state that clients begin with.
#[derive(Debug, Clone, Copy)]
struct Start<'a> {
    known: &'a Known,
    seed: u64,
    killed: &'a AtomicBool,
}

impl Start<'_> {
    /// Only the kill ends a connection.
    fn expect_killed(&self, what: &dyn std::fmt::Debug) {
        assert!(self.killed.load(Ordering::SeqCst), "{what:?} from a server that was not killed");
    }
}

/// A write over gRPC.
enum Asked {
    Put,
    Delete,
    Append,
}

async fn write(
    store: &mut Client,
    asked: &Asked,
    keys: &[String],
    number: u64,
) -> Result<WriteResponse, Status> {
    if let (Asked::Append, [key]) = (asked, keys) {
        let (key, tail) = (key.clone().into_bytes().into(), element_of(number).into());
        let request = AppendRequest { key, tail, ..AppendRequest::default() };
        return Ok(store.append(request).await?.into_inner());
    }
    let changes = keys.iter().map(|key| Change {
        key: key.clone().into_bytes().into(),
        action: Some(match asked {
            Asked::Delete => change::Action::Delete(Nothing {}),
            _ => change::Action::Put(Value { value: value_of(number).into(), ..Value::default() }),
        }),
        condition: None,
    });
    let request = BulkPutRequest { changes: changes.collect(), request: None };
    Ok(store.bulk_put(request).await?.into_inner())
}

/// Puts, deletes, puts several keys at once and appends to lists, until the server is gone.
async fn write_over_grpc(url: String, client: u64, start: Start<'_>) -> Written {
    let (mut written, mut random) = (Written::default(), Random(start.seed));
    let floor = start.known.floor;
    let mut lists: Vec<Vec<u64>> =
        (0..OWN_LISTS).map(|list| start.known.numbers(&format!("{LIST}{client}-{list}"))).collect();
    let mut store = match KeyValueClient::connect(url).await {
        Ok(store) => store,
        Err(error) => {
            start.expect_killed(&error);
            return written;
        }
    };
    loop {
        let number = random.below(u64::MAX);
        let own = |key: u64| format!("g{client}-{}", key % OWN_KEYS);
        let list = (number % OWN_LISTS) as usize;
        let mut numbers = vec![number];
        let (keys, asked): (Vec<String>, _) = match random.below(11) {
            0..3 => (vec![own(number)], Asked::Put),
            3 => (vec![own(number)], Asked::Delete),
            4..7 => (
                (0..GROUP_KEYS).map(|key| format!("{TOGETHER}{client}-{key}")).collect(),
                Asked::Put,
            ),
            7 => ((0..GROUP_KEYS).map(|key| format!("{SHARED}-{key}")).collect(), Asked::Put),
            _ => {
                let key = vec![format!("{LIST}{client}-{list}")];
                if lists[list].len() < ELEMENTS_MAX {
                    numbers = [&lists[list][..], &[number]].concat();
                    (key, Asked::Append)
                } else {
                    (key, Asked::Delete)
                }
            }
        };
        let state = |version| match asked {
            Asked::Delete => State::Gone,
            _ => State::There { numbers: numbers.clone(), version },
        };
        let states =
            |version| -> Vec<_> { keys.iter().map(|key| (key.clone(), state(version))).collect() };
        written.in_flight = states(Version::Above(floor));
        match write(&mut store, &asked, &keys, number).await {
            Ok(WriteResponse { version }) => {
                // A delete of a missing key has no version.
                let was_gone = matches!(asked, Asked::Delete) && version == 0;
                assert!(version > floor || was_gone, "{version} after {floor}");
                written.acknowledged.extend(states(Version::Known(version)));
                written.version_max = written.version_max.max(version);
                if keys[0].starts_with(LIST) {
                    lists[list] = match asked {
                        Asked::Delete => Vec::new(),
                        _ => numbers,
                    };
                }
            }
            // The store is full, because its keeper lags behind the writers: it wrote nothing.
            Err(status) if status.code() == Code::ResourceExhausted => {
                written.refused.push((number, status.to_string()));
                tokio::task::yield_now().await
            }
            Err(status) => {
                start.expect_killed(&status);
                return written;
            }
        }
        written.in_flight.clear();
    }
}

/// Sets and deletes, until the server is gone.
fn write_over_memcached(address: &str, client: u64, start: Start<'_>) -> Written {
    let (mut written, mut random) = (Written::default(), Random(start.seed));
    let mut stream = match TcpStream::connect(address) {
        Ok(stream) => stream,
        Err(error) => {
            start.expect_killed(&error);
            return written;
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        let number = random.below(u64::MAX);
        let key = format!("m{client}-{}", number % OWN_KEYS);
        let (state, request, answers): (_, _, &[&[u8]]) = if random.below(5) == 0 {
            let request = format!("delete {key}\r\n").into_bytes();
            (State::Gone, request, &[b"DELETED\r\n", b"NOT_FOUND\r\n"])
        } else {
            let value = value_of(number);
            let request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
            let version = Version::Above(start.known.floor);
            let state = State::There { numbers: vec![number], version };
            (state, [request, value, b"\r\n".to_vec()].concat(), &[b"STORED\r\n"])
        };
        written.in_flight = vec![(key, state)];
        let mut answer = [0; 128];
        let received = stream.write_all(&request).and_then(|()| stream.read(&mut answer));
        match received {
            Ok(read) if answers.contains(&&answer[..read]) => {
                written.acknowledged.append(&mut written.in_flight);
            }
            // The store is full, because its keeper lags behind the writers: it wrote nothing.
            Ok(read) if answer[..read].starts_with(b"SERVER_ERROR out of memory") => {}
            // No answer, or a part of one: the outcome is unknown.
            other => {
                start.expect_killed(&other);
                return written;
            }
        }
    }
}

/// The known state of the store between two runs of the server.
#[derive(Debug, Default)]
struct Known {
    /// The possible states of each key.
    keys: BTreeMap<String, Vec<State>>,
    /// The largest version that was acknowledged or seen, and cannot be lost.
    floor: u64,
    /// Numbers that were not acknowledged, with the reason: a failed check names it.
    unwritten: BTreeMap<u64, String>,
}

impl Known {
    /// Adds the writes of a run.
    fn learn(&mut self, written: &[Written]) {
        for (key, state) in written.iter().flat_map(|written| &written.acknowledged) {
            let possible = self.keys.entry(key.clone()).or_insert_with(|| vec![State::Gone]);
            if !key.starts_with(SHARED)
                || possible.iter().all(|other| other.known() < state.known())
            {
                *possible = vec![state.clone()];
            }
        }
        for (key, state) in written.iter().flat_map(|written| &written.in_flight) {
            self.keys.entry(key.clone()).or_insert_with(|| vec![State::Gone]).push(state.clone());
        }
        for written in written {
            self.unwritten.extend(written.refused.iter().cloned());
            for (_, state) in &written.in_flight {
                if let State::There { numbers, version } = state {
                    let number = *numbers.last().expect("a value has a number");
                    self.unwritten.insert(number, format!("in flight, {version:?}"));
                }
            }
        }
        let largest = written.iter().map(|written| written.version_max).max();
        self.floor = self.floor.max(largest.unwrap_or(0));
    }

    /// The numbers of a key, after the check.
    fn numbers(&self, key: &str) -> Vec<u64> {
        match self.keys.get(key).map(|possible| &possible[..]) {
            Some([State::There { numbers, .. }]) => numbers.clone(),
            _ => Vec::new(),
        }
    }

    /// Checks the store with an atomic scan, and takes its state.
    async fn check(&mut self, store: &mut Client) {
        let found = scanned(store).await;
        let unknown = found.keys().find(|key| !self.keys.contains_key(*key));
        assert_eq!(unknown, None, "no client wrote it");
        let mut groups: BTreeMap<&str, BTreeSet<Option<&Seen>>> = BTreeMap::new();
        for (key, possible) in &mut self.keys {
            let seen = found.get(key);
            let of = |(numbers, _): &Seen| self.unwritten.get(numbers.last()?);
            assert!(
                possible.iter().any(|state| state.is(seen)),
                "{key} is {seen:?} ({:?}), not {possible:?}",
                seen.and_then(of)
            );
            *possible = vec![seen.map_or(State::Gone, |(numbers, version)| State::There {
                numbers: numbers.clone(),
                version: Version::Known(*version),
            })];
            self.floor = self.floor.max(seen.map_or(0, |(_, version)| *version));
            let (group, _) = key.split_once('-').unwrap();
            if group.starts_with(SHARED) || group.starts_with(TOGETHER) {
                groups.entry(group).or_default().insert(seen);
            }
        }
        for (group, seen) in groups {
            assert!(seen.len() == 1, "{group} is half there: {seen:?}");
        }
    }
}

/// The numbers and the version of each key.
async fn scanned(store: &mut Client) -> BTreeMap<String, Seen> {
    let scan = store.atomic_scan(ScanRequest::default()).await.unwrap();
    let (mut scan, mut found) = (scan.into_inner(), BTreeMap::new());
    while let Some(response) = scan.message().await.unwrap() {
        for entry in response.entries {
            let key = String::from_utf8(entry.key.to_vec()).unwrap();
            let numbers = numbers_of(&key, &entry.value);
            let numbers =
                numbers.unwrap_or_else(|| panic!("{key}: no client wrote {:?}", entry.value));
            found.insert(key, (numbers, entry.version));
        }
    }
    found
}

/// Starts the server, checks its contents, and kills it under load.
fn live(
    directory: &Directory,
    flags: &[&str],
    known: &mut Known,
    random: &mut Random,
) -> Vec<Written> {
    let mut program = directory.serve(&[&["--grpc", "127.0.0.1:0"], flags].concat());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = program.grpc();
    runtime.block_on(async {
        known.check(&mut KeyValueClient::connect(url.clone()).await.unwrap()).await;
    });
    let (address, killed) = (program.address().to_owned(), AtomicBool::new(false));
    thread::scope(|scope| {
        let known = &*known;
        let mut start = || Start { known, seed: random.below(u64::MAX) + 1, killed: &killed };
        let over_grpc = GRPC_CLIENTS.map(|client| (client, start()));
        let over_memcached = MEMCACHED_CLIENTS.map(|client| (client, start()));
        let threads = over_memcached.map(|(client, start)| {
            let address = &address;
            scope.spawn(move || write_over_memcached(address, client, start))
        });
        let (url, runtime) = (&url, runtime);
        let tasks = scope.spawn(move || {
            let tasks =
                over_grpc.map(|(client, start)| write_over_grpc(url.clone(), client, start));
            runtime.block_on(async {
                let [one, two, three] = tasks;
                let (one, two, three) = tokio::join!(one, two, three);
                vec![one, two, three]
            })
        });
        thread::sleep(Duration::from_millis(10 + random.below(150)));
        killed.store(true, Ordering::SeqCst);
        program.signal(libc::SIGKILL);
        program.end();
        let mut written = tasks.join().unwrap();
        written.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        written
    })
}

/// Kills the server as it starts. Returns whether it died before it served.
fn kill_at_start(directory: &Directory, flags: &[&str], random: &mut Random) -> bool {
    let mut command = directory.command(flags);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_micros(random.below(20_000)));
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap().stdout;
    output.is_empty()
}

#[test]
fn acknowledged_writes_survive_a_kill_at_any_moment() {
    let memory_mb = MEMORY_MB.to_string();
    let (directory, mut known, mut random) = (Directory::new(), Known::default(), Random(4));
    let (mut keys_written, mut appended, mut under_load) = (0, 0, 0);
    let (mut idle, mut at_start, mut before_ready) = (0, 0, 0);
    let mut durabilities = [("always", 0), ("interval:50", 0), ("none", 0)];
    while under_load < kills() || before_ready == 0 {
        let threads = ["1", "2"][random.below(2) as usize];
        let (durability, kills) = &mut durabilities[random.below(3) as usize];
        let history_s = ["0", "1"][random.below(2) as usize];
        let mut flags = [
            ["--memory-mb", &memory_mb],
            ["--threads", threads],
            ["--durability", *durability],
            ["--history-s", history_s],
        ]
        .concat();
        if *durability == "always" {
            flags.extend(SWITCHES[random.below(4) as usize]);
        }
        if random.below(6) == 0 {
            at_start += 1;
            before_ready += u64::from(kill_at_start(&directory, &flags, &mut random));
            continue;
        }
        let written = live(&directory, &flags, &mut known, &mut random);
        known.learn(&written);
        directory.expect_at_most((MEMORY_MB << 20) + BEYOND_BYTES);
        let before = keys_written;
        for (key, _) in written.iter().flat_map(|written| &written.acknowledged) {
            keys_written += 1;
            appended += u64::from(key.starts_with(LIST));
        }
        let in_flight = written.iter().any(|written| !written.in_flight.is_empty());
        if keys_written == before || !in_flight {
            idle += 1;
            continue;
        }
        under_load += 1;
        *kills += 1;
        if under_load % 100 == 0 {
            eprintln!("{under_load} kills under load: {keys_written} keys were written");
        }
    }
    eprintln!(
        "{under_load} kills under load lost no acknowledged write ({durabilities:?}). {keys_written} keys were \
         written, {appended} of them lists. {idle} more kills met no acknowledged write, or none in flight. \
         {at_start} more hit the start, {before_ready} of them before the server was ready"
    );
    assert!(appended > 0, "no list ever grew");
    assert!(before_ready > 0, "it was never killed as it started");
    let first = directory.segments().remove(0);
    assert!(!first.ends_with("00000001.log"), "no space was reclaimed");
}
