//! Loops of `knee-load queue`, counted by the load and by the server.

use super::{FEW, SEED_OPS, count, ended, errors, has_no_answer, load, load_until_counted};
use crate::program::{End, LOAD, Program, QUEUE};

#[test]
fn every_loop_is_served_and_counted_alike() {
    let cases = [
        ("sqlite", "send-list-read-remove", "self", &SEED_OPS[..]),
        ("sqlite", "send-list-read-remove", "any", &SEED_OPS),
        ("sqlite", "list-receive-send", "self", &["send", "list_queues", "remove"]),
        ("sqlite", "send-remove", "self", &["send", "remove"]),
        ("sqlite", "send", "self", &["send"]),
        // This database has a message for every step.
        ("null", "send-list-read-remove", "any", &SEED_OPS),
        ("null", "list-receive-send", "self", &["send", "list_queues", "remove"]),
        ("null", "send-remove", "any", &["send", "remove"]),
    ];
    for (database, round, receivers, ops) in cases {
        let flags = [FEW, &["--workers", "2", "--database", database]].concat();
        let server = Program::serve(QUEUE, &flags);
        let flags = format!(
            "--clients 4 --threads 2 --think-ms 10 --verify --loop {round} --receivers {receivers} \
             --characters 300"
        );
        let load = load_until_counted(&server, &flags, ops);
        let server = ended(server);
        assert_eq!(load["wrong_values"], 0);
        assert_eq!((&server["role"], &server["workers"]), (&"middleware".into(), &2.into()));
        for op in ops {
            let of = |name: &str| load["ops"][op][name].as_u64().unwrap();
            assert_eq!(count(&load, op), count(&server, op), "{database}, {round}: {op}");
            assert_eq!(of("errors"), 0);
            // A stage takes no longer than the stage that contains it.
            let ns = |stage: &str| server["ops"][op][format!("{stage}_sum_ns")].as_u64().unwrap();
            assert!(ns("connection") <= ns("service"));
            assert!(ns("queueing") + ns("service") <= ns("response"));
            // Each read and each remove gets one message.
            if database == "null" && ["read_all", "remove"].contains(op) {
                assert_eq!((of("hits"), of("items")), (count(&load, op), count(&load, op)));
                assert!(of("misses") == 0 && of("bytes_in") > 300 * count(&load, op), "{load}");
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
    // A busy machine may send less, and reports the unsent requests.
    assert_eq!(all + unsent, 600);
    assert!(all > 0);
    // At most 256 sends are in flight before a client knows a queue.
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
