//! `knee-queue` over a SQLite file that takes no writes: its disk is full or fails.
use std::path::Path;
use std::process::Command;

use crate::program::limits::{limit_files, with_limits};
use crate::program::{Program, QUEUE};
use knee_rpc::queue::queue_client::QueueClient;
use knee_rpc::queue::{
    CreateQueueRequest, Outgoing, ReadAllRequest, RegisterClientRequest, RemoveRequest,
    SendRequest, Stored,
};
use knee_testkit::Disk;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;
use tonic::{Code, Status};

const FILE: &str = "messages.db";
/// The length of a message. A few messages fill a small disk.
const CONTENT_BYTES: usize = 20_000;

fn serving(file: &Path) -> Command {
    let mut command = Command::new(QUEUE);
    let database = format!("sqlite:{}", file.display());
    command.args(["--listen", "127.0.0.1:0", "--clients-max", "100", "--database", &database]);
    command
}

/// Kills a program, as a crash would.
fn kill(program: Program) {
    program.signal(libc::SIGKILL);
    program.end();
}

/// A client with its own queue, and the messages that must be in the queue.
struct Client {
    runtime: Runtime,
    client: QueueClient<Channel>,
    me: u32,
    queue: u32,
    /// The number of the next message.
    next: usize,
    /// Messages whose send was acknowledged, and that the client has not removed.
    kept: Vec<usize>,
}

impl Client {
    fn begin(server: &Program) -> Client {
        // The client notices the server's end at once, on the runtime's thread.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, me, queue) = runtime.block_on(async {
            let mut client = connect(server).await;
            let me = client.register_client(RegisterClientRequest {}).await.unwrap();
            let me = me.into_inner().client;
            let request = CreateQueueRequest { creator: me, ..CreateQueueRequest::default() };
            let queue = client.create_queue(request).await.unwrap().into_inner().queue;
            (client, me, queue)
        });
        Client { runtime, client, me, queue, next: 0, kept: Vec::new() }
    }

    /// Connects to another server.
    fn go_on(&mut self, server: &Program) {
        self.client = self.runtime.block_on(connect(server));
    }

    fn send(&mut self) -> Result<(), Status> {
        let number = self.next;
        self.next += 1;
        let content = format!("{number:<CONTENT_BYTES$}");
        let messages = vec![Outgoing { receiver: self.me, queue: self.queue, content }];
        let request = SendRequest { sender: self.me, messages };
        self.runtime.block_on(self.client.send(request))?;
        self.kept.push(number);
        Ok(())
    }

    /// Sends until the disk is full.
    fn expect_full(&mut self) {
        let refusal = loop {
            if let Err(refusal) = self.send() {
                break refusal;
            }
        };
        let status = (refusal.code(), refusal.message());
        assert_eq!(status, (Code::ResourceExhausted, "SQLite: database or disk is full"));
    }

    /// Removes the first message.
    fn remove(&mut self) -> Result<(), Status> {
        let (receiver, queue, count, wait_ms) = (self.me, self.queue, 1, 0);
        let request = RemoveRequest { receiver, queue, count, wait_ms };
        let removed = self.runtime.block_on(self.client.remove(request))?.into_inner().messages;
        let removed: Vec<_> = removed.iter().map(number).collect();
        assert_eq!(removed, [self.kept.remove(0)]);
        Ok(())
    }

    /// Reads all messages: they are the kept ones, in order.
    fn expect_kept(&mut self) {
        let request = ReadAllRequest { receiver: self.me, queue: self.queue };
        let read = self.runtime.block_on(async {
            let mut parts = self.client.read_all(request).await.unwrap().into_inner();
            let mut read = Vec::new();
            while let Some(part) = parts.message().await.unwrap() {
                read.extend(part.messages.iter().map(number));
            }
            read
        });
        assert_eq!(read, self.kept);
    }
}

async fn connect(server: &Program) -> QueueClient<Channel> {
    QueueClient::connect(format!("http://{}", server.address())).await.unwrap()
}

fn number(message: &Stored) -> usize {
    assert_eq!(message.content.len(), CONTENT_BYTES);
    message.content.trim_end().parse().unwrap()
}

#[test]
fn full_disk_refuses_messages_and_loses_none() {
    Disk::with(4, |disk| {
        let file = disk.directory.join(FILE);
        let server = Program::spawn(&mut serving(&file));
        let mut client = Client::begin(&server);
        client.expect_full();
        assert!(!client.kept.is_empty());
        client.expect_kept();
        disk.take_rest();
        client.expect_full();
        client.expect_kept();
        // A remove also writes. It may find the space of a failed send.
        if let Err(refusal) = client.remove() {
            assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
        }
        client.expect_kept();
        disk.give_back();
        disk.resize(8);
        client.send().unwrap();
        client.remove().unwrap();
        client.expect_kept();
        client.expect_full();
        kill(server);
        disk.resize(12);
        let server = Program::spawn(&mut serving(&file));
        client.go_on(&server);
        client.expect_kept();
        client.send().unwrap();
        client.remove().unwrap();
        client.expect_kept();
    });
}

/// The disk fails, or the system refuses writes.
#[test]
fn failing_file_is_read_on_and_loses_nothing() {
    let directory = std::env::temp_dir().join(format!("knee-unwritten-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join(FILE);
    let server = Program::spawn(with_limits(&mut serving(&file)));
    let mut client = Client::begin(&server);
    client.send().unwrap();
    client.send().unwrap();
    limit_files(server.pid(), 4096);
    for outcome in [client.send(), client.remove()] {
        let refusal = outcome.unwrap_err();
        assert_eq!((refusal.code(), refusal.message()), (Code::Unknown, "SQLite: disk I/O error"));
        client.expect_kept();
    }
    limit_files(server.pid(), libc::RLIM_INFINITY);
    client.send().unwrap();
    client.remove().unwrap();
    client.expect_kept();
    kill(server);
    let server = Program::spawn(&mut serving(&file));
    client.go_on(&server);
    client.expect_kept();
    drop(server);
    std::fs::remove_dir_all(&directory).unwrap();
}
