//! `knee-proxy` as a process: its flags, output and end.

use std::io::Read;

use crate::program::{End, KV, PROXY, Program, refused, talk};

/// A middleware with two worker slots in front of a store.
fn proxy(store: &Program, flags: &[&str]) -> Program {
    // So few connections that the proxy reports no limit of open files.
    let given = ["--server", store.address(), "--workers", "2", "--connections-max", "100"];
    let flags = [&given, flags].concat();
    Program::serve(PROXY, &flags)
}

#[test]
fn sigterm_ends_it_with_a_summary_despite_clients() {
    let stores = [Program::serve(KV, &[]), Program::serve(KV, &[])];
    let proxy = proxy(&stores[0], &["--server", stores[1].address()]);
    assert_eq!(proxy.ready["role"], "middleware");
    assert_eq!(proxy.ready["pid"], proxy.pid());
    let _idle = proxy.connect();
    let mut client = proxy.connect();
    talk(&mut client, b"set k 0 0 3\r\nabc\r\nget k\r\nget k l\r\n", b"END\r\n");
    proxy.signal(libc::SIGTERM);
    let End { code, lines, errors } = proxy.end();
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let summary = lines.last().unwrap();
    assert_eq!(summary["type"], "summary");
    let rows = [
        ("set", "count", 1),
        ("set", "bytes_in", 18),
        ("set", "bytes_out", 8),
        ("get", "hits", 1),
        ("multiget", "items", 2),
        ("multiget", "hits", 1),
        ("multiget", "misses", 1),
    ];
    for (op, field, expected) in rows {
        assert_eq!(summary["ops"][op][field], expected, "{op}.{field}");
    }
    let servers = summary["servers"].as_array().unwrap();
    let requests: u64 = servers.iter().map(|server| server["requests"].as_u64().unwrap()).sum();
    assert_eq!(requests, 4, "one set to both, two gets to one each");
    // A set of 18 bytes to both with its answer, and a get of either kind with its answer.
    let bytes: u64 = servers.iter().map(|server| server["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, 2 * (18 + 8) + (7 + 23) + (9 + 23));
    let windows = lines.iter().filter(|line| line["type"] == "window");
    let counted = windows.map(|line| line["servers"][0]["bytes"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(servers[0]["bytes"], counted);
    for (server, store) in servers.iter().zip(&stores) {
        assert_eq!(server["address"], store.address());
        assert_eq!(server["errors"], 0);
        assert_eq!(server["ejected"], 0);
    }
}

#[test]
fn silent_client_is_disconnected() {
    let store = Program::serve(KV, &[]);
    let proxy = proxy(&store, &["--idle-timeout-s", "0.2"]);
    let mut silent = proxy.connect();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn exit_idle_ends_it_without_requests() {
    let store = Program::serve(KV, &[]);
    let proxy = proxy(&store, &["--exit-idle-s", "0.2"]);
    talk(&mut proxy.connect(), b"get k\r\n", b"END\r\n");
    let End { code, lines, .. } = proxy.end();
    assert_eq!(code, Some(0));
    assert_eq!(lines.last().unwrap()["ops"]["get"]["count"], 1);
}

#[test]
fn meta_set_with_s_shows_the_length_over_replicas() {
    let stores = [Program::serve(KV, &[]), Program::serve(KV, &[])];
    let proxy = proxy(&stores[0], &["--server", stores[1].address()]);
    let mut client = proxy.connect();
    talk(&mut client, b"ms k 3 s Oa\r\nabc\r\n", b"HD s3 Oa\r\n");
    talk(&mut client, b"ms k 2 MA s\r\nde\r\n", b"HD s5\r\n");
    // The proxy itself refuses the token.
    talk(&mut client, b"ms k 1 C1 s\r\nx\r\n", b"EX s1\r\n");
}

#[test]
fn admin_address_serves_prometheus() {
    let store = Program::serve(KV, &[]);
    let proxy = proxy(&store, &["--admin", "127.0.0.1:0"]);
    talk(&mut proxy.connect(), b"get k\r\n", b"END\r\n");
    let server = format!("role=\"middleware\",server=\"{}\"", store.address());
    proxy.wait_for_metric("knee_requests_total{role=\"middleware\",op=\"get\"} 1");
    proxy.wait_for_metric(&format!("knee_server_requests_total{{{server}}} 1"));
    proxy.wait_for_metric(&format!("knee_server_up{{{server}}} 1"));
}

#[test]
fn trace_prints_each_request() {
    let store = Program::serve(KV, &[]);
    for (flags, lines) in [(&["--trace"][..], 2), (&[], 0)] {
        let proxy = proxy(&store, flags);
        talk(&mut proxy.connect(), b"set k 0 0 1\r\nx\r\nget k\r\n", b"END\r\n");
        proxy.signal(libc::SIGTERM);
        let errors = proxy.end().errors;
        assert_eq!(errors.lines().count(), lines, "{errors}");
        if lines > 0 {
            let server = store.address();
            for (line, request) in errors.lines().zip(["set \"set k 0 0 1\"", "get \"get k\""]) {
                let begin = format!("knee-proxy: trace {request} servers={server} queued=");
                assert!(line.starts_with(&begin), "{line}");
            }
        }
    }
}

#[test]
fn trace_prints_a_request_that_is_refused_at_once() {
    let store = Program::serve(KV, &[]);
    let proxy = proxy(&store, &["--trace", "--admin", "127.0.0.1:0"]);
    let server = format!("role=\"middleware\",server=\"{}\"", store.address());
    store.signal(libc::SIGKILL);
    proxy.wait_for_metric(&format!("knee_server_up{{{server}}} 0"));
    talk(&mut proxy.connect(), b"get k\r\n", b"\r\n");
    proxy.signal(libc::SIGTERM);
    let errors = proxy.end().errors;
    assert!(errors.contains("knee-proxy: trace get \"get k\" servers= "), "{errors}");
}

#[test]
fn stopped_server_is_probed_ejected_and_reported() {
    let stores = [Program::serve(KV, &[]), Program::serve(KV, &[]), Program::serve(KV, &[])];
    let more = ["--server", stores[1].address(), stores[2].address()];
    let flags = [&more[..], &["--admin", "127.0.0.1:0"]].concat();
    let proxy = proxy(&stores[0], &flags);
    let server = format!("role=\"middleware\",server=\"{}\"", stores[1].address());
    let mut client = proxy.connect();
    stores[1].signal(libc::SIGSTOP);
    // A read of each server, and a write.
    talk(&mut client, &b"get k\r\n".repeat(3), &b"END\r\n".repeat(3));
    talk(&mut client, b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    proxy.wait_for_metric(&format!("knee_server_ejections_total{{{server}}} 1"));
    proxy.wait_for_metric(&format!("knee_server_up{{{server}}} 0"));
    for counter in ["probes", "retries"] {
        let none = format!("knee_server_{counter}_total{{{server}}} 0\n");
        assert!(!proxy.metrics().contains(&none), "{none}");
    }
    stores[1].signal(libc::SIGCONT);
    proxy.wait_for_metric(&format!("knee_server_up{{{server}}} 1"));
    proxy.signal(libc::SIGTERM);
    let errors = proxy.end().errors;
    let name = format!("knee-proxy: server {}", stores[1].address());
    for line in [
        "is out: no answer within 1000 ms; it returns once it answers again",
        "is in again; missed keys deleted there: 1",
    ] {
        assert!(errors.contains(&format!("{name} {line}\n")), "{errors}");
    }
}

#[test]
fn wrong_flag_exits_with_2_and_the_reason() {
    let rows: [(&[&str], &str); 8] = [
        (&["--workers", "2"], "--server"),
        (&["--server", "127.0.0.1:1"], "--workers"),
        (&["--server", "127.0.0.1:1", "--workers", "2", "--pipelined"], "--pipelined"),
        (&["--server", "nowhere", "--pipelined"], "--server nowhere"),
        (&["--server", "127.0.0.1:1", "127.0.0.1:1", "--pipelined"], "is the same server"),
        (&["--server", "127.0.0.1:1", "--pipelined", "--listen", "nowhere"], "--listen"),
        (&["--server", "127.0.0.1:1", "--pipelined", "--exit-idle-s", "0"], "--exit-idle-s"),
        (&["--server", "127.0.0.1:1", "--pipelined", "--idle-timeout-s", "1e18"], "1000000000"),
    ];
    for (flags, expected) in rows {
        let output = refused(PROXY, flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(expected), "{flags:?}: {message}");
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
}
