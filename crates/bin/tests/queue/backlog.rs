//! Messages that are stored before a load.

use std::process::{Command, Stdio};

use tokio::runtime::Builder;

use super::{FEW, SEED_OPS, count, ended, load, load_until_counted};
use crate::program::{LOAD, Program, QUEUE};

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
    // Each client has sent 250 messages, some to every client.
    assert_eq!(listed, [10; 10]);
    let who: Vec<_> = clients.iter().map(|[client, queue]| format!("{client}:{queue}")).collect();
    let (some, others) = who.split_at(4);
    let (some, others) = (some.join(","), others.join(","));
    let flags = format!("--clients 10 --verify --characters 100 --as {some} --as {others}");
    let load = load_until_counted(&server, &flags, &SEED_OPS);
    assert_eq!(load["wrong_values"], 0);
    let summary = ended(server);
    // The load registered no clients. Each of its `list_queues` found a queue at the first attempt.
    assert_eq!(count(&summary, "register_client"), 0);
    assert_eq!(load["ops"]["remove"]["misses"], 0);
    assert!(load["ops"]["read_all"]["items"].as_u64().unwrap() > 10 * count(&load, "read_all"));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn interrupted_backlog_says_why() {
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
            "interrupted before the end".to_owned()
        } else {
            server.signal(signal);
            let failed = format!("populating {} failed: ", server.address());
            let stops = signal == libc::SIGSTOP;
            failed + if stops { "no answer for 13 s" } else { "it did not answer a send: " }
        };
        let output = load.wait_with_output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.starts_with(&format!("knee-load: {why}")), "{printed}");
    }
}
