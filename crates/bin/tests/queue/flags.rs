//! Flags of `knee-queue` and `knee-load queue`.

use knee_testkit::free_address;

use super::load_until_counted;
use crate::program::{LOAD, Program, QUEUE, refused};

#[test]
fn load_refuses_flags_of_other_protocols() {
    let rows = [
        ("--seconds 1 --keys 5", "unexpected argument '--keys'"),
        ("--seconds 1 --key-prefix k", "unexpected argument '--key-prefix'"),
        ("--seconds 1 --key-choice uniform", "unexpected argument '--key-choice'"),
        ("--seconds 1 --value-bytes 5", "unexpected argument '--value-bytes'"),
        ("--seconds 1 --ttl-s 5", "unexpected argument '--ttl-s'"),
        // The backlog phase refuses flags of the load, even with their default values.
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
    const STRAY: &str = "error: an address is in a wrong place: use --database ADDRESS\n";
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
            "--database must be postgresql://USER@HOST:PORT/NAME",
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
        (vec!["migrate", "--database", "sqlite"], 2, "only PostgreSQL needs migration"),
        (vec!["postgresql://me:hunter2@127.0.0.1/messages"], 2, STRAY),
        (vec!["migrate", "postgresql://me:hunter2@127.0.0.1/messages"], 2, STRAY),
        (vec!["--threads", "postgresql://me:hunter2@127.0.0.1/messages"], 2, STRAY),
        (vec!["--databse=postgresql://me:hunter2@127.0.0.1/messages"], 2, STRAY),
        (vec!["host=localhost user=me password=hunter2"], 2, STRAY),
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
