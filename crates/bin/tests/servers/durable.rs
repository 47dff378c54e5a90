//! `knee-kv` in a directory: shutdowns, kills, full disks, and a second process.

pub(crate) mod directory;
mod full_disk;
mod killed;

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::limits::{limit_files, with_limits};
use crate::program::{KV, Program, refused, talk, wait};
use directory::Directory;

/// The memcached answer to a write when the log is full.
const FULL: &str = "SERVER_ERROR out of memory storing object\r\n";
const DISK_FULL: &str = "SERVER_ERROR out of memory storing object: the disk takes no more\r\n";

fn ask(client: &mut TcpStream, request: &str) -> String {
    let answer = talk(client, format!("{request}mn\r\n").as_bytes(), b"MN\r\n");
    String::from_utf8(answer).unwrap().strip_suffix("MN\r\n").unwrap().to_owned()
}

/// Kills a program, as a crash would.
fn kill(program: Program) {
    program.signal(libc::SIGKILL);
    program.end();
}

#[test]
fn report_has_figures_of_versions_and_commits() {
    let directory = Directory::new();
    let program = directory.serve(&["--admin", "127.0.0.1:0"]);
    let mut client = program.connect();
    for value in 0..10 {
        let request = format!("set a 0 0 1\r\n{value}\r\nset b{value} 0 0 1\r\nx\r\n");
        assert_eq!(ask(&mut client, &request), "STORED\r\nSTORED\r\n");
    }
    assert_eq!(ask(&mut client, "delete b0\r\n"), "DELETED\r\n");
    program.wait_for_metric("knee_keys{role=\"store\"} 10");
    program.wait_for_metric("knee_commit_records_total{role=\"store\"} 21");
    program.signal(libc::SIGTERM);
    let lines = program.end().lines;
    let summary = lines.last().unwrap();
    let of = |line: &serde_json::Value, name: &str| line[name].as_u64().unwrap();
    assert_eq!((of(summary, "keys"), of(summary, "versions")), (10, 21));
    assert_eq!(of(summary, "commit_records"), 21);
    let (commits, sum, max) =
        (of(summary, "commits"), of(summary, "commit_sum_ns"), of(summary, "commit_max_ns"));
    // Each batch of requests waits for its own commit.
    assert!((11..=21).contains(&commits), "{commits}");
    assert!(max <= sum && sum <= commits * max, "{summary}");
    // A request's service time includes the wait for its commit.
    let served = of(&summary["ops"]["set"], "service_sum_ns")
        + of(&summary["ops"]["delete"], "service_sum_ns");
    assert!(served >= sum, "{served} ns of service, {sum} ns of commits");
    let windows: Vec<_> = lines.iter().filter(|line| line["type"] == "window").collect();
    for name in ["commits", "commit_sum_ns", "commit_records", "reclaims"] {
        let sum: u64 = windows.iter().map(|line| of(line, name)).sum();
        assert_eq!(sum, of(summary, name), "the windows add up to the summary: {name}");
    }
    assert_eq!(windows.iter().map(|line| of(line, "commit_max_ns")).max(), Some(max));
    assert!(of(summary, "file_live_bytes") < of(summary, "file_bytes"));
}

#[test]
fn writes_are_there_after_a_restart() {
    outlives_restarts([
        &[],
        &["--threads", "2"],
        &["--durability", "always", "--consistency", "linearizable"],
    ]);
    outlives_restarts([
        &["--consistency", "sequential"],
        &["--consistency", "sequential", "--threads", "3"],
        &["--consistency", "sequential", "--durability", "interval:10"],
    ]);
}

fn outlives_restarts(flags: [&[&str]; 3]) {
    let directory = Directory::new();
    let mut expected = String::new();
    for (round, flags) in flags.into_iter().enumerate() {
        let program = directory.serve(flags);
        let mut client = program.connect();
        let keys: String = (0..round).map(|number| format!(" k{number}")).collect();
        if round > 0 {
            assert_eq!(
                ask(&mut client, &format!("get{keys} gone\r\n")),
                format!("{expected}END\r\n")
            );
        }
        let set = format!("set k{round} 7 0 3\r\nabc\r\nappend k{round} 0 0 1\r\nd\r\n");
        assert_eq!(ask(&mut client, &set), "STORED\r\nSTORED\r\n");
        assert_eq!(
            ask(&mut client, "set gone 0 0 1\r\nx\r\ndelete gone\r\n"),
            "STORED\r\nDELETED\r\n"
        );
        expected += &format!("VALUE k{round} 7 4\r\nabcd\r\n");
        program.signal(libc::SIGTERM);
        assert_eq!(program.end().code, Some(0));
    }
}

/// `knee-kv load` has a higher default limit than `knee-kv`, so a loaded log may exceed the server's limit.
#[test]
fn log_beyond_its_limit_is_reported_at_the_start() {
    let directory = Directory::new();
    let quick = ["--durability", "none", "--memory-mb"];
    let program = directory.serve(&[&quick[..], &["64"]].concat());
    let mut client = program.connect();
    let value = "x".repeat(1 << 20);
    for number in 0..20 {
        let set = format!("set k{number} 0 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(ask(&mut client, &set), "STORED\r\n");
    }
    program.signal(libc::SIGTERM);
    assert_eq!(program.end().errors, "");
    let program = directory.serve(&[&quick[..], &["8"]].concat());
    assert_eq!(ask(&mut program.connect(), "set k 0 0 1\r\nx\r\n"), FULL);
    program.signal(libc::SIGTERM);
    let errors = program.end().errors;
    let start = format!("knee-kv: the log in {} takes ", directory.path());
    assert!(errors.starts_with(&start), "{errors}");
    let end = " MiB, more than --memory-mb 8: writes are refused until it takes less; raise \
               --memory-mb, or delete\n";
    assert!(errors.ends_with(end), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn second_process_on_a_directory_is_refused() {
    let directory = Directory::new();
    let program = directory.serve(&[]);
    let expected = format!(
        "knee-kv: cannot open --data {}: another store has it open; end that one, or name another \
         directory\n",
        directory.path()
    );
    assert_eq!(directory.refusal(&[]), expected);
    assert_eq!(ask(&mut program.connect(), "set k 0 0 1\r\nx\r\n"), "STORED\r\n");
}

#[test]
fn repair_lists_a_damaged_key_and_serves_no_older_value() {
    let directory = Directory::new();
    let program = directory.serve(&[]);
    let mut client = program.connect();
    for (key, value) in [("k0", "value"), ("k1", "older"), ("k1", "value"), ("k2", "value")] {
        ask(&mut client, &format!("set {key} 0 0 5\r\n{value}\r\n"));
    }
    program.signal(libc::SIGTERM);
    assert_eq!(program.end().errors, "");
    let segment = directory.segments().remove(0);
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(7).position(|window| window == b"k1value").unwrap();
    bytes[at + 4] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let message = directory.refusal(&[]);
    let start = format!(
        "knee-kv: cannot open --data {}: the bytes are not those that were written",
        segment.display()
    );
    assert!(message.starts_with(&start), "{message}");
    let remedy = "; --repair=dry-run lists what is lost, --repair opens the store without it\n";
    assert!(message.ends_with(remedy), "{message}");
    let expected = format!(
        "knee-kv: repair: {}: 56 bytes from 4208 on are lost\n",
        segment.display()
    ) + "knee-kv: repair: \"k1\" is absent: versions from 3 on are lost or uncertain; version 2 is certain\n"
        + "knee-kv: repair: 1 key is absent, because its newest version may be lost; put it again, or read its certain \
           versions while --history-s keeps them";
    let dry = Command::new(KV)
        .args(["--listen", "127.0.0.1:0", "--repair=dry-run", "--data", directory.path()])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(dry.stderr).unwrap(), expected.clone() + "\n");
    assert_eq!((dry.status.code(), dry.stdout.len()), (Some(0), 0));
    let program = directory.serve(&["--repair"]);
    let found = ask(&mut program.connect(), "get k0 k1 k2\r\n");
    assert_eq!(found, "VALUE k0 0 5\r\nvalue\r\nVALUE k2 0 5\r\nvalue\r\nEND\r\n");
    program.signal(libc::SIGTERM);
    let end = program.end();
    let list = format!("{expected}; {}/REPAIR-", directory.path());
    assert!(end.errors.starts_with(&list), "{}", end.errors);
    assert_eq!(end.code, Some(0));
}

#[test]
fn unusable_directory_is_refused_with_the_reason() {
    let file = Directory::new();
    std::fs::write(&file.0, "a file").unwrap();
    let message = file.refusal(&[]);
    let start = format!("knee-kv: cannot open --data {}: ", file.path());
    assert!(message.starts_with(&start), "{message}");
    assert!(message.ends_with("give a directory, or a path that does not exist yet\n"));
    std::fs::remove_file(&file.0).unwrap();
    // Even root cannot make a directory there.
    let message = refused(KV, &["--listen", "127.0.0.1:0", "--data", "/proc/none"]).stderr;
    let message = String::from_utf8(message).unwrap();
    assert!(message.starts_with("knee-kv: cannot open --data /proc/none: "), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn directory_of_another_consistency_is_refused() {
    let directory = Directory::new();
    kill(directory.serve(&[]));
    let message = directory.refusal(&["--consistency", "sequential"]);
    let expected = format!(
        "knee-kv: cannot open --data {}: made with linearizable consistency; \
         sequential was requested; use the flags that made the directory, or name another one\n",
        directory.path()
    );
    assert_eq!(message, expected);
}

#[test]
fn damaged_manifest_is_mended_from_the_other_copy_or_rebuilt() {
    let directory = Directory::new();
    let sequential = ["--consistency", "sequential"];
    let program = directory.serve(&sequential);
    assert_eq!(ask(&mut program.connect(), "set k 0 0 1\r\nx\r\n"), "STORED\r\n");
    kill(program);
    let copies = ["MANIFEST", "MANIFEST.copy"].map(|name| directory.0.join(name));
    let [one, other] = copies.each_ref().map(|copy| copy.display());
    let errors = |flags: &[&str]| {
        let program = directory.serve(&[&sequential, flags].concat());
        let found = ask(&mut program.connect(), "get k\r\n");
        assert_eq!(found, "VALUE k 0 1\r\nx\r\nEND\r\n");
        program.signal(libc::SIGTERM);
        program.end().errors
    };
    for copy in &copies {
        std::fs::write(copy, "{}").unwrap();
        let expected =
            format!("knee-kv: {}: wrong checksum; mended from the other copy\n", copy.display());
        assert_eq!(errors(&[]), expected);
        assert_eq!(errors(&[]), "");
    }
    copies.iter().for_each(|copy| std::fs::write(copy, "{}").unwrap());
    let expected = format!(
        "knee-kv: cannot open --data {one}: wrong checksum; its copy: wrong checksum; --repair rebuilds \
         both from the segments, without old versions\n"
    );
    assert_eq!(directory.refusal(&sequential), expected);
    // The segments know their consistency.
    let refused = directory.refusal(&["--consistency", "linearizable", "--repair"]);
    assert!(refused.contains("made with sequential consistency"), "{refused}");
    let mended = "wrong checksum; rebuilt from the segments";
    let expected = format!("knee-kv: {one}: {mended}\nknee-kv: {other}: {mended}\n");
    assert_eq!(errors(&["--repair"]), expected);
    assert_eq!(errors(&[]), "");
}

/// Sets values of 20 kB until the server refuses one. Returns the number of stored values, and the refusal.
fn fill(client: &mut TcpStream) -> (usize, String) {
    let value = "v".repeat(20_000);
    for number in 0.. {
        let answer = ask(client, &format!("set fill{number} 0 0 20000\r\n{value}\r\n"));
        if answer != "STORED\r\n" {
            return (number, answer);
        }
        assert!(number < 10_000, "it takes more than 200 MB");
    }
    unreachable!("it ends with a refusal")
}

fn expect_filled(client: &mut TcpStream, count: usize) {
    for number in 0..count {
        let answer = ask(client, &format!("get fill{number}\r\n"));
        assert!(
            answer.starts_with(&format!("VALUE fill{number} 0 20000\r\nvvv")),
            "fill{number} is gone"
        );
    }
}

#[test]
fn full_log_refuses_writes_and_loses_nothing() {
    let directory = Directory::new();
    let flags = ["--memory-mb", "8", "--value-bytes-max", "30000"];
    let program = directory.serve(&flags);
    let mut client = program.connect();
    let (count, refusal) = fill(&mut client);
    assert_eq!(refusal, FULL);
    // At least three quarters of the limit were usable.
    assert!(count * 20_000 > 6 << 20, "{count}");
    // A refused change leaves the old value.
    let value = "w".repeat(20_000);
    assert_eq!(ask(&mut client, &format!("set fill0 0 0 20000\r\n{value}\r\n")), FULL);
    assert_eq!(ask(&mut client, &format!("ms fill0 20000\r\n{value}\r\n")), FULL);
    for request in ["touch fill1 100\r\n", "gat 100 fill1\r\n", "mg fill1 v T100\r\n"] {
        assert_eq!(ask(&mut client, request), FULL, "{request}");
    }
    expect_filled(&mut client, count);
    kill(program);
    expect_filled(&mut directory.serve(&flags).connect(), count);
}

fn serve_with_limits(directory: &Directory, flags: &[&str]) -> Program {
    Program::spawn(with_limits(&mut directory.command(flags)))
}

#[test]
fn disk_without_room_refuses_writes_until_there_is_some() {
    let directory = Directory::new();
    let mut program = serve_with_limits(&directory, &["--memory-mb", "64"]);
    let mut client = program.connect();
    // The limit allows the reserved segments, but no new one: 2 MiB plus its head exceed it.
    limit_files(program.pid(), 2 << 20);
    let (count, refusal) = fill(&mut client);
    assert_eq!(refusal, DISK_FULL);
    expect_filled(&mut client, count);
    let message = program.next_error();
    let expected = "knee-kv: no room for another segment of the log: File too large (os error 27);";
    assert!(message.starts_with(expected), "{message}");
    limit_files(program.pid(), libc::RLIM_INFINITY);
    assert_eq!(ask(&mut client, "set more 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(program.next_error(), "knee-kv: the log has room again");
    kill(program);
    let program = directory.serve(&["--memory-mb", "64"]);
    let mut client = program.connect();
    expect_filled(&mut client, count);
    assert_eq!(ask(&mut client, "get more\r\n"), "VALUE more 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn write_that_cannot_be_logged_is_not_answered_and_ends_the_program() {
    for (threads, durability) in
        [("1", "always"), ("2", "always"), ("1", "interval:600000"), ("2", "none")]
    {
        let directory = Directory::new();
        let flags = ["--threads", threads, "--durability", durability];
        let program = serve_with_limits(&directory, &flags);
        let (mut one, mut two) = (program.connect(), program.connect());
        assert_eq!(ask(&mut one, "set safe 0 0 1\r\nx\r\n"), "STORED\r\n");
        // With this limit, every write fails. The request fits the current segment, so creating a segment cannot fail
        // first.
        limit_files(program.pid(), 4096);
        two.write_all(b"get safe\r\nset unsafe 0 0 1\r\nx\r\nget unsafe\r\n").unwrap();
        let mut answer = Vec::new();
        // The connection may be closed or reset.
        let _ = two.read_to_end(&mut answer);
        assert_eq!(answer, b"", "{}", answer.escape_ascii());
        let end = program.end();
        assert_eq!(end.code, Some(1));
        assert!(
            end.errors.starts_with("knee-kv: the log cannot be written: File too large"),
            "{}",
            end.errors
        );
        let found = ask(&mut directory.serve(&[]).connect(), "get safe unsafe\r\n");
        assert_eq!(found, "VALUE safe 0 1\r\nx\r\nEND\r\n");
    }
}

#[test]
fn load_that_cannot_be_written_is_reported() {
    for durability in ["none", "interval:600000"] {
        let directory = Directory::new();
        let list = directory.0.with_extension("list");
        let path = CString::new(list.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path ends with a zero and outlives the call.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        let mut command = Command::new(KV);
        command.args(["load", "--data", directory.path(), "--durability", durability]);
        let mut load = with_limits(command.arg(&list).stderr(Stdio::piped())).spawn().unwrap();
        // The load reads the list after it opened its store.
        let writer = || File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&list);
        let mut edges = loop {
            if let Ok(edges) = writer() {
                break edges;
            }
            assert_eq!(load.try_wait().unwrap(), None);
            std::thread::sleep(Duration::from_millis(5));
        };
        // The load has made its segments before it reads the list.
        limit_files(load.id(), 4096);
        edges.write_all(b"1\t2\n").unwrap();
        drop(edges);
        let code = wait(&mut load);
        let mut errors = String::new();
        load.stderr.unwrap().read_to_string(&mut errors).unwrap();
        std::fs::remove_file(&list).unwrap();
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.ends_with(": File too large (os error 27)\n"), "{errors}");
    }
}
