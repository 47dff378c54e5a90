//! `knee-kv` as a process: its output, start and end.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::program::{End, KV, Program, refused, talk};

#[test]
fn sigterm_ends_it_with_a_summary_of_its_answers() {
    let program = Program::serve(KV, &[]);
    assert_eq!(program.ready["role"], "store");
    assert_eq!(program.ready["pid"], program.pid());
    let mut client = program.connect();
    talk(&mut client, b"set k 0 0 3\r\nabc\r\nset l 0 -1 1\r\nx\r\n", b"STORED\r\nSTORED\r\n");
    talk(&mut client, b"get k\r\nget k l m\r\nget l\r\nnonsense\r\ndelete k\r\n", b"DELETED\r\n");
    program.signal(libc::SIGTERM);
    let End { code, lines, .. } = program.end();
    assert_eq!(code, Some(0));
    let summary = lines.last().unwrap();
    assert_eq!(summary["type"], "summary");
    let ops = &summary["ops"];
    let rows = [
        ("set", "count", 2),
        ("set", "items", 2),
        ("set", "bytes_in", 35),
        ("set", "bytes_out", 16),
        ("get", "count", 2),
        ("get", "hits", 1),
        ("get", "misses", 1),
        ("get", "bytes_in", 14),
        ("get", "bytes_out", 28),
        ("multiget", "count", 1),
        ("multiget", "items", 3),
        ("multiget", "hits", 1),
        ("multiget", "misses", 2),
        ("delete", "count", 1),
        ("delete", "hits", 1),
        ("other", "count", 1),
        ("other", "errors", 1),
    ];
    for (op, field, expected) in rows {
        assert_eq!(ops[op][field], expected, "{op}.{field}");
    }
    assert!(ops["get"]["service_sum_ns"].as_u64().unwrap() > 0);
    assert_eq!(summary["expired"], 1);
    let windows = lines.iter().filter(|line| line["type"] == "window");
    let counted: u64 = windows.filter_map(|line| line["ops"]["set"]["count"].as_u64()).sum();
    assert_eq!(counted, 2, "the windows add up to the summary");
}

#[test]
fn sigint_ends_it_and_stats_none_prints_nothing() {
    let program = Program::serve(KV, &["--stats", "none", "--threads", "2"]);
    talk(&mut program.connect(), b"get k\r\n", b"END\r\n");
    program.signal(libc::SIGINT);
    let end = End { code: Some(0), lines: vec![], errors: String::new() };
    assert_eq!(program.end(), end);
}

#[test]
fn trace_that_is_not_read_delays_no_request() {
    let program = Program::serve(KV, &["--trace"]);
    let mut client = program.connect();
    // The output exceeds a pipe, and nothing reads it.
    for _ in 0..2000 {
        talk(&mut client, b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    }
    program.signal(libc::SIGTERM);
    let End { code, errors, .. } = program.end();
    assert_eq!(code, Some(0));
    assert!(errors.lines().count() > 100, "{errors}");
    let lines = errors.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    for line in lines {
        let rest = line.strip_prefix("knee-kv: trace set \"set k 0 0 1\" received=").expect(line);
        assert!(rest.contains(" bytes_in=16 bytes_out=8 status=STORED total="), "{line}");
    }
}

#[test]
fn http_requests_are_hung_up_on_and_counted() {
    let program = Program::serve(KV, &["--admin", "127.0.0.1:0"]);
    let methods = ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];
    for method in methods {
        let mut client = program.connect();
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\nset http 0 0 1\r\nx\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The store resets the connection if bytes of the request are unread.
        let _ = client.read_to_end(&mut answer);
        assert_eq!(answer, b"", "{method}");
    }
    talk(&mut program.connect(), b"get http\r\n", b"END\r\n");
    program
        .wait_for_metric(&format!("knee_http_requests_total{{role=\"store\"}} {}", methods.len()));
}

#[test]
fn address_in_use_is_refused_by_name() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = refused(KV, &["--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with(&format!("knee-kv: cannot listen on {address}: ")), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn unusable_directory_is_refused_before_the_store_opens() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (flag, directory, why) in [
        ("--init-dir", "/nowhere/lists", "No such file or directory (os error 2)"),
        ("--backup-dir", file, "Not a directory (os error 20)"),
    ] {
        let flags = ["--grpc", "--data", "/proc/none", flag, directory];
        let output = refused(KV, &flags);
        assert_eq!(output.status.code(), Some(1));
        let remedy = "name a directory that this user can read";
        let expected = format!("knee-kv: cannot read {flag} {directory}: {why}; {remedy}\n");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    }
}

#[test]
fn unfinished_copy_is_removed_with_a_message() {
    let copies = std::env::temp_dir().join(format!("knee-kv-copies-{}", std::process::id()));
    let unfinished = copies.join(".copy.partial");
    std::fs::create_dir_all(&unfinished).unwrap();
    let flags = ["--grpc", "127.0.0.1:0", "--backup-dir", copies.to_str().unwrap()];
    let mut program = Program::serve(KV, &flags);
    let expected = format!("knee-kv: removed {}: an unfinished copy", unfinished.display());
    assert_eq!(program.next_error(), expected);
    std::fs::remove_dir(&copies).expect("nothing else is there");
}

#[test]
fn wrong_flag_exits_with_2_and_the_reason() {
    let small = ["--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--grpc-memory-mb", "8"];
    let rows: [(&[&str], &str); 19] = [
        (
            &small,
            "--grpc-memory-mb 8 is too little for values of --value-bytes-max 1048576: it takes",
        ),
        (&["--grpc-memory-mb", "8"], "--grpc"),
        (&["--grpc-connections-max", "8"], "--grpc"),
        (&["--grpc", "--backups-max", "1"], "--backup-dir"),
        (&["--memory-mb", "1"], "--memory-mb 1 is too little"),
        (&["--threads", "0"], "--threads"),
        (&["--listen", "nowhere"], "an IP address and a port, as in 127.0.0.1:3264"),
        (&["--stats", "csv"], "--stats"),
        (&["--idle-timeout-s", "9999999999999999999"], "--idle-timeout-s"),
        (&["--data", "/nowhere", "--memory-mb", "5"], "--memory-mb 5 is too little for a log"),
        (
            &["--data", "/nowhere", "--durability", "often"],
            "not one of always, none and interval:MS",
        ),
        (&["--data", "/nowhere", "--durability", "interval:0"], "\"0\" is not a number"),
        (&["--durability", "none"], "--data"),
        (&["--repair"], "--data"),
        (&["--dally-us", "100"], "--data"),
        (
            &["--data", "/nowhere", "--durability", "none", "--dally-us", "100"],
            "they need --durability always",
        ),
        (&["--data", "/nowhere", "--batch-max", "0"], "--batch-max"),
        (&["--init-dir", "/tmp"], "--grpc"),
        (&["--nonsense"], "--nonsense"),
    ];
    for (flags, expected) in rows {
        let output = refused(KV, flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(expected), "{flags:?}: {message}");
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
}
