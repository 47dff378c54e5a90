//! `knee-kv` on a full disk.

use std::time::Instant;

use knee_rpc::kv::key_value_client::KeyValueClient;
use knee_rpc::kv::{PutRequest, Value};
use knee_testkit::Disk;
use tonic::{Code, Status};

use super::directory::Directory;
use super::{DISK_FULL, ask, expect_filled, fill, kill};
use crate::program::PATIENCE;

const NO_SPACE: &str = "No space left on device";

/// Puts a key over gRPC.
fn put(url: &str, key: &'static str, bytes: usize) -> Result<(), Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = url.to_owned();
    runtime.block_on(async {
        let value = Some(Value { value: vec![b'g'; bytes].into(), ..Value::default() });
        let request = PutRequest { key: key.into(), value, ..PutRequest::default() };
        KeyValueClient::connect(url).await.unwrap().put(request).await.map(drop)
    })
}

const FLAGS: [&str; 6] =
    ["--grpc", "127.0.0.1:0", "--memory-mb", "64", "--value-bytes-max", "30000"];

#[test]
fn full_disk_refuses_writes_and_loses_nothing() {
    Disk::with(13, |disk| {
        let directory = Directory(disk.directory.clone());
        let mut program = directory.serve(&FLAGS);
        let (mut client, url) = (program.connect(), program.grpc());
        let (count, refusal) = fill(&mut client);
        assert_eq!(refusal, DISK_FULL);
        let refusal = put(&url, "more", 20_000).unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted);
        assert!(refusal.message().contains(NO_SPACE), "{refusal}");
        expect_filled(&mut client, count);
        // The refusal is the same if not even the manifest can be written.
        disk.take_rest();
        assert_eq!(put(&url, "more", 20_000).unwrap_err().code(), Code::ResourceExhausted);
        // The reserve outlasts kills and shutdowns, although other processes take the rest of the disk.
        kill(program);
        disk.take_rest();
        let program = directory.serve(&FLAGS);
        expect_filled(&mut program.connect(), count);
        program.signal(libc::SIGTERM);
        program.end();
        disk.take_rest();
        let mut program = directory.serve(&FLAGS);
        let (mut client, url) = (program.connect(), program.grpc());
        expect_filled(&mut client, count);
        assert_eq!(put(&url, "more", 20_000).unwrap_err().code(), Code::ResourceExhausted);
        kill(program);
        disk.give_back();
        disk.resize(26);
        let mut program = directory.serve(&FLAGS);
        let (mut client, url) = (program.connect(), program.grpc());
        expect_filled(&mut client, count);
        let (more, _) = fill(&mut client);
        assert!(2 * more > count, "{more} after {count}: it does not go on");
        // The disk has space again: the next attempt succeeds.
        disk.resize(39);
        let began = Instant::now();
        while let Err(refusal) = put(&url, "more", 20_000) {
            assert!(began.elapsed() < PATIENCE, "{refusal}");
        }
        kill(program);
        let program = directory.serve(&FLAGS);
        expect_filled(&mut program.connect(), count);
        assert!(
            ask(&mut program.connect(), "get more\r\n").starts_with("VALUE more 0 20000\r\ngg")
        );
    });
}
