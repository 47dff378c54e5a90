//! `knee-load memcached` against Debian's memcached.

use std::io::Read;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use knee_testkit::{Memcached, eventually, wait_until};

use crate::program::{End, LOAD, Program, count, refused, run_load, wait};

fn arguments(servers: &[&Memcached], flags: &str) -> Vec<String> {
    let mut arguments = vec!["memcached".to_owned()];
    arguments.extend(servers.iter().map(|server| format!("--server={}", server.address)));
    if !flags.contains("--drain-s") {
        // Late answers on a slow machine are no errors.
        arguments.push("--drain-s=30".to_owned());
    }
    arguments.extend(flags.split_whitespace().map(str::to_owned));
    arguments
}

/// A running load, behind its ready line.
fn start(servers: &[&Memcached], flags: &str) -> Program {
    Program::spawn(Command::new(LOAD).args(arguments(servers, flags)))
}

/// Runs a load to its end.
fn run(servers: &[&Memcached], flags: &str) -> End {
    let arguments = arguments(servers, flags);
    run_load(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn closed_loop_counts_are_those_of_the_server() {
    // (flags, keys of each retrieval, what retrievals are counted as)
    let rows = [
        ("--clients 7 --threads 2 --set-get 1:3", 1, "get"),
        ("--clients 3 --set-get 2:1 --pipeline 16", 1, "get"),
        ("--clients 4 --multiget 10 --set-get 1:2 --value-bytes exponential:900", 10, "multiget"),
        ("--clients 5 --key-choice zipf:1.0 --think-ms 1 --think exponential", 1, "get"),
        ("--clients 2 --key-choice hotset:0.1:0.9 --value-bytes uniform:0:9000", 1, "get"),
    ];
    for (flags, keys_each, retrieval) in rows {
        let server = Memcached::start(&[]);
        let outcome = run(&[&server], &format!("{flags} --keys 100 --seconds 0.5 --verify"));
        let summary = outcome.summary();
        let stats = server.stats();
        assert_eq!(count(summary, "set", "count"), stats["cmd_set"], "{flags}");
        assert_eq!(count(summary, retrieval, "items"), stats["cmd_get"], "{flags}");
        assert_eq!(count(summary, retrieval, "count") * keys_each, stats["cmd_get"], "{flags}");
        assert_eq!(count(summary, retrieval, "hits"), stats["get_hits"], "{flags}");
        assert_eq!(count(summary, retrieval, "misses"), stats["get_misses"], "{flags}");
        // A busy machine makes few requests.
        assert!(stats["cmd_set"] > 0 && stats["get_hits"] > 0, "{flags}: {stats:?}");
        assert_eq!(summary["wrong_values"], 0, "{flags}: {}", outcome.errors);
        assert_eq!(summary["in_flight"], 0);
        assert_eq!(outcome.errors, "");
        let ops = ["set", retrieval];
        for (op, field) in
            ops.iter().flat_map(|op| ["count", "errors", "bytes_in"].map(|f| (op, f)))
        {
            let windows: u64 = outcome.windows().map(|line| count(line, op, field)).sum();
            assert_eq!(windows, count(summary, op, field), "{flags}: {op} {field}");
        }
    }
}

#[test]
fn populate_of_a_share_leaves_the_rest_missing() {
    let servers = [Memcached::start(&[]), Memcached::start(&[])];
    let servers = [&servers[0], &servers[1]];
    let outcome = run(&servers, "--keys 1000 --populate 0.99 --value-bytes uniform:1:500");
    let populated = &outcome.summary()["populate"];
    assert_eq!(outcome.lines.len(), 1);
    for (index, server) in servers.iter().enumerate() {
        assert_eq!(populated["servers"][index]["stored"], 990);
        assert_eq!(server.stats()["curr_items"], 990);
    }

    // Each client walks through half of the keys in order. Two clients reach the missing keys.
    let flags = "--clients 4 --keys 1000 --set-get 0:1 --value-bytes uniform:1:500 --verify \
                 --rate 2000 --arrivals constant --seconds 1 --key-choice sequential";
    let outcome = run(&servers, flags);
    let summary = outcome.summary();
    assert_eq!(count(summary, "get", "count"), 2000);
    assert_eq!(count(summary, "get", "misses"), 20);
    assert_eq!(summary["wrong_values"], 0, "{}", outcome.errors);
}

#[test]
fn changed_value_is_found() {
    let server = Memcached::start(&[]);
    let populated = run(&[&server], "--keys 100 --populate 1 --value-bytes 40");
    assert_eq!(populated.code, Some(0));
    let value = "x".repeat(40);
    let set = format!("set knee-0000000042 1 0 40\r\n{value}\r\n");
    server.ask(&set, "STORED");

    let flags = "--keys 100 --value-bytes 40 --set-get 0:1 --key-choice sequential \
                 --rate 1000 --arrivals constant --seconds 0.5";
    let outcome = run(&[&server], &format!("{flags} --verify"));
    assert_eq!(outcome.summary()["wrong_values"], 5);
    let errors = &outcome.errors;
    assert!(errors.contains("wrong value") && errors.contains("knee-0000000042"), "{errors}");
    assert!(errors.contains(&server.address.to_string()), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");

    let outcome = run(&[&server], flags);
    assert_eq!(outcome.summary()["wrong_values"], 0);
}

#[test]
fn open_loop_counts_the_wait_for_a_stopped_server() {
    let server = Memcached::start(&[]);
    let mut load =
        start(&[&server], "--clients 4 --rate 400 --arrivals constant --seconds 5 --set-get 1:1");
    load.line();
    server.signal(libc::SIGSTOP);
    let stopped = Instant::now();
    sleep(Duration::from_millis(300));
    let stopped = stopped.elapsed();
    server.signal(libc::SIGCONT);
    let outcome = load.end();
    let summary = outcome.summary();

    // Every request of the schedule was sent and answered.
    let stats = server.stats();
    assert_eq!(count(summary, "set", "count"), stats["cmd_set"]);
    assert_eq!(count(summary, "get", "count"), stats["cmd_get"]);
    assert_eq!(stats["cmd_set"] + stats["cmd_get"], 2000);
    assert_eq!(summary["unsent"], 0);
    // While the server was stopped, a request became due every 2.5 ms, and waited for the server's return.
    let mut slowest = 0;
    let mut waited_ns = 0;
    for line in summary["histograms"].as_array().unwrap() {
        slowest = slowest.max(line["max"].as_u64().unwrap());
        waited_ns += count(summary, line["op"].as_str().unwrap(), "response_sum_ns");
    }
    assert!(slowest >= stopped.as_nanos() as u64 - 10_000_000, "{stopped:?}: {slowest} ns");
    let (waited_s, stopped_s) = (waited_ns as f64 / 1e9, stopped.as_secs_f64());
    assert!(waited_s >= 0.9 * 400.0 * stopped_s * stopped_s / 2.0, "{stopped:?}: {waited_s} s");
}

#[test]
fn open_loop_with_full_connections_counts_unsent() {
    let server = Memcached::start(&[]);
    let mut load = start(
        &[&server],
        "--clients 2 --threads 2 --pipeline 3 --rate 100 --arrivals constant --seconds 5 \
         --set-get 0:1 --drain-s 0.5",
    );
    load.line();
    server.signal(libc::SIGSTOP);
    let outcome = load.end();
    server.signal(libc::SIGCONT);
    let summary = outcome.summary();
    // When the server stopped, six requests were in flight.
    assert_eq!(count(summary, "get", "errors"), 6);
    let unsent = summary["unsent"].as_u64().unwrap();
    assert!(unsent > 0);
    assert_eq!(count(summary, "get", "count") + unsent, 500);
    assert!(
        outcome.errors.contains("6 requests were not answered within 0.5 s"),
        "{}",
        outcome.errors
    );
}

#[test]
fn interactive_law_holds_with_think_time() {
    let server = Memcached::start(&[]);
    for (think, tolerance) in [("constant", 0.02), ("exponential", 0.05)] {
        let flags = format!("--clients 40 --think-ms 20 --think {think} --seconds 2");
        let outcome = run(&[&server], &flags);
        let summary = outcome.summary();
        let sum = |field| count(summary, "set", field) + count(summary, "get", field);
        let cycles_s = sum("response_sum_ns") as f64 / 1e9 + sum("count") as f64 * 0.020;
        let clients = cycles_s / summary["seconds"].as_f64().unwrap();
        // N = X (R + Z). An exponential's own scatter over 4000 draws is 1.6 %.
        assert!((clients / 40.0 - 1.0).abs() < tolerance, "{think}: N = {clients}");
    }
}

#[test]
fn restart_of_a_server_costs_errors_only() {
    let mut mortal = Memcached::start(&[]);
    let other = Memcached::start(&[]);
    let mut load = start(&[&mortal, &other], "--clients 6 --seconds 60 --think-ms 1");
    let asked = |server: &Memcached| server.stats()["cmd_get"];
    eventually("a first request of each", || {
        (asked(&mortal) > 0 && asked(&other) > 0).then_some(())
    });
    mortal.kill();
    // The other server gets requests all the time.
    let before = asked(&other);
    eventually("another request", || (asked(&other) > before + 10).then_some(()));
    mortal.restart();
    let mut again = 0;
    while again < 3 {
        again += load.line()["reconnects"].as_u64().unwrap();
    }
    eventually("a request of the one that is back", || (asked(&mortal) > 0).then_some(()));
    load.signal(libc::SIGTERM);
    let outcome = load.end();
    let summary = outcome.summary();
    assert_eq!((&summary["losses"], &summary["reconnects"]), (&3.into(), &3.into()), "{summary}");
    assert_eq!(summary["connections"], 6);
    let errors = count(summary, "set", "errors") + count(summary, "get", "errors");
    // Three clients had at most one request each in flight.
    assert!(errors <= 3, "{errors}");
    assert!(outcome.errors.contains(&mortal.address.to_string()), "{}", outcome.errors);
    assert!(!outcome.errors.contains(&other.address.to_string()), "{}", outcome.errors);
}

#[test]
fn connections_to_a_dead_server_count_as_lost() {
    for pace in ["--think-ms 1", "--think-ms 3600000", "--rate 100"] {
        let mut mortal = Memcached::start(&[]);
        let other = Memcached::start(&[]);
        let mut load = start(
            &[&mortal, &other],
            &format!("--clients 6 --threads 2 --seconds 60 --drain-s 0.1 {pace}"),
        );
        load.line();
        mortal.kill();
        let mut losses = 0;
        while losses < 3 {
            losses += load.line()["losses"].as_u64().unwrap();
        }
        load.signal(libc::SIGTERM);
        let outcome = load.end();
        let counts = ["losses", "reconnects", "connections"].map(|name| &outcome.summary()[name]);
        assert_eq!(counts, [3, 0, 3], "{pace}: {}", outcome.errors);
    }
}

#[test]
fn due_requests_are_sent_after_the_end() {
    let mut server = Memcached::start(&[]);
    let mut load =
        start(&[&server], "--clients 2 --rate 50 --seconds 60 --set-get 0:1 --drain-s 60");
    eventually("a first request", || (server.stats()["cmd_get"] > 0).then_some(()));
    server.kill();
    while load.line()["connections"] != 0 {}
    load.signal(libc::SIGTERM);
    // During these lines, the load tries in vain to reconnect.
    for _ in 0..2 {
        load.line();
    }
    server.restart();
    let outcome = load.end();
    assert_eq!(outcome.summary()["unsent"], 0, "{}", outcome.errors);
    assert!(server.stats()["cmd_get"] > 0);
}

#[test]
fn error_answers_are_counted_and_printed_once() {
    // With its key and header, a value of 1 MiB exceeds memcached's limit of 1 MiB.
    let server = Memcached::start(&[]);
    let outcome = run(&[&server], "--clients 3 --value-bytes 1048576 --set-get 1:0 --seconds 0.3");
    let summary = outcome.summary();
    assert!(count(summary, "set", "count") > 0);
    assert_eq!(count(summary, "set", "count"), count(summary, "set", "errors"));
    assert_eq!(outcome.errors.lines().count(), 1, "{}", outcome.errors);
    assert!(outcome.errors.contains("object too large"), "{}", outcome.errors);

    let outcome = run(&[&server], "--keys 10 --value-bytes 1048576 --populate 1");
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.errors.contains("object too large"), "{}", outcome.errors);
    assert!(outcome.lines.is_empty());
}

#[test]
fn processes_start_at_the_agreed_second() {
    let mut ahead_s = 3;
    let (server, second, loads) = loop {
        let server = Memcached::start(&[]);
        let second = unix_s() + ahead_s;
        let flags = format!("--clients 2 --seconds 0.5 --start-at {second}");
        let loads = [start(&[&server], &flags), start(&[&server], &flags)];
        let asked = server.stats()["cmd_get"];
        if unix_s() < second {
            // Both loads are ready, and have sent nothing.
            assert_eq!(asked, 0);
            break (server, second, loads);
        }
        // A busy machine needs more time.
        ahead_s *= 2;
        assert!(ahead_s < 100);
    };
    for load in loads {
        let started = load.end().summary()["started_unix_s"].as_f64().unwrap();
        assert!(started >= second as f64 - 0.01, "{started}");
    }

    let outcome = run(&[&server], "--seconds 1 --start-at 1000000000");
    assert_eq!(outcome.code, Some(75));
    assert!(outcome.errors.contains("choose a later start"), "{}", outcome.errors);
}

#[test]
fn signal_ends_a_load_with_a_summary() {
    let server = Memcached::start(&[]);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        server.ask("stats reset\r\n", "RESET");
        let mut load = start(&[&server], "--clients 4 --threads 2 --seconds 60");
        load.line();
        load.signal(signal);
        let outcome = load.end();
        let summary = outcome.summary();
        assert_eq!(summary["interrupted"], true);
        assert!(summary["seconds"].as_f64().unwrap() < 30.0);
        assert_eq!(count(summary, "get", "count"), server.stats()["cmd_get"]);
        assert_eq!(count(summary, "get", "errors"), 0);
    }
    // The load waits for its start.
    let load = start(&[&server], "--seconds 60 --start-at 99999999999");
    load.signal(libc::SIGTERM);
    assert_eq!(load.end().summary()["interrupted"], true);
}

#[test]
fn signal_ends_a_load_that_connects() {
    // A server that never accepts: the kernel does not answer the second connection.
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: listen takes two numbers; the descriptor is open.
    assert_eq!(unsafe { libc::listen(full.as_raw_fd(), 0) }, 0);
    let flags = format!("--server {} --clients 4 --seconds 60", full.local_addr().unwrap());
    let mut load =
        Command::new(LOAD).args(arguments(&[], &flags)).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", load.id());
    wait_until("it handles the signal", || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> (libc::SIGTERM - 1) & 1 == 1
    });
    knee_testkit::signal(&load, libc::SIGTERM);
    assert_eq!(wait(&mut load), Some(1));
    let mut errors = String::new();
    load.stderr.unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "knee-load: interrupted before the end\n");
}

#[test]
fn load_goes_on_when_standard_error_is_closed() {
    let mut server = Memcached::start(&[]);
    let mut command = Command::new(LOAD);
    command.args(arguments(&[&server], "--seconds 2 --clients 2 --think-ms 1"));
    let mut load = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(load.stderr.take());
    wait_until("it sends", || server.stats()["cmd_get"] > 0);
    server.kill();
    assert_eq!(wait(&mut load), Some(0));
    let mut printed = String::new();
    load.stdout.unwrap().read_to_string(&mut printed).unwrap();
    assert!(printed.lines().last().unwrap().contains("\"type\":\"summary\""), "{printed}");
}

#[test]
fn histogram_log_has_a_line_per_second_and_type() {
    let server = Memcached::start(&[]);
    let mut path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    path.push(format!("load-{}.hlog", std::process::id()));
    let flags = format!("--seconds 1.2 --set-get 1:1 --think-ms 1 --hdr-log {}", path.display());
    let outcome = run(&[&server], &flags);
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(log.starts_with("#[Histogram log format version 1.3]\n"), "{log}");
    let windows = outcome.windows().map(|window| window["ops"].as_object().unwrap().len());
    assert_eq!(log.lines().filter(|line| line.starts_with("Tag=")).count(), windows.sum::<usize>());

    let outcome = run(&[&server], "--seconds 1 --hdr-log /nowhere/at/all");
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.errors.contains("cannot write /nowhere/at/all"), "{}", outcome.errors);
}

#[test]
fn load_serves_prometheus_while_it_runs() {
    let server = Memcached::start(&[]);
    let mut load = start(&[&server], "--seconds 60 --think-ms 1 --admin 127.0.0.1:0");
    load.line();
    let page = load.metrics();
    let gets = page
        .lines()
        .find_map(|line| line.strip_prefix("knee_requests_total{role=\"load\",op=\"get\"} "));
    assert!(gets.is_some_and(|count| count.parse::<f64>().unwrap() > 0.0), "{page}");
    load.signal(libc::SIGTERM);
    load.end().summary();
}

#[test]
fn stats_flag_chooses_the_output() {
    let server = Memcached::start(&[]);
    for (stats, first) in [("none", None), ("csv", Some("secs,qlen,thru,"))] {
        let flags = format!("--seconds 0.3 --stats {stats}");
        let arguments = arguments(&[&server], &flags);
        let output = refused(LOAD, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let printed = String::from_utf8(output.stdout).unwrap();
        // Every format prints the ready line.
        let lines = printed.lines().filter(|line| !line.contains("\"type\":\"ready\""));
        let lines: Vec<&str> = lines.collect();
        match first {
            None => assert!(lines.is_empty(), "{printed}"),
            Some(first) => {
                assert!(lines[0].starts_with(first), "{printed}");
                assert!(lines.contains(&"# histogram get"), "{printed}");
            }
        }
    }
}

#[test]
fn absent_server_is_named() {
    let mut gone = Memcached::start(&[]);
    gone.kill();
    let here = Memcached::start(&[]);
    for (servers, flags) in [
        (vec![&gone], "--clients 5 --seconds 1"),
        (vec![&here, &gone], "--clients 5 --seconds 1"),
        (vec![&here, &gone], "--populate 1"),
    ] {
        let outcome = run(&servers, flags);
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.lines.is_empty(), "{outcome:?}");
        assert_eq!(outcome.errors.lines().count(), 1, "{}", outcome.errors);
        assert!(outcome.errors.contains(&gone.address.to_string()), "{}", outcome.errors);
    }
}

#[test]
fn server_that_turns_connections_away_is_named() {
    let server = Memcached::start(&["-c", "20", "-o", "maxconns_fast"]);
    let flags = format!("--clients 60 --seconds 1 --start-at {}", unix_s() + 20);
    let outcome = run(&[&server], &flags);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.errors.contains(&server.address.to_string()), "{}", outcome.errors);
}

#[test]
fn wrong_flags_are_refused_before_connecting() {
    let server = Memcached::start(&[]);
    let rows = [
        "",
        "--seconds 0",
        "--seconds 1 --set-get 0:0",
        "--seconds 1 --clients 0",
        "--seconds 1 --rate 5 --think-ms 5",
        "--seconds 1 --arrivals poisson",
        "--seconds 1 --key-choice zipf:-1",
        "--seconds 1 --keys 0",
        "--seconds 1 --value-bytes 9999999",
        "--seconds 1 --multiget 0",
        "--populate 1.1",
        "--populate 1 --seconds 1",
    ];
    let before = server.stats()["total_connections"];
    for flags in rows {
        let outcome = run(&[&server], flags);
        assert_eq!(outcome.code, Some(2), "{flags}: {outcome:?}");
        assert!(!outcome.errors.is_empty());
    }
    // Asking for the statistics opened the only further connection.
    assert_eq!(server.stats()["total_connections"], before + 1);
}
