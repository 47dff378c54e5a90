//! `knee-space store`.

use std::io::Write;
use std::process::Command as Process;

use knee_nbd::{Command, EINVAL, ENOSPC};
use knee_testkit::free_address;

use super::client::Client;
use super::files::{Image, random};
use crate::program::{End, Program, SPACE, connect, refused};

const MIB: usize = 1 << 20;

/// A storage machine on a leased port.
pub(super) fn store(bytes: usize, flags: &[&str]) -> Program {
    store_at(&free_address(), bytes, flags)
}

pub(super) fn store_at(address: &str, bytes: usize, flags: &[&str]) -> Program {
    let given = ["store", "--listen", address, "--bytes", &bytes.to_string()];
    Program::start(SPACE, &[&given, flags].concat())
}

/// Runs one of libnbd's programs to its good end.
pub(super) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Process::new(program).args(arguments).output().unwrap_or_else(|error| {
        panic!("these tests need {program}: apt-get install libnbd-bin ({error})")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn uri(program: &Program) -> String {
    format!("nbd://{}", program.address())
}

/// Memory of a process, in bytes. The figure in `status` lags behind by some pages of each thread.
pub(super) fn resident(program: &Program) -> usize {
    let sums = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", program.pid())).unwrap();
    let line = sums.lines().find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn nbdinfo_shows_what_it_offers() {
    let store = store(5 * MIB, &[]);
    let shown = run("nbdinfo", &["--json", &uri(&store)]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let export = &shown["exports"][0];
    assert_eq!(export["export-size"], 5 * MIB);
    assert_eq!(export["block_size_maximum"], 32 * MIB);
    for (field, expected) in [
        ("is_read_only", false),
        ("can_flush", true),
        ("can_fua", true),
        ("can_multi_conn", true),
        ("can_trim", true),
        ("can_zero", true),
    ] {
        assert_eq!(export[field], expected, "{field}");
    }
    let listed = run("nbdinfo", &["--list", "--json", &uri(&store)]);
    assert_eq!(listed.matches("\"export-name\": \"\"").count(), 1, "{listed}");
    let named = format!("{}/other", uri(&store));
    assert!(!Process::new("nbdinfo").arg(named).output().unwrap().status.success());
}

#[test]
fn nbdcopy_returns_what_it_stored() {
    let store = store(8 * MIB, &[]);
    let (source, copy) = (Image::random(8 * MIB), Image::absent());
    let paths = [source.path(), copy.path()].map(|path| path.to_str().unwrap());
    run("nbdcopy", &["--request-size=65536", "--connections=4", paths[0], &uri(&store)]);
    run("nbdcopy", &[&uri(&store), paths[1]]);
    assert!(source.content() == copy.content());
    store.signal(libc::SIGTERM);
    let end = store.end();
    let summary = end.summary();
    assert_eq!(summary["ops"]["write"]["count"], 8 * MIB / 65536);
    assert_eq!(summary["ops"]["write"]["errors"], 0);
    assert!(summary["ops"]["read"]["bytes_out"].as_u64().unwrap() > 8 << 20);
}

#[test]
fn trim_gives_memory_back_and_leaves_zeroes() {
    let store = store(64 * MIB, &[]);
    let mut client = Client::connect(store.address());
    let data = random(MIB);
    for at in 0..64 {
        client.write(at << 20, &data).unwrap();
    }
    let full = resident(&store);
    client.ask(Command::Trim, 100, 64 << 20).unwrap_err();
    client.ask(Command::Trim, 100, (64 << 20) - 200).unwrap();
    let trimmed = resident(&store);
    assert!(full - trimmed > 63 * MIB, "{full} bytes, then {trimmed}");
    assert_eq!(client.read(0, 100).unwrap(), data[..100]);
    assert_eq!(client.read((64 << 20) - 100, 100).unwrap(), data[MIB - 100..]);
    assert_eq!(client.read(100, 1 << 20).unwrap(), vec![0; MIB]);
}

#[test]
fn request_beyond_the_end_is_refused_and_the_connection_lives() {
    let store = store(MIB, &[]);
    let mut client = Client::connect(store.address());
    assert_eq!(client.offer.bytes, 1 << 20);
    assert_eq!(client.write((1 << 20) - 1, &[1, 2]), Err(ENOSPC));
    assert_eq!(client.read((1 << 20) - 1, 2), Err(EINVAL));
    assert_eq!(client.read(0, (32 << 20) + 1), Err(EINVAL));
    assert_eq!(client.ask(Command::Other(77), 0, 1), Err(EINVAL));
    assert_eq!(client.ask(Command::Flush, 0, 0), Ok(()));
    assert_eq!(client.read((1 << 20) - 1, 1), Ok(vec![0]));
}

#[test]
fn client_that_dies_in_a_write_leaves_whole_blocks() {
    let store = store(MIB, &[]);
    let mut client = Client::connect(store.address());
    client.send(Command::Write, 1000, 100_000, &vec![7; 10_000]);
    // The store has taken the data before it answers another client.
    let mut other = Client::connect(store.address());
    let data = knee_testkit::eventually("two blocks are there", || {
        let data = other.read(0, 20_000).unwrap();
        (data[8191] == 7).then_some(data)
    });
    drop(client);
    assert!(data[..1000].iter().all(|byte| *byte == 0));
    assert!(data[1000..8192].iter().all(|byte| *byte == 7));
    assert!(other.read(8192, 90_000).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn stranger_is_hung_up_on() {
    let store = store(MIB, &[]);
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0, 0, 3, 7, 7, 7, 7, 7, 7, 7, 7]] {
        let mut stranger = connect(store.address());
        stranger.write_all(words).unwrap();
        // The store resets the connection if bytes are unread.
        let _ = std::io::copy(&mut stranger, &mut std::io::sink());
    }
    assert_eq!(Client::connect(store.address()).read(0, 1), Ok(vec![0]));
}

#[test]
fn wrong_flag_exits_with_2_and_the_reason() {
    let rows: [(&[&str], &str); 4] = [
        (&["store"], "--bytes"),
        (&["store", "--bytes", "0"], "from 1 byte"),
        (&["store", "--bytes", "1g"], "as in 4G"),
        (&["store", "--bytes", "1G", "--listen", "nowhere"], "--listen"),
    ];
    for (flags, expected) in rows {
        let output = refused(SPACE, flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(expected), "{flags:?}: {message}");
    }
}

#[test]
fn trace_prints_each_request() {
    let store = store(MIB, &["--trace", "--stats", "none"]);
    let mut client = Client::connect(store.address());
    client.write(5, &[1]).unwrap();
    client.read(MIB as u64, 1).unwrap_err();
    store.signal(libc::SIGTERM);
    let End { code, errors, .. } = store.end();
    assert_eq!(code, Some(0));
    let lines: Vec<_> = errors.lines().collect();
    assert!(
        lines[0].starts_with("knee-space: trace Write offset=5 length=1 flags=0 error=0 total=")
    );
    assert!(
        lines[1].starts_with("knee-space: trace Read offset=1048576 length=1 flags=0 error=22 ")
    );
}
