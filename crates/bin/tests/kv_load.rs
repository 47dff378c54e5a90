//! `knee-load kv` against `knee-kv`: what it counts is what the server counts.
#![allow(clippy::unwrap_used)]

mod program;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use knee_rpc::kv::key_value_client::KeyValueClient;
use knee_rpc::kv::{StatsRequest, StatsResponse};
use program::{End, KV, LOAD, PATIENCE, Program, free_address, refused, talk};
use serde_json::Value;

const ALL: &str =
    "read:40,insert:5,update:5,put:10,append:5,delete:5,scan:2,atomic_scan:2,bulk_put:5";
const WRITES: [&str; 6] = ["insert", "update", "put", "append", "delete", "bulk_put"];
const READS: [&str; 3] = ["read", "read_missing", "read_large"];

/// A versioned store, and where it speaks gRPC.
struct Store {
    program: Program,
    grpc: String,
}

impl Store {
    fn start(flags: &[&str]) -> Store {
        Store::at(free_address(), flags)
    }

    fn at(grpc: String, flags: &[&str]) -> Store {
        let program = Program::serve(KV, &[&["--grpc", &grpc], flags].concat());
        Store { program, grpc }
    }

    /// What it counted.
    fn stats(&self) -> StatsResponse {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client =
                KeyValueClient::connect(format!("http://{}", self.grpc)).await.unwrap();
            client.stats(StatsRequest {}).await.unwrap().into_inner()
        })
    }

    fn set(&self, key: &str, value: &[u8]) {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        let request = [head.as_bytes(), value, b"\r\n"].concat();
        talk(&mut self.program.connect(), &request, b"STORED\r\n");
    }

    fn load(&self, flags: &str) -> Program {
        load(&format!("--server {} {flags}", self.grpc))
    }

    /// Runs a load to its end.
    fn loaded(&self, flags: &str) -> End {
        finished(self.load(flags))
    }

    /// Runs a load until the server has counted enough.
    fn loaded_until(&self, flags: &str, enough: impl Fn(&StatsResponse) -> bool) -> End {
        let load = self.load(&format!("{flags} --seconds 60"));
        until("it has asked enough", || enough(&self.stats()));
        load.signal(libc::SIGTERM);
        finished(load)
    }

    fn populate(&self, flags: &str) {
        let output = run(&format!("--server {} {flags}", self.grpc));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

fn load(flags: &str) -> Program {
    let flags: Vec<&str> = ["kv"].into_iter().chain(flags.split_whitespace()).collect();
    Program::start(LOAD, &flags)
}

/// One that does not get as far as its ready line.
fn run(flags: &str) -> Output {
    let flags: Vec<&str> = ["kv"].into_iter().chain(flags.split_whitespace()).collect();
    refused(LOAD, &flags)
}

fn finished(load: Program) -> End {
    let end = load.end();
    assert_eq!(end.code, Some(0), "{}", end.errors);
    end
}

/// Waits until something holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Waits until a load has opened so many connections again, and ends it.
fn ended_when_reconnected(mut load: Program, connections: u64) -> End {
    let mut again = 0;
    while again < connections {
        again += load.line()["reconnects"].as_u64().unwrap();
    }
    load.signal(libc::SIGTERM);
    let end = finished(load);
    assert_eq!(summary(&end)["reconnects"], connections, "{}", end.errors);
    end
}

fn summary(end: &End) -> &Value {
    let last = end.lines.last().unwrap();
    assert_eq!(last["type"], "summary");
    last
}

/// A field of an operation; 0 where it did not occur.
fn count(line: &Value, op: &str, field: &str) -> u64 {
    line["ops"][op][field].as_u64().unwrap_or_default()
}

fn sum(line: &Value, ops: &[&str], field: &str) -> u64 {
    ops.iter().map(|op| count(line, op, field)).sum()
}

fn errors(line: &Value) -> u64 {
    line["ops"].as_object().unwrap().values().map(|op| op["errors"].as_u64().unwrap()).sum()
}

#[test]
fn what_it_counts_over_grpc_is_what_the_server_counts() {
    let rows = [
        ("--consistency linearizable", "--clients 7 --threads 2"),
        ("--consistency sequential", "--clients 4 --own-keys --key-choice zipf:0.8"),
        ("--consistency linearizable", "--clients 3 --key-draws 20 --think-ms 1"),
        ("--consistency linearizable", "--clients 3 --rate 300 --arrivals constant"),
    ];
    for (server, flags) in rows {
        let store = Store::start(&server.split(' ').collect::<Vec<_>>());
        store.populate("--keys 500 --populate 0.9 --value-bytes uniform:1:900");
        let before = store.stats();
        let flags = format!(
            "{flags} --mix {ALL} --keys 500 --value-bytes uniform:1:900 --scan-keys 20 --verify"
        );
        let end = store.loaded_until(&flags, |now| {
            now.reads > before.reads + 20 && now.scans > before.scans + 3
        });
        let (line, stats) = (summary(&end), store.stats());
        assert_eq!(end.errors, "", "{flags}");
        assert_eq!(sum(line, &READS, "count"), stats.reads - before.reads, "{flags}");
        assert_eq!(sum(line, &WRITES, "count"), stats.writes - before.writes, "{flags}");
        let scans = sum(line, &["scan", "atomic_scan"], "count");
        assert_eq!(scans, stats.scans - before.scans, "{flags}");
        let items = sum(line, &["scan", "atomic_scan"], "items");
        assert_eq!(items, stats.scan_entries - before.scan_entries, "{flags}");
        assert_eq!(count(line, "bulk_put", "items"), 10 * count(line, "bulk_put", "count"));
        assert_eq!(count(line, "put", "hits"), count(line, "put", "count"));
        assert_eq!(line["wrong_values"], 0, "{flags}");
        assert_eq!(line["in_flight"], 0, "{flags}");
        assert_eq!(errors(line), 0, "{flags}");
        let windows = end.lines.iter().filter(|line| line["type"] == "window");
        let told: u64 = windows.map(|line| sum(line, &WRITES, "count")).sum();
        assert_eq!(told, sum(line, &WRITES, "count"), "{flags}");
    }
}

#[test]
fn what_it_counts_over_memcached_is_what_the_server_counts() {
    let store = Store::start(&[]);
    let address = store.program.address();
    let output = run(&format!("--server {address} --protocol memcached --keys 300 --populate 0.9"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let end = finished(load(&format!(
        "--server {address} --protocol memcached --clients 5 --keys 300 --seconds 0.6 --verify \
         --mix read:40,insert:5,update:5,put:10,append:5,delete:5 --rate 1000 --arrivals constant"
    )));
    let line = summary(&end);
    assert_eq!((end.errors.as_str(), errors(line)), ("", 0));
    assert_eq!(line["wrong_values"], 0);
    store.program.signal(libc::SIGTERM);
    let served = store.program.end();
    let served = summary(&served);
    let stored = sum(line, &["insert", "update", "put", "append"], "count");
    // Populating set 270.
    assert_eq!(count(served, "set", "count"), stored + 270);
    assert_eq!(count(served, "get", "count"), sum(line, &READS, "count"));
    assert_eq!(count(served, "get", "misses"), count(line, "read_missing", "count"));
    assert_eq!(count(served, "delete", "count"), count(line, "delete", "count"));
    assert_eq!(count(served, "delete", "hits"), count(line, "delete", "hits"));
    assert!(stored > 20 && count(line, "insert", "misses") > 0, "{line}");
}

#[test]
fn populating_a_share_leaves_the_rest_missing() {
    let stores = [Store::start(&[]), Store::start(&["--consistency", "sequential"])];
    let servers = format!("--server {},{}", stores[0].grpc, stores[1].grpc);
    let output =
        run(&format!("{servers} --keys 5000 --populate 0.99 --value-bytes exponential:900"));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["populate"]["servers"][1]["stored"], 4950);
    assert_eq!(stores.map(|store| store.stats().keys), [4950, 4950]);
}

#[test]
fn an_open_loop_asks_for_every_key_of_a_walk() {
    let store = Store::start(&[]);
    store.populate("--keys 200 --populate 0.9");
    // Each client walks through all keys in order: of 400 requests 40 are for missing ones.
    let end = store.loaded(
        "--clients 4 --keys 200 --key-choice sequential --mix read:1 --verify --rate 400 \
         --arrivals constant --seconds 1",
    );
    let line = summary(&end);
    assert_eq!(sum(line, &READS, "count"), 400);
    assert_eq!(count(line, "read_missing", "count"), 40, "{line}");
    assert_eq!(count(line, "read_missing", "misses"), 40);
    assert_eq!((&line["wrong_values"], errors(line)), (&0.into(), 0));
}

#[test]
fn an_open_loop_counts_the_waiting_of_requests_that_a_stopped_server_delays() {
    let store = Store::start(&[]);
    let mut load = store.load("--clients 4 --rate 500 --arrivals constant --seconds 3");
    // In its midst.
    assert_eq!(load.line()["type"], "window");
    store.program.signal(libc::SIGSTOP);
    let stopped = Instant::now();
    sleep(Duration::from_millis(400));
    let stopped = stopped.elapsed();
    store.program.signal(libc::SIGCONT);
    let end = finished(load);
    let line = summary(&end);
    let ops = ["read_missing", "read", "put"];
    assert_eq!(sum(line, &ops, "count"), 1500);
    assert_eq!((&line["unsent"], errors(line)), (&0.into(), 0));
    // One came due every 2 ms of the stop, and has waited for its end.
    let slowest = line["histograms"].as_array().unwrap().iter().map(|line| &line["max"]);
    let slowest = slowest.map(|max| max.as_u64().unwrap()).max().unwrap();
    assert!(slowest >= stopped.as_nanos() as u64 - 10_000_000, "{stopped:?}: {line}");
    let waited_s = sum(line, &ops, "response_sum_ns") as f64 / 1e9;
    let stopped_s = stopped.as_secs_f64();
    assert!(waited_s >= 0.9 * 500.0 * stopped_s * stopped_s / 2.0, "{stopped:?}: {line}");
}

#[test]
fn a_graph_has_large_ordinary_and_missing_users() {
    let store = Store::start(&[]);
    store.set("3", &[b'7'; 200_000]);
    store.set("10", b"7\n");
    let end = store.loaded(
        "--clients 2 --keys 12 --mix read:3,scan:1 --key-format plain --key-choice zipf:0.8 \
         --rate 300 --arrivals constant --seconds 0.5 --large-bytes 100000 --scan-keys 1 --key-prefix=",
    );
    let line = summary(&end);
    assert_eq!(errors(line), 0, "{}", end.errors);
    assert!(READS.iter().all(|op| count(line, op, "count") > 0), "{line}");
    assert!(count(line, "read_large", "bytes_in") > 200_000 * count(line, "read_large", "count"));
    assert_eq!(count(line, "read_large", "hits"), count(line, "read_large", "count"));
    // In the order of bytes, the user behind the last one is none: "4" and above.
    assert!(count(line, "scan", "items") <= count(line, "scan", "count"), "{line}");
    assert!(count(line, "scan", "items") > 0, "{line}");
}

#[test]
fn a_list_is_loaded_once_and_by_every_server() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let list = format!("kv-load-{}.txt", std::process::id());
    std::fs::write(directory.join(&list), "3\t10\n3\t11\n12\t3\n").unwrap();
    let flags = ["--init-dir", directory.to_str().unwrap()];
    let stores = [Store::start(&flags), Store::start(&flags)];
    let servers = format!("--server {},{}", stores[0].grpc, stores[1].grpc);
    for resumed in [0, 3] {
        let output = run(&format!("{servers} --init {list}"));
        let line: Value = serde_json::from_slice(&output.stdout).unwrap();
        let told = line["init"]["servers"].as_array().unwrap();
        for (store, told) in stores.iter().zip(told) {
            assert_eq!(told["address"], store.grpc);
            assert_eq!((&told["edges"], &told["resumed_edges"]), (&3.into(), &resumed.into()));
        }
    }
    std::fs::remove_file(directory.join(&list)).unwrap();
    let end = stores[0].loaded(
        "--clients 2 --keys 13 --mix read:1 --key-format plain --key-choice sequential --rate 260 \
         --arrivals constant --seconds 0.1 --key-prefix=",
    );
    // Both have walked over all thirteen: users 3 and 12 have followers.
    assert_eq!(count(summary(&end), "read", "count"), 4);
    let elsewhere = Store::start(&[]);
    for (store, file) in [(&stores[0], "nothing-of-this-name"), (&elsewhere, &*list)] {
        let output = run(&format!("--server {} --init {file}", store.grpc));
        assert_eq!(output.status.code(), Some(1));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(&format!("loading at {} failed: ", store.grpc)), "{told}");
    }
}

#[test]
fn a_value_changed_behind_its_back_is_found() {
    let store = Store::start(&[]);
    store.populate("--keys 100 --populate 1");
    store.set("knee-0000000042", &[b'x'; 32]);
    let flags = "--keys 100 --key-choice sequential --mix read:1 --rate 500 --arrivals constant \
                 --seconds 0.4";
    for (protocol, server) in [("grpc", &*store.grpc), ("memcached", store.program.address())] {
        let flags = format!("--server {server} --protocol {protocol} {flags}");
        let end = finished(load(&format!("{flags} --verify")));
        assert_eq!(summary(&end)["wrong_values"], 2, "{}", end.errors);
        let told = &end.errors;
        assert!(told.contains("wrong value") && told.contains("knee-0000000042"), "{told}");
        assert!(told.contains(server) && told.lines().count() == 1, "{told}");
    }
    assert_eq!(summary(&store.loaded(flags))["wrong_values"], 0);
}

#[test]
fn a_version_that_goes_back_is_found() {
    let store = Store::start(&[]);
    store.loaded("--keys 1 --mix put:1 --rate 100 --arrivals constant --seconds 0.2");
    let load = store.load("--keys 1 --mix read:1 --seconds 60 --think-ms 5 --verify");
    until("it has read", || store.stats().reads > 0);
    let Store { program, grpc } = store;
    program.signal(libc::SIGKILL);
    program.end();
    // What comes back has the right value, but has forgotten what it promised.
    let store = Store::at(grpc, &[]);
    store.populate("--keys 1 --populate 1");
    let before = store.stats().reads;
    until("it has read again", || store.stats().reads > before + 1);
    load.signal(libc::SIGTERM);
    let end = finished(load);
    assert!(summary(&end)["wrong_values"].as_u64().unwrap() > 0, "{}", end.errors);
    assert!(end.errors.contains("its client has seen version"), "{}", end.errors);
}

/// Takes connections to a store, until it is told to answer no more and then to cut them.
struct Relay {
    address: String,
    mute: Arc<Mute>,
    cut: Arc<AtomicBool>,
}

#[derive(Default)]
struct Mute {
    on: AtomicBool,
    /// How often something was not passed on.
    lost: AtomicUsize,
}

impl Relay {
    fn to(store: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (mute, cut) = (Arc::<Mute>::default(), Arc::<AtomicBool>::default());
        let relay = Relay { address, mute: Arc::clone(&mute), cut: Arc::clone(&cut) };
        let store = store.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&store).unwrap();
                // A connection that comes later is not cut.
                let later = cut.load(Ordering::SeqCst);
                let (mute, cut) = match later {
                    true => (Arc::default(), Arc::default()),
                    false => (Arc::clone(&mute), Arc::clone(&cut)),
                };
                let (to_server, to_client) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                pass_on(client, to_server, Arc::default(), Arc::clone(&cut));
                pass_on(server, to_client, mute, cut);
            }
        });
        relay
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mute: Arc<Mute>, cut: Arc<AtomicBool>) {
    from.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while !cut.load(Ordering::SeqCst) {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) if !mute.on.load(Ordering::SeqCst) => {
                    to.write_all(&buffer[..read]).unwrap();
                }
                Ok(_) => _ = mute.lost.fetch_add(1, Ordering::SeqCst),
                // Not there yet.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        // The other direction may have done it already.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[test]
fn a_write_whose_answer_was_lost_is_sent_again_and_made_once() {
    for pace in ["--think-ms 1", "--rate 100"] {
        let store = Store::start(&[]);
        let relay = Relay::to(&store.grpc);
        let load = load(&format!(
            "--server {} {pace} --clients 6 --own-keys --keys 600 --mix put:2,append:1,bulk_put:1 \
             --seconds 60 --verify",
            relay.address
        ));
        until("it has written", || store.stats().last_commit > 20);
        relay.mute.on.store(true, Ordering::SeqCst);
        // Some are made whose answers nobody hears: the last one of each client, or any.
        until("answers were lost", || relay.mute.lost.load(Ordering::SeqCst) >= 3);
        relay.cut.store(true, Ordering::SeqCst);
        let end = ended_when_reconnected(load, 6);
        let line = summary(&end);
        assert_eq!(line["wrong_values"], 0, "{pace}: {}", end.errors);
        assert!(errors(line) > 0, "{pace}: {line}");
        assert!(end.errors.contains(&relay.address), "{pace}: {}", end.errors);
        // Every write has one commit, however often it was sent.
        let acknowledged = sum(line, &WRITES, "count") - errors(line);
        assert_eq!(store.stats().last_commit, acknowledged, "{pace}");
    }
}

#[test]
fn a_server_that_dies_and_returns_costs_errors_and_nothing_else() {
    let (mortal, other) = (Store::start(&[]), Store::start(&[]));
    let servers = format!("{},{}", mortal.grpc, other.grpc);
    let load = load(&format!("--server {servers} --clients 6 --seconds 60"));
    until("it has read", || mortal.stats().reads > 10);
    let Store { program, grpc } = mortal;
    program.signal(libc::SIGKILL);
    program.end();
    let mortal = Store::at(grpc, &[]);
    let end = ended_when_reconnected(load, 3);
    let line = summary(&end);
    assert_eq!(line["connections"], 6);
    // What three clients had in flight.
    assert!((1..=3).contains(&errors(line)), "{line}: {}", end.errors);
    assert!(
        end.errors.contains(&mortal.grpc) && !end.errors.contains(&other.grpc),
        "{}",
        end.errors
    );
    assert!(mortal.stats().reads > 0, "it is asked again once it is back");
}

#[test]
fn a_connection_that_is_lost_while_nothing_is_waited_for_costs_no_error() {
    let store = Store::start(&[]);
    let load = store.load("--mix read:1 --think-ms 3000 --seconds 60");
    until("it has read", || store.stats().reads > 0);
    let Store { program, grpc } = store;
    program.signal(libc::SIGKILL);
    program.end();
    let store = Store::at(grpc, &[]);
    let end = ended_when_reconnected(load, 1);
    assert_eq!(errors(summary(&end)), 0, "{}", end.errors);
    assert!(end.errors.contains(&store.grpc), "{}", end.errors);
}

#[test]
fn what_has_a_time_to_live_is_missing_when_that_is_over() {
    let store = Store::start(&["--consistency", "sequential"]);
    for (protocol, server) in [("grpc", &*store.grpc), ("memcached", store.program.address())] {
        let flags = format!(
            "--server {server} --protocol {protocol} --keys 40 --value-bytes 100 --key-prefix {protocol}-"
        );
        let populated = |ttl_s: u32| {
            let output = run(&format!("{flags} --populate 1 --ttl-s {ttl_s}"));
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        };
        let read = || {
            let end = finished(load(&format!(
                "{flags} --mix read:1 --key-choice sequential --rate 400 --arrivals constant \
                 --seconds 0.1 --verify"
            )));
            let line = summary(&end).clone();
            assert_eq!((&line["wrong_values"], errors(&line)), (&0.into(), 0), "{}", end.errors);
            assert_eq!(sum(&line, &READS, "count"), 40);
            count(&line, "read_missing", "count")
        };
        populated(3600);
        assert_eq!(read(), 0, "{protocol}");
        populated(1);
        until("all have expired", || read() == 40);
        // And what is written since has newer versions.
        let end = finished(load(&format!(
            "{flags} --mix read:2,put:1,insert:1 --ttl-s 1 --rate 400 --arrivals constant \
             --seconds 2.5 --verify"
        )));
        let line = summary(&end);
        assert_eq!((&line["wrong_values"], errors(line)), (&0.into(), 0), "{}", end.errors);
        assert!(count(line, "insert", "hits") > 40, "{protocol}: {line}");
        assert!(count(line, "read_missing", "count") > 0, "{protocol}: {line}");
    }
}

#[test]
fn processes_side_by_side_have_keys_of_their_own() {
    let store = Store::start(&[]);
    for (part, keys) in [("1/2", 50), ("2/2", 100)] {
        let end = store.loaded(&format!(
            "--keys 100 --clients 5 --own-keys --part {part} --mix put:1 --key-choice sequential \
             --rate 500 --arrivals constant --seconds 0.2"
        ));
        assert_eq!(count(summary(&end), "put", "count"), 100);
        assert_eq!(store.stats().keys, keys);
    }
}

#[test]
fn writes_without_ids_are_made_like_others() {
    let store = Store::start(&[]);
    let end = store.loaded(&format!(
        "--mix {ALL} --keys 50 --no-request-ids --rate 300 --arrivals constant --seconds 0.5"
    ));
    let line = summary(&end);
    assert_eq!((errors(line), sum(line, &WRITES, "count")), (0, store.stats().writes));
}

#[test]
fn answers_that_are_errors_are_counted_and_told_once() {
    let store = Store::start(&["--value-bytes-max", "2048"]);
    let end = store.loaded("--clients 3 --mix put:1 --value-bytes 4096 --seconds 0.3");
    let line = summary(&end);
    assert!(count(line, "put", "count") > 0);
    assert_eq!(count(line, "put", "errors"), count(line, "put", "count"));
    assert!(end.errors.contains("answered a put with InvalidArgument: "), "{}", end.errors);
    assert_eq!(end.errors.lines().count(), 1, "{}", end.errors);
    let output = run(&format!("--server {} --keys 5 --value-bytes 4096 --populate 1", store.grpc));
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains(&store.grpc) && told.contains("InvalidArgument"), "{told}");
}

#[test]
fn a_server_that_is_not_there_or_speaks_something_else_is_named() {
    let store = Store::start(&[]);
    let rows = [
        (free_address(), "--seconds 1 --clients 3"),
        (free_address(), "--populate 1"),
        (store.program.address().to_owned(), "--seconds 1"),
        (store.program.address().to_owned(), "--populate 1"),
        (free_address(), "--seconds 1 --protocol memcached"),
    ];
    for (address, flags) in rows {
        let output = run(&format!("--server {address} {flags}"));
        assert_eq!(output.status.code(), Some(1), "{flags}");
        assert!(output.stdout.is_empty(), "{flags}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(&address), "{flags}: {told}");
        assert_eq!(told.lines().count(), 1, "{flags}: {told}");
    }
}

#[test]
fn a_signal_ends_it_early_with_a_summary() {
    let store = Store::start(&[]);
    for (signal, flags) in [(libc::SIGTERM, "--threads 2"), (libc::SIGINT, "--rate 200")] {
        let before = store.stats().reads;
        let mut load = store.load(&format!("--clients 4 --seconds 60 --mix read:1 {flags}"));
        assert_eq!(load.line()["type"], "window");
        load.signal(signal);
        let end = finished(load);
        let line = summary(&end);
        assert_eq!(line["interrupted"], true);
        assert!(line["seconds"].as_f64().unwrap() < 30.0);
        assert_eq!(sum(line, &READS, "count"), store.stats().reads - before);
        assert_eq!(errors(line), 0);
    }
    // While it waits for its start.
    let load = store.load("--seconds 60 --start-at 99999999999");
    load.signal(libc::SIGTERM);
    assert_eq!(summary(&finished(load))["interrupted"], true);
}

#[test]
fn wrong_flags_exit_with_2_and_say_what_is_wrong() {
    let rows = [
        ("", "--seconds"),
        ("--seconds 1 --mix get:1", "\"get\" is none of read"),
        ("--seconds 1 --mix read:0", "it asks for nothing"),
        ("--seconds 1 --protocol memcached --mix read:1,scan:1", "has no scan: --protocol grpc"),
        ("--seconds 1 --protocol rest", "--protocol"),
        ("--seconds 1 --mix bulk_put:1 --keys 5", "a bulk put of 10 keys needs as many"),
        ("--seconds 1 --keys 0", "there can be 1 to"),
        ("--seconds 1 --keys 0 --own-keys", "there can be 1 to"),
        ("--seconds 1 --scan-keys 0", "--scan-keys"),
        ("--seconds 1 --key-draws 0", "--key-draws"),
        ("--seconds 1 --rate 5 --think-ms 5", "--think-ms"),
        ("--populate 1 --seconds 1", "--populate"),
        ("--seconds 1 --set-get 1:1", "--set-get"),
        ("--seconds 1 --ttl-s 0", "--ttl-s"),
        ("--seconds 1 --part 1/2", "--own-keys"),
        ("--seconds 1 --own-keys --part 3/2", "expected I/N"),
        ("--seconds 1 --protocol memcached --no-request-ids", "has no request ids"),
        ("--init list.txt --protocol memcached", "over gRPC only"),
        ("--init list.txt --populate 1", "--init"),
    ];
    for (flags, why) in rows {
        let output = run(&format!("--server {} {flags}", free_address()));
        assert_eq!(output.status.code(), Some(2), "{flags}: {output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(why), "{flags}: {told}");
    }
}
