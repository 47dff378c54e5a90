//! `knee-queue` and `knee-load queue` as programs.
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::program::{End, KV, LOAD, PATIENCE, Program, QUEUE, refused};
use knee_testkit::free_address;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

/// As little as a client of HTTP/2 says: its preface, and empty settings (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// As little as a server says.
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

/// The answer to the first call of a client that it finds nothing: headers, an empty message and trailers (RFC 9113, 6.1
/// and 6.2; RFC 7541, 6.1 and 6.2.2).
const NOTHING: &[u8] = b"\0\0\x14\x01\x04\0\0\0\x01\x88\x0f\x10\x10application/grpc\
    \0\0\x05\0\0\0\0\0\x01\0\0\0\0\0\
    \0\0\x0f\x01\x05\0\0\0\x01\0\x0bgrpc-status\x010";

/// A type of frames, and a flag of theirs (RFC 9113, 6.7).
const PING: u8 = 6;
const ACK: u8 = 1;
/// A flag of the last frame of a stream (RFC 9113, 6.1).
const END_STREAM: u8 = 1;

/// A server that may open fewer files than more clients need says so.
const FEW: &[&str] = &["--clients-max", "100"];

/// What a client asks for in a round of `send-list-read-remove`.
const SEED_OPS: [&str; 4] = ["send", "list_queues", "read_all", "remove"];

/// Runs `knee-load queue` to its end; its summary.
fn load(server: &Program, flags: &str) -> Value {
    let output = Command::new(LOAD)
        .args(["queue", "--drain-s", "30", "--server", server.address()])
        .args(flags.split(' '))
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let summary: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(summary["type"], "summary");
    summary
}

/// Runs `knee-load queue` until it has counted each of these, however long that takes; its summary.
fn load_until_counted(server: &Program, flags: &str, ops: &[&str]) -> Value {
    let flags = format!("queue --seconds 600 --drain-s 30 --server {} {flags}", server.address());
    let mut load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
    let mut missing = ops.to_vec();
    load.line_when("each is counted", |line| {
        missing.retain(|op| count(line, op) == 0);
        missing.is_empty()
    });
    let summary = ended(load);
    assert_eq!(summary["type"], "summary");
    summary
}

/// Ends a program as a terminal does; its summary.
fn ended(program: Program) -> Value {
    program.signal(libc::SIGTERM);
    let End { code, lines, errors } = program.end();
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    lines.last().unwrap().clone()
}

fn count(summary: &Value, op: &str) -> u64 {
    let count = &summary["ops"][op]["count"];
    if count.is_null() { 0 } else { count.as_u64().unwrap() }
}

fn has_no_answer(line: &Value) -> bool {
    line["ops"].as_object().unwrap().is_empty()
}

fn errors(line: &Value) -> u64 {
    let ops = line["ops"].as_object().unwrap();
    ops.values().map(|op| op["errors"].as_u64().unwrap()).sum()
}

#[test]
fn every_loop_is_served_and_counted_alike() {
    let cases = [
        ("send-list-read-remove", "self", &["send", "list_queues", "read_all", "remove"][..]),
        ("send-list-read-remove", "any", &["send", "list_queues", "read_all", "remove"]),
        ("list-receive-send", "self", &["send", "list_queues", "remove"]),
        ("send-remove", "self", &["send", "remove"]),
        ("send", "self", &["send"]),
    ];
    for (round, receivers, ops) in cases {
        let server = Program::serve(QUEUE, &[FEW, &["--workers", "2"]].concat());
        let flags = format!(
            "--clients 4 --threads 2 --verify --loop {round} --receivers {receivers} \
             --characters 300"
        );
        let load = load_until_counted(&server, &flags, ops);
        let server = ended(server);
        assert_eq!(load["wrong_values"], 0);
        assert_eq!((&server["role"], &server["workers"]), (&"middleware".into(), &2.into()));
        for op in ops {
            assert_eq!(count(&load, op), count(&server, op), "{round}: {op}");
            assert_eq!(load["ops"][op]["errors"], 0);
            // Each stage is within the one that it is a part of.
            let ns = |stage: &str| server["ops"][op][format!("{stage}_sum_ns")].as_u64().unwrap();
            assert!(ns("connection") <= ns("service"));
            assert!(ns("queueing") + ns("service") <= ns("response"));
        }
    }
}

#[test]
fn null_database_has_a_message_for_every_step() {
    for (round, receivers, ops) in [
        ("send-list-read-remove", "any", &SEED_OPS[..]),
        ("list-receive-send", "self", &["send", "list_queues", "remove"]),
        ("send-remove", "any", &["send", "remove"]),
    ] {
        let server = Program::serve(QUEUE, &[FEW, &["--database", "null"]].concat());
        let flags =
            format!("--clients 4 --threads 2 --verify --loop {round} --receivers {receivers}");
        let load = load_until_counted(&server, &flags, ops);
        let server = ended(server);
        assert_eq!(load["wrong_values"], 0);
        for op in ops {
            let of = |name: &str| load["ops"][op][name].as_u64().unwrap();
            assert_eq!(count(&load, op), count(&server, op), "{round}: {op}");
            assert_eq!((of("errors"), of("misses")), (0, 0), "{round}: {op}");
            // One message, of some 200 characters, for each that was sent.
            if ["read_all", "remove"].contains(op) {
                assert_eq!(of("hits"), count(&load, op));
                assert_eq!(of("items"), count(&load, op));
                assert!(of("bytes_in") > 200 * count(&load, op));
            }
        }
    }
}

#[test]
fn open_loop_sends_at_its_rate() {
    let server = Program::serve(QUEUE, &[FEW, &["--database", "null"]].concat());
    let load = load(&server, "--clients 1 --seconds 3 --rate 200 --arrivals constant");
    let counts = SEED_OPS.map(|op| count(&load, op));
    let (all, unsent) = (counts.iter().sum::<u64>(), load["unsent"].as_u64().unwrap());
    // A machine with no time for it may send less, and says so.
    assert_eq!(all + unsent, 600);
    assert!(all > 0);
    // At most 256 sends are on their way before a client knows a queue to ask for.
    assert!(unsent > 0 || !counts.contains(&0), "{counts:?}");
    ended(server);
}

#[test]
fn request_without_answer_in_time_is_an_error() {
    for pace in ["--think-ms 1", "--rate 100 --arrivals constant"] {
        let server = Program::serve(QUEUE, &[FEW, &["--database", "null"]].concat());
        let flags = format!("queue --server {} --clients 3 --threads 2 {pace}", server.address());
        let flags = [flags.as_str(), "--seconds 600 --drain-s 0.5"].join(" ");
        let mut load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
        load.line_when("it has asked", |line| !has_no_answer(line));
        server.signal(libc::SIGSTOP);
        load.line_when("nothing is answered for a second", has_no_answer);
        load.signal(libc::SIGTERM);
        let End { code, lines, errors: printed } = load.end();
        let unanswered = printed.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
        assert!(
            printed.contains("requests were not answered within 0.5 s after the end"),
            "{printed}"
        );
        assert!(unanswered > 0, "{printed}");
        assert_eq!(
            (code, errors(lines.last().unwrap())),
            (Some(0), unanswered),
            "{pace}: {printed}"
        );
        server.signal(libc::SIGCONT);
    }
}

#[test]
fn backlog_survives_a_restart_of_the_server() {
    let directory = std::env::temp_dir().join(format!("knee-queue-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let database = format!("sqlite:{}", directory.join("messages.db").display());
    let flags = [FEW, &["--database", &database, "--durability", "none"]].concat();
    let server = Program::serve(QUEUE, &flags);
    let summary =
        load(&server, "--backlog 2500 --clients 10 --receivers any --characters 100 --seed 3");
    assert_eq!(summary["populate"]["messages"], 2500);
    let clients: Vec<[u32; 2]> =
        serde_json::from_value(summary["populate"]["clients"].clone()).unwrap();
    ended(server);
    let server = Program::serve(QUEUE, &flags);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (counts, listed) = runtime.block_on(async {
        let address = format!("http://{}", server.address());
        let mut client =
            knee_rpc::queue::queue_client::QueueClient::connect(address).await.unwrap();
        let mut listed = Vec::new();
        for &[receiver, _] in &clients {
            let request = knee_rpc::queue::ListQueuesRequest { receiver };
            listed.push(client.list_queues(request).await.unwrap().into_inner().queues.len());
        }
        (client.counts(knee_rpc::queue::CountsRequest {}).await.unwrap().into_inner(), listed)
    });
    assert_eq!((counts.messages, counts.clients, counts.queues), (2500, 10, 10));
    // Everybody has sent 250 messages, to everybody.
    assert_eq!(listed, [10; 10]);
    let who: Vec<_> = clients.iter().map(|[client, queue]| format!("{client}:{queue}")).collect();
    let (some, others) = who.split_at(4);
    let (some, others) = (some.join(","), others.join(","));
    let flags = format!("--clients 10 --verify --characters 100 --as {some} --as {others}");
    let load = load_until_counted(&server, &flags, &SEED_OPS);
    assert_eq!(load["wrong_values"], 0);
    let summary = ended(server);
    // No client was registered anew, and each listing finds a queue at once.
    assert_eq!(count(&summary, "register_client"), 0);
    assert_eq!(load["ops"]["remove"]["misses"], 0);
    assert!(load["ops"]["read_all"]["items"].as_u64().unwrap() > 10 * count(&load, "read_all"));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn interrupted_backlog_reports_what_is_stored() {
    for signal in [libc::SIGINT, libc::SIGKILL, libc::SIGSTOP] {
        let mut server = Program::serve(QUEUE, &[FEW, &["--database", "null"]].concat());
        let load = Command::new(LOAD)
            .args(["queue", "--server", server.address(), "--backlog", "4000000000"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut counted = 0;
        server.line_when("three batches are stored", |line| {
            counted += count(line, "send");
            counted >= 3
        });
        let why = if signal == libc::SIGINT {
            // SAFETY: kill takes two numbers; the process is our child and not waited for yet.
            assert_eq!(unsafe { libc::kill(load.id() as libc::pid_t, signal) }, 0);
            "interrupted: it is not done; ".to_owned()
        } else {
            server.signal(signal);
            let failed = format!("populating {} failed: ", server.address());
            let stops = signal == libc::SIGSTOP;
            failed + if stops { "no answer for 13 s; " } else { "it did not answer a send: " }
        };
        let output = load.wait_with_output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.starts_with(&format!("knee-load: {why}")), "{printed}");
        let (before, after) = printed.split_once(" of 4000000000 messages are stored").unwrap();
        let stored = before.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        assert_eq!(after, " and stay there, and perhaps 1000 more\n");
        // Who has asked for another batch has the answer to the one before.
        assert!(stored >= 1000 * (counted - 1), "{counted}: {printed}");
        if signal == libc::SIGINT {
            let batches = count(&ended(server), "send");
            assert!([batches, batches - 1].contains(&(stored / 1000)), "{batches}: {printed}");
        }
    }
}

#[test]
fn ten_thousand_connections_are_served() {
    let server = Program::serve(QUEUE, &["--database", "null", "--admin", "127.0.0.1:0"]);
    knee_reactor::process::raise_open_files_limit().unwrap();
    // A thread of its own answers for all of them.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (taken, clients) = channel();
    for _ in 0..10_000 {
        let client = server.connect();
        client.set_nonblocking(true).unwrap();
        runtime.spawn(stay(client, taken.clone()));
    }
    // Each of them has been taken, and has the server's settings.
    for _ in 0..10_000 {
        clients.recv_timeout(PATIENCE).unwrap();
    }
    load(&server, "--clients 10 --seconds 0.5");
    server.wait_for_metric("knee_connections{role=\"middleware\"} 10000");
    drop(runtime);
    ended(server);
}

/// A client of HTTP/2 that asks for nothing and says that it is there whenever the server asks (RFC 9113, 6.7). It
/// tells when it has the server's first frame.
async fn stay(client: std::net::TcpStream, taken: Sender<()>) -> std::io::Result<()> {
    let mut client = TcpStream::from_std(client)?;
    client.write_all(PREFACE).await?;
    let mut taken = Some(taken);
    loop {
        let mut frame = vec![0; 9];
        client.read_exact(&mut frame).await?;
        if let Some(taken) = taken.take() {
            taken.send(()).unwrap();
        }
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
        frame.resize(9 + length, 0);
        client.read_exact(&mut frame[9..]).await?;
        let [kind, flags] = &mut frame[3..5] else { unreachable!() };
        if (*kind, *flags) == (PING, 0) {
            *flags = ACK;
            client.write_all(&frame).await?;
        }
    }
}

#[test]
fn long_think_time_reconnects_without_an_error() {
    let flags = [FEW, &["--database", "null", "--idle-max-s", "1"]].concat();
    let server = Program::serve(QUEUE, &flags);
    let flags = ["queue", "--server", server.address(), "--clients", "3", "--seed", "3"];
    let flags = [&flags[..], &["--think-ms", "5000", "--seconds", "60"]].concat();
    let mut load = Program::start(LOAD, &flags);
    let (mut reconnects, mut seconds) = (0, 0.0);
    load.line_when("each has another one", |line| {
        reconnects += line["reconnects"].as_u64().unwrap();
        seconds += line["seconds"].as_f64().unwrap();
        assert_eq!(errors(line), 0, "{line}");
        // So it is with this seed: a request that comes just when the server leaves is lost.
        assert!(seconds > 4.0 || has_no_answer(line), "after {seconds} s: {line}");
        reconnects >= 3
    });
    load.signal(libc::SIGTERM);
    let End { lines, errors: printed, .. } = load.end();
    let summary = lines.last().unwrap();
    assert!(count(summary, "send") >= 3, "{summary}");
    assert_eq!(errors(summary), 0, "{summary}: {printed}");
    assert!(printed.contains(&format!("lost a connection to {}", server.address())), "{printed}");
    ended(server);
}

#[test]
fn rare_requests_use_open_connections() {
    let flags = [FEW, &["--database", "null", "--idle-max-s", "1"]].concat();
    let server = Program::serve(QUEUE, &flags);
    // Each five seconds after the one before, when all have been closed for long.
    let flags = ["queue", "--server", server.address(), "--clients", "3", "--seconds", "60"];
    let flags = [&flags[..], &["--rate", "0.2", "--arrivals", "constant"]].concat();
    let mut load = Program::start(LOAD, &flags);
    let mut reconnects = 0;
    while reconnects < 2 {
        let line = load.line();
        reconnects += line["reconnects"].as_u64().unwrap();
        assert_eq!(errors(&line), 0, "{line}");
    }
    load.signal(libc::SIGTERM);
    let End { lines, errors: printed, .. } = load.end();
    let summary = lines.last().unwrap();
    assert_eq!(errors(summary), 0, "{summary}: {printed}");
    // One for each of them, and not all three.
    let answers: u64 = SEED_OPS.map(|op| count(summary, op)).iter().sum();
    assert!(summary["reconnects"].as_u64().unwrap() <= answers, "{summary}");
    assert!(printed.contains(&format!("lost a connection to {}", server.address())), "{printed}");
    ended(server);
}

#[test]
fn late_requests_use_connections_reopened_after_the_end() {
    let address = free_address();
    let serve = || {
        let flags = ["--database", "null", "--listen", &address];
        Program::spawn(Command::new(QUEUE).args(FEW).args(flags))
    };
    let server = serve();
    let flags = ["queue", "--server", &address, "--clients", "2", "--seconds", "60"];
    let flags = [&flags[..], &["--rate", "50", "--drain-s", "15"]].concat();
    let mut load = Program::start(LOAD, &flags);
    load.line();
    drop(server);
    while load.line()["connections"] != 0 {}
    load.signal(libc::SIGTERM);
    // By then the connections were tried in vain after the end.
    for _ in 0..2 {
        load.line();
    }
    let server = serve();
    let End { lines, errors: printed, .. } = load.end();
    assert_eq!(lines.last().unwrap()["unsent"], 0, "{printed}");
    ended(server);
}

#[test]
fn connections_to_a_dead_server_count_as_lost() {
    // Who thinks for so long asks for nothing until the end.
    for pace in ["--think-ms 1", "--think-ms 3600000", "--rate 100"] {
        let server = Program::serve(QUEUE, &[FEW, &["--database", "null"]].concat());
        let flags = format!("queue --server {} --clients 3 --threads 2", server.address());
        let flags = [flags.as_str(), pace, "--seconds 60 --drain-s 0.1"].join(" ");
        let mut load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
        load.line();
        server.signal(libc::SIGKILL);
        server.end();
        if pace.ends_with(" 1") {
            let mut losses = 0;
            load.line_when("each has lost its connection", |line| {
                losses += line["losses"].as_u64().unwrap();
                losses == 3
            });
        } else {
            // By the second line what was lost before the first is known.
            load.line();
            load.line();
        }
        load.signal(libc::SIGTERM);
        let End { code, lines, errors: printed } = load.end();
        let summary = lines.last().unwrap();
        assert_eq!(code, Some(0), "{pace}: {printed}");
        let counts = ["losses", "reconnects", "connections"].map(|name| &summary[name]);
        assert_eq!(counts, [3, 0, 0], "{pace}: {summary}: {printed}");
    }
}

#[test]
fn accepted_connection_without_an_answer_is_not_back() {
    for pace in ["--think-ms 1", "--rate 100"] {
        let server = Program::serve(QUEUE, &[FEW, &["--database", "null"]].concat());
        let flags = format!("queue --server {} --clients 3 {pace}", server.address());
        let flags = [flags.as_str(), "--seconds 60 --drain-s 0.1"].join(" ");
        let mut load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
        load.line();
        let address = server.address().to_owned();
        server.signal(libc::SIGKILL);
        server.end();
        // As the kernel does for a process that is being killed.
        let silent = Silent::at(&address, |_| Ok(()));
        let deadline = Instant::now() + PATIENCE;
        while silent.clients.lock().unwrap().is_empty() {
            assert!(Instant::now() < deadline, "no client comes");
            load.line();
        }
        // The second line counts clients that were back before the first one.
        load.line();
        load.line();
        load.signal(libc::SIGTERM);
        let End { code, lines, errors: printed } = load.end();
        let summary = lines.last().unwrap();
        let counts = ["losses", "reconnects", "connections"].map(|name| &summary[name]);
        assert_eq!(code, Some(0), "{pace}: {printed}");
        assert_eq!(counts, [3, 0, 0], "{pace}: {summary}: {printed}");
    }
}

#[test]
fn refused_client_backs_off() {
    // As a server at its limit of clients, or as one that takes them and cuts them off before any answer.
    for (speaks, pace) in [
        (false, "--think-ms 1"),
        (false, "--rate 100"),
        (true, "--think-ms 1"),
        (true, "--rate 100"),
    ] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let (turned_away, tries) = channel();
        std::thread::spawn(move || {
            let mut incoming = server.incoming().map_while(Result::ok);
            // Until the start they are not.
            let mut first = incoming.next().unwrap();
            hear_first_call(&mut first).unwrap();
            first.write_all(NOTHING).unwrap();
            first.read_exact(&mut [0]).unwrap();
            drop(first);
            for mut client in incoming {
                if speaks && hear_first_call(&mut client).is_err() {
                    // It was about to come when the end came.
                    continue;
                }
                turned_away.send(()).unwrap();
            }
        });
        let flags = format!("queue --server {address} --as 1:1 --clients 1 {pace}");
        let flags = [flags.as_str(), "--seconds 60 --drain-s 0.1"].join(" ");
        let begun = Instant::now();
        let load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
        for _ in 0..5 {
            tries.recv_timeout(PATIENCE).unwrap();
        }
        load.signal(libc::SIGTERM);
        let End { lines, errors: printed, .. } = load.end();
        let took = begun.elapsed();
        let tries = 5 + tries.try_iter().count();
        // However slow the machine is, it has waited before each of them.
        let waits = (0..tries).map(|times| (10 << times.min(7)).min(1000));
        let waited = Duration::from_millis(waits.sum());
        assert!(waited <= took, "{pace}: {tries} within {took:?}: {printed}");
        let back = &lines.last().unwrap()["reconnects"];
        let is_mute = printed.contains(&format!("knee-load: no HTTP/2 from {address}: "));
        assert_eq!((back != 0, is_mute), (speaks, !speaks), "{pace}: {back}: {printed}");
    }
}

#[test]
fn cut_off_client_reconnects_only_for_due_requests() {
    let server = Silent::after_the_first_call();
    // Each has asked within 3 s, and from then on one asks every half second.
    let mut load = server.load("--as 1:1,2:2,3:3,4:4,5:5,6:6 --clients 6 --rate 2");
    load.line_when("each waits for an answer", |line| line["in_flight"].as_u64().unwrap() >= 6);
    server.cut();
    let (mut failed, mut reconnects) = (0, 0);
    load.line_when("they are cut off, and one has come back", |line| {
        failed += errors(line);
        reconnects += line["reconnects"].as_u64().unwrap();
        failed >= 6 && reconnects > 0
    });
    load.signal(libc::SIGTERM);
    let End { lines, errors: printed, .. } = load.end();
    let summary = lines.last().unwrap();
    let due = errors(summary) + summary["unsent"].as_u64().unwrap();
    assert!(summary["reconnects"].as_u64().unwrap() <= due - 6, "{summary}: {printed}");
}

#[test]
fn full_connection_that_was_cut_is_opened_again() {
    let server = Silent::after_the_first_call();
    let mut load = server.load("--as 1:1 --clients 1 --rate 1000");
    load.line_when("as many are in flight as may be", |line| line["in_flight"] == 256);
    server.cut();
    load.line_when("it has come back", |line| line["reconnects"] == 1);
    load.signal(libc::SIGTERM);
    load.end();
}

/// Waits for the first call of a client, which is on stream 1.
fn hear_first_call(client: &mut std::net::TcpStream) -> std::io::Result<()> {
    const DATA: u8 = 0;
    client.write_all(SETTINGS)?;
    let mut preface = [0; PREFACE.len() - SETTINGS.len()];
    client.read_exact(&mut preface)?;
    let mut frame = [0; 9];
    while frame[3..] != [DATA, END_STREAM, 0, 0, 0, 1] {
        client.read_exact(&mut frame)?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        let mut payload = vec![0; length as usize];
        client.read_exact(&mut payload)?;
        if frame[3..5] == [PING, 0] {
            let head = [0, 0, 8, PING, ACK, 0, 0, 0, 0];
            client.write_all(&[&head, &payload[..]].concat())?;
        }
    }
    Ok(())
}

/// What takes any connection, and never answers.
struct Silent {
    address: SocketAddr,
    clients: Arc<Mutex<Vec<std::net::TcpStream>>>,
}

impl Silent {
    /// It says nothing at all.
    fn new() -> Silent {
        Silent::at("127.0.0.1:0", |_| Ok(()))
    }

    /// Each has its settings, and the first call its answer: a load with who is registered already asks for that before
    /// the start.
    fn after_the_first_call() -> Silent {
        let has_answered = AtomicBool::new(false);
        Silent::at("127.0.0.1:0", move |client| {
            hear_first_call(client)?;
            if has_answered.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
            client.write_all(NOTHING)
        })
    }

    fn at(
        address: &str,
        greet: impl Fn(&mut std::net::TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Silent {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let clients = Arc::<Mutex<Vec<std::net::TcpStream>>>::default();
        let (taken, greet) = (Arc::clone(&clients), Arc::new(greet));
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                taken.lock().unwrap().push(client.try_clone().unwrap());
                let greet = Arc::clone(&greet);
                std::thread::spawn(move || {
                    greet(&mut client)?;
                    std::io::copy(&mut &client, &mut std::io::sink())
                });
            }
        });
        Silent { address, clients }
    }

    /// Loads it with who is registered already: others would ask for more before the start.
    fn load(&self, flags: &str) -> Program {
        let flags = format!("queue --server {} --seconds 60 --drain-s 0.1 {flags}", self.address);
        let flags = format!("{flags} --arrivals constant");
        Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>())
    }

    fn cut(&self) {
        for client in &*self.clients.lock().unwrap() {
            // It may have left.
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn refused_and_unanswered_requests_are_reported_apart() {
    let server = Program::serve(QUEUE, FEW);
    let backlog = load(&server, "--backlog 1 --clients 1");
    let client = &backlog["populate"]["clients"][0][0];
    // There is no such queue.
    let flags = format!("queue --server {} --as {client}:7 --loop send", server.address());
    let flags = [flags.as_str(), "--think-ms 1 --seconds 60"].join(" ");
    let mut load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
    load.line_when("something is refused", |line| errors(line) > 0);
    let address = server.address().to_owned();
    server.signal(libc::SIGSTOP);
    load.line_when("a request waits", |line| line["in_flight"] == 1 && has_no_answer(line));
    server.signal(libc::SIGKILL);
    load.line_when("it is lost", |line| line["losses"] == 1);
    load.signal(libc::SIGTERM);
    let printed = load.end().errors;
    let refused = format!("knee-load: {address} refused a send: NotFound: ");
    let lost = format!("knee-load: {address} did not answer a send: ");
    let [first, second, ..] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    assert!(first.starts_with(&refused) && second.starts_with(&lost), "{printed}");
    assert!(!printed.contains("it answered"), "{printed}");
}

#[test]
fn other_servers_are_reported_as_no_queue() {
    let store_grpc = free_address();
    let store = Program::serve(KV, &["--grpc", &store_grpc]);
    let web = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let mute = answering(b"");
    // An alert: unexpected_message (RFC 8446, sections 5.1 and 6).
    let encrypted = answering(b"\x15\x03\x03\0\x02\x02\x0a");
    let no_http2 = |address| format!("no HTTP/2 from {address}: ");
    let rows = [
        (&web, no_http2(&web)),
        (&encrypted, no_http2(&encrypted)),
        (&mute, no_http2(&mute)),
        (&store_grpc, format!("{store_grpc} is no knee-queue: it does not know knee.queue.v1\n")),
    ];
    for (address, why) in rows {
        for flags in ["--seconds 1", "--seconds 1 --as 1:1 --clients 9", "--backlog 5"] {
            let flags = format!("queue --server {address} {flags}");
            let output = refused(LOAD, &flags.split(' ').collect::<Vec<_>>());
            let printed = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{flags}: {printed}");
            assert!(printed.starts_with(&format!("knee-load: {why}")), "{flags}: {printed}");
        }
    }
    drop(store);
}

#[test]
fn servers_that_never_answer_are_named() {
    let server = Program::serve(QUEUE, &[FEW, &["--database", "null"]].concat());
    let silent = [Silent::new().address, Silent::new().address];
    let load = |flags: &str| {
        let servers = format!("{},{},{}", server.address(), silent[0], silent[1]);
        let flags = format!("queue --server {servers} --clients 5 --seconds 1{flags}");
        let output = refused(LOAD, &flags.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    for flags in ["", " --as 1:1"] {
        let named = format!(
            "on 2 of 2 connections to {}, on 1 of 1 connections to {}",
            silent[0], silent[1]
        );
        assert_eq!(load(flags), format!("knee-load: within 10 s there was no answer {named}\n"));
    }
}

#[test]
fn unknown_client_is_refused_before_the_start() {
    let server = Program::serve(QUEUE, FEW);
    let load = |flags: &str| {
        let flags = format!("queue --server {} {flags}", server.address());
        Command::new(LOAD).args(flags.split(' ')).output().unwrap()
    };
    assert!(load("--backlog 2 --clients 2").status.success());
    let output = load("--seconds 60 --as 1:1,2:2,7:7 --clients 3 --threads 2");
    let printed = String::from_utf8(output.stderr).unwrap();
    let stranger = format!("knee-load: {} does not know client 7 of --as: ", server.address());
    assert!(printed.starts_with(&stranger), "{printed}");
    assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()));
    // Who has nothing to do need not be known.
    assert!(load("--seconds 0.1 --as 1:1,2:2,7:7 --clients 2 --threads 2").status.success());
    // However many they are, they have been answered once.
    let summary = ended(server);
    assert_eq!(count(&summary, "read_from") - errors(&summary), 1);
}

#[test]
fn client_beyond_the_limit_is_refused_before_the_start() {
    let server = Program::serve(QUEUE, &["--clients-max", "1"]);
    let backlog = load(&server, "--backlog 1 --clients 1");
    let client = &backlog["populate"]["clients"][0][0];
    let flags = format!("queue --server {} --as {client}:1 --clients 3", server.address());
    let flags = [flags.as_str(), "--seconds 60"].join(" ");
    let output = refused(LOAD, &flags.split(' ').collect::<Vec<_>>());
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()), "{printed}");
    let full = format!("knee-load: no HTTP/2 from {}: ", server.address());
    assert!(
        printed.starts_with(&full) && printed.contains("with room for another client"),
        "{printed}"
    );
    ended(server);
}

/// A server that closes every connection once it has heard something and given this answer.
fn answering(answer: &'static [u8]) -> String {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut client in server.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let _ = client.read(&mut [0; 4096]);
                let _ = client.write_all(answer);
                let _ = client.shutdown(Shutdown::Write);
                // To close it with something unread would take the answer back.
                let _ = std::io::copy(&mut client, &mut std::io::sink());
            });
        }
    });
    address
}

#[test]
fn load_refuses_flags_of_other_protocols() {
    let rows = [
        ("--seconds 1 --keys 5", "unexpected argument '--keys'"),
        ("--seconds 1 --key-prefix k", "unexpected argument '--key-prefix'"),
        ("--seconds 1 --key-choice uniform", "unexpected argument '--key-choice'"),
        ("--seconds 1 --value-bytes 5", "unexpected argument '--value-bytes'"),
        ("--seconds 1 --ttl-s 5", "unexpected argument '--ttl-s'"),
        // Nothing of these is asked of a phase of its own, not even what is so anyway.
        ("--backlog 5 --threads 1", "'--threads <THREADS>'"),
        ("--backlog 5 --as 1:1", "'--as <CLIENT:QUEUE>'"),
        ("--backlog 5 --loop send-list-read-remove", "'--loop <ROUND>'"),
    ];
    for (flags, why) in rows {
        let flags = format!("queue --server {} {flags}", free_address());
        let output = refused(LOAD, &flags.split(' ').collect::<Vec<_>>());
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags}: {printed}");
        assert!(printed.contains(why), "{flags}: {printed}");
    }
}

#[test]
fn each_request_is_a_line_of_the_trace() {
    let server = Program::serve(QUEUE, &["--database", "null", "--trace"]);
    load_until_counted(&server, "--rate 50", &["send"]);
    server.signal(libc::SIGINT);
    let errors = server.end().errors;
    for (op, what) in [("register_client", ""), ("create_queue", " creator="), ("send", " sender=")]
    {
        let begins = format!("knee-queue: trace {op}{what}");
        let line = errors.lines().find(|line| line.starts_with(&begins));
        let line = line.unwrap_or_else(|| panic!("no {begins:?} in {errors}"));
        for part in ["received=", "status=Ok", "queued=", "connecting=", "asking=", "total="] {
            assert!(line.contains(part), "{line}");
        }
    }
}

#[test]
fn unusable_flags_are_refused_and_no_address_is_repeated() {
    let rows = [
        (
            vec!["--database", "postgresql://me:hunter2@127.0.0.1/messages"],
            1,
            "cannot use --database: the address has a password",
        ),
        (
            vec!["--database", "postgresql://hunter2@127.0.0.1:1/messages"],
            1,
            "cannot use --database: cannot connect",
        ),
        (vec!["--database", "postgresql://me:hun@ter2@127.0.0.1/messages"], 1, "has a password"),
        (
            vec!["--database", "postgresql://me@127.0.0.1/messages?secrecy=hunter2"],
            1,
            "cannot use --database: the address cannot be read",
        ),
        (vec!["--database", "sqlite:/nonexistent/hunter2"], 1, "cannot open the file"),
        (
            vec!["--database", "host=localhost user=me password=hunter2"],
            2,
            "--database is one of postgresql://USER@HOST:PORT/NAME",
        ),
        (vec!["--tls-certificate", "/nonexistent"], 2, "--tls-key"),
        (
            vec!["--tls-certificate", "/nonexistent", "--tls-key", "/nonexistent"],
            1,
            "cannot read /nonexistent",
        ),
        (
            vec!["--tls-certificate", "/dev/null", "--tls-key", "/dev/null"],
            1,
            "cannot use --tls-certificate",
        ),
        (
            vec!["--message-bytes-max", "10000000", "--memory-mb", "5"],
            2,
            "--memory-mb 5 is too little for messages of --message-bytes-max 10000000: it takes at \
             least 29",
        ),
        (vec!["migrate", "--database", "sqlite"], 2, "others need no migration"),
    ];
    for (flags, code, said) in rows {
        let output = refused(QUEUE, &flags);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {errors}");
        assert!(errors.contains(said), "{flags:?}: {errors}");
        assert!(!errors.contains("ter2"), "{errors}");
        assert!(output.stdout.is_empty());
    }
}
