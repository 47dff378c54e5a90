//! The space over gRPC.

use std::time::Duration;

use knee_rpc::space::space_client::SpaceClient;
use knee_rpc::space::{GetStorageAttributesRequest, ReadRequest, Status, WriteRequest};
use knee_testkit::eventually;
use tonic::Code;

use super::client::Client;
use super::files::random;
use super::manager::{MIB, addresses, manager};
use super::store::store;

#[tokio::test]
async fn calls_see_what_nbd_sees() {
    let stores = [store(MIB, &[]), store(MIB, &[])];
    let manager = manager(&addresses(&stores), &["--grpc", "127.0.0.1:0", "--threads", "2"]);
    let address = format!("http://{}", manager.ready["grpc"].as_str().unwrap());
    let mut space = SpaceClient::connect(address).await.unwrap();
    let mut disk = Client::connect(manager.address());
    let border = MIB as u64;

    let data = random(3000);
    let write = WriteRequest { address: border - 1000, data: data.clone().into() };
    space.write(write).await.unwrap();
    assert_eq!(disk.read(border - 1000, 3000).unwrap(), data);
    disk.write(border - 5, b"over both").unwrap();
    let read = ReadRequest { address: border - 5, length: 9 };
    assert_eq!(space.read(read).await.unwrap().into_inner().data, "over both");

    let rows = [(0, 0, Code::InvalidArgument), (0, (1 << 20) + 1, Code::InvalidArgument)];
    let beyond = [(2 * border, 1, Code::OutOfRange), (u64::MAX, 1, Code::OutOfRange)];
    for (address, length, expected) in rows.into_iter().chain(beyond) {
        let refused = space.read(ReadRequest { address, length }).await.unwrap_err();
        assert_eq!(refused.code(), expected, "{refused}");
    }

    let attributes = space.get_storage_attributes(GetStorageAttributesRequest {}).await;
    let attributes = attributes.unwrap().into_inner();
    assert_eq!((attributes.size, attributes.status()), (2 * border, Status::Online));
    stores[1].signal(libc::SIGKILL);
    eventually("the loss is seen", || (disk.read(border, 1).is_err()).then_some(()));
    let failed = space.read(ReadRequest { address: border, length: 1 }).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable, "{failed}");
    let attributes = space.get_storage_attributes(GetStorageAttributesRequest {}).await;
    let attributes = attributes.unwrap().into_inner();
    assert_eq!(attributes.status(), Status::MachineDown);
    let online: Vec<_> = attributes.machines.iter().map(|machine| machine.online).collect();
    assert_eq!(online, [true, false]);
    assert_eq!(attributes.machines[1].name, stores[1].address());
}

#[tokio::test]
async fn memory_of_a_call_counts_after_its_caller_has_left() {
    let store = store(MIB, &[]);
    let flags = ["--grpc", "127.0.0.1:0", "--timeout-ms", "60000"];
    let manager = manager(&[store.address()], &flags);
    let address = format!("http://{}", manager.ready["grpc"].as_str().unwrap());
    let space = SpaceClient::connect(address).await.unwrap();
    store.signal(libc::SIGSTOP);
    let call = || {
        let mut space = space.clone();
        async move {
            let write = space.write(WriteRequest { address: 0, data: vec![1; MIB].into() });
            let answer = tokio::time::timeout(Duration::from_millis(700), write).await;
            answer.map(|answer| answer.unwrap_err().code())
        }
    };
    // A connection may take half of 64 MiB. The store keeps these calls until the time limit of its answer.
    for wave in 0..10 {
        let calls: Vec<_> = (0..28).map(|_| tokio::spawn(call())).collect();
        for call in calls {
            let answer = call.await.unwrap();
            assert!(answer.is_err() || (wave > 0 && answer == Ok(Code::ResourceExhausted)));
            if wave > 0 && answer.is_ok() {
                return;
            }
        }
    }
    panic!("calls without callers take memory that is not counted");
}

#[tokio::test]
async fn read_only_space_refuses_writes() {
    let stores = [store(MIB, &[])];
    let manager = manager(&addresses(&stores), &["--grpc", "127.0.0.1:0", "--read-only"]);
    let address = format!("http://{}", manager.ready["grpc"].as_str().unwrap());
    let mut space = SpaceClient::connect(address).await.unwrap();
    let refused = space.write(WriteRequest { address: 0, data: "x".into() }).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
}
