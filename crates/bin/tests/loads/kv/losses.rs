//! Lost connections: their cost, and the writes that are sent again.

use knee_testkit::wait_until;

use super::relay::Relay;
use super::store::{Store, WRITES, ended_when_reconnected, finished, load, sum};
use crate::program::{LOAD, Program, count, errors};

#[test]
fn write_with_lost_answer_is_sent_again_and_done_once() {
    for pace in ["--think-ms 1", "--rate 100"] {
        let store = Store::start(&[]);
        let relay = Relay::to(&store.grpc);
        let load = load(&format!(
            "--server {} {pace} --clients 6 --own-keys --keys 600 --mix put:2,append:1,bulk_put:1 \
             --seconds 60 --verify",
            relay.address
        ));
        wait_until("it has written", || store.stats().last_commit > 20);
        relay.hold();
        // The store does the writes, but the relay holds their answers back.
        wait_until("answers are held back", || relay.held() >= 3);
        relay.cut(6);
        let end = ended_when_reconnected(load, 6);
        let line = end.summary();
        assert_eq!(line["wrong_values"], 0, "{pace}: {}", end.errors);
        assert!(errors(line) > 0, "{pace}: {line}");
        assert!(end.errors.contains(&relay.address), "{pace}: {}", end.errors);
        // Every write has one commit, however often it was sent.
        let acknowledged = sum(line, &WRITES, "count") - errors(line);
        assert_eq!(store.stats().last_commit, acknowledged, "{pace}");
    }
}

#[test]
fn write_lost_at_a_low_rate_is_sent_again_at_once() {
    let store = Store::start(&[]);
    let relay = Relay::to(&store.grpc);
    let mut load =
        load(&format!("--server {} --rate 0.25 --mix put:1 --seconds 60 --verify", relay.address));
    wait_until("it has written", || store.stats().last_commit == 1);
    relay.hold();
    wait_until("the next answer is held back", || relay.held() == 1);
    relay.cut(1);
    let mut puts = 0;
    load.line_when("it has written again", |line| {
        puts += count(line, "put", "count");
        puts == 3
    });
    load.signal(libc::SIGTERM);
    let end = finished(load);
    let line = end.summary();
    // A request becomes due only every four seconds.
    assert_eq!((count(line, "put", "count"), errors(line)), (3, 1), "{}", end.errors);
    assert_eq!(store.stats().last_commit, 2);
}

#[test]
fn restart_of_a_server_costs_errors_only() {
    let (mortal, other) = (Store::start(&[]), Store::start(&[]));
    let servers = format!("{},{}", mortal.grpc, other.grpc);
    let load = load(&format!("--server {servers} --clients 6 --seconds 60"));
    wait_until("it has read", || mortal.stats().reads > 10);
    let Store { program, grpc } = mortal;
    program.signal(libc::SIGKILL);
    program.end();
    let mortal = Store::at(grpc, &[]);
    let end = ended_when_reconnected(load, 3);
    let line = end.summary();
    assert_eq!(line["connections"], 6);
    // Three clients had at most one request each in flight.
    assert!(errors(line) <= 3, "{line}: {}", end.errors);
    assert!(
        end.errors.contains(&mortal.grpc) && !end.errors.contains(&other.grpc),
        "{}",
        end.errors
    );
    assert!(mortal.stats().reads > 0, "it is asked again once it is back");
}

#[test]
fn connections_to_a_dead_server_count_as_lost() {
    // A client with the longer think time sends no request before the end.
    for pace in ["--think-ms 1", "--think-ms 3600000", "--rate 100"] {
        let store = Store::start(&[]);
        let flags = format!("kv --server {} --clients 3 --threads 2 --mix read:1", store.grpc);
        let flags = [flags.as_str(), pace, "--seconds 60 --drain-s 0.1"].join(" ");
        let mut load = Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>());
        load.line();
        store.program.signal(libc::SIGKILL);
        store.program.end();
        if pace.ends_with(" 1") {
            let mut losses = 0;
            load.line_when("each has lost its connection", |line| {
                losses += line["losses"].as_u64().unwrap();
                losses == 3
            });
        } else {
            // The second line includes all losses before the first line.
            load.line();
            load.line();
        }
        load.signal(libc::SIGTERM);
        let end = finished(load);
        let counts = ["losses", "reconnects", "connections"].map(|name| &end.summary()[name]);
        assert_eq!(counts, [3, 0, 0], "{pace}: {}", end.errors);
    }
}

#[test]
fn loss_of_an_idle_connection_costs_no_error() {
    let store = Store::start(&[]);
    let load = store.load("--mix read:1 --think-ms 3000 --seconds 60");
    wait_until("it has read", || store.stats().reads > 0);
    let Store { program, grpc } = store;
    program.signal(libc::SIGKILL);
    program.end();
    let store = Store::at(grpc, &[]);
    let end = ended_when_reconnected(load, 1);
    assert_eq!(errors(end.summary()), 0, "{}", end.errors);
    assert!(end.errors.contains(&store.grpc), "{}", end.errors);
}

#[test]
fn due_requests_are_sent_after_the_end() {
    let store = Store::start(&[]);
    let flags = "--mix read:1 --rate 50 --clients 2 --seconds 60";
    let mut load = load(&format!("--server {} {flags}", store.grpc));
    wait_until("it has read", || store.stats().reads > 0);
    let Store { program, grpc } = store;
    program.signal(libc::SIGKILL);
    program.end();
    load.line_when("it has lost its connections", |line| line["connections"] == 0);
    load.signal(libc::SIGTERM);
    // During these lines, the load tries in vain to reconnect.
    for _ in 0..2 {
        load.line();
    }
    let store = Store::at(grpc, &[]);
    let end = load.end();
    assert_eq!(end.summary()["unsent"], 0, "{}", end.errors);
    assert!(store.stats().reads > 0);
}

#[test]
fn server_that_goes_away_is_asked_on_a_new_connection() {
    for (pace, clients) in [("--think-ms 1", 3), ("--rate 50", 1)] {
        let store = Store::start(&[]);
        let relay = Relay::to(&store.grpc);
        let load = load(&format!(
            "--server {} {pace} --clients {clients} --own-keys --keys 600 \
             --mix put:2,append:1 --seconds 60 --verify",
            relay.address
        ));
        wait_until("it has written", || store.stats().last_commit > 20);
        relay.hold();
        wait_until("answers are held back", || relay.held() >= clients);
        relay.go_away();
        if pace.starts_with("--rate") {
            // Requests that become due do not wait for the old connection.
            wait_until("it has asked elsewhere", || relay.asked(clients) > 3);
        }
        relay.release();
        let end = ended_when_reconnected(load, clients as u64);
        let line = end.summary();
        assert_eq!((&line["wrong_values"], errors(line)), (&0.into(), 0), "{pace}: {}", end.errors);
        assert_eq!(store.stats().last_commit, sum(line, &WRITES, "count"), "{pace}");
    }
}

#[test]
fn reset_request_is_an_error_of_its_own() {
    for (pace, clients) in [("--think-ms 1", 3), ("--rate 200", 1)] {
        let store = Store::start(&[]);
        let relay = Relay::to(&store.grpc);
        let load = load(&format!(
            "--server {} {pace} --clients {clients} --mix put:1 --seconds 60 --verify",
            relay.address
        ));
        wait_until("it has written", || store.stats().last_commit > 20);
        relay.hold();
        wait_until("answers are held back", || relay.held() >= clients);
        relay.reset();
        relay.release();
        let before = store.stats().last_commit;
        wait_until("it writes on", || store.stats().last_commit > before + 20);
        load.signal(libc::SIGTERM);
        let end = finished(load);
        let line = end.summary();
        assert_eq!((&line["reconnects"], &line["wrong_values"]), (&0.into(), &0.into()));
        assert_eq!(errors(line), clients as u64, "{pace}: {}", end.errors);
        assert!(
            end.errors.contains("did not say whether it did a put: Cancelled"),
            "{pace}: {}",
            end.errors
        );
        // The store did the writes.
        assert_eq!(store.stats().last_commit, count(line, "put", "count"), "{pace}");
    }
}

#[test]
fn lost_answers_of_an_old_connection_keep_the_limit() {
    let store = Store::start(&[]);
    store.populate("--keys 100 --populate 1");
    let relay = Relay::to(&store.grpc);
    let mut load = load(&format!(
        "--server {} --clients 1 --keys 100 --mix read:1 --rate 100 --seconds 60",
        relay.address
    ));
    wait_until("it has read", || store.stats().reads > 20);
    relay.hold();
    wait_until("an answer is held back", || relay.held() > 0);
    relay.go_away();
    wait_until("it asks on a newer connection", || relay.asked(1) > 3);
    relay.hold();
    load.line_when("as many are in flight as may be", |line| line["in_flight"] == 256);
    relay.cut(1);
    load.line_when("an answer is lost", |line| errors(line) > 0);
    assert_eq!(load.line()["in_flight"], 256);
    relay.release();
    load.signal(libc::SIGTERM);
    assert!(errors(finished(load).summary()) > 0);
}
