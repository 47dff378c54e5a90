//! `Init`: edge lists in the server's directory.

use std::fs;
use std::os::unix::fs::symlink;

use knee_kv::grpc::GrpcSettings;
use knee_kv_store::{Store as Versioned, StoreOptions};
use knee_rpc::kv::{InitRequest, InitResponse};
use tonic::{Code, Status};

use crate::grpc::serving::{Client, Directory, Store, options, read, settings};

/// A server that loads from a directory.
fn loading(directory: &Directory) -> Store {
    fs::create_dir_all(&directory.0).unwrap();
    Store::with(options(), GrpcSettings { init_dir: Some(directory.0.clone()), ..settings() })
}

/// All messages of a load.
async fn init(client: &mut Client, file: &str) -> Result<Vec<InitResponse>, Status> {
    let mut load = client.init(InitRequest { file: file.to_owned() }).await?.into_inner();
    let mut messages = Vec::new();
    while let Some(progress) = load.message().await? {
        messages.push(progress);
    }
    Ok(messages)
}

/// Users: few, so that each has many followers.
const USERS: usize = 101;

/// A list of `edges` edges, of the users in turn.
fn list(edges: usize) -> String {
    (0..edges).map(|edge| format!("{}\t{edge}\n", edge % USERS)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_is_loaded_with_progress() {
    let directory = Directory::new("init");
    let store = loading(&directory);
    let mut client = store.client().await;
    fs::create_dir(directory.0.join("graphs")).unwrap();
    fs::write(directory.0.join("graphs/small.txt"), list(100_000)).unwrap();
    // A link may lead to another place beneath the directory.
    symlink("graphs/small.txt", directory.0.join("link")).unwrap();
    let messages = init(&mut client, "graphs/small.txt").await.unwrap();
    let last = messages.last().unwrap();
    assert_eq!((last.done, last.edges, last.lines), (true, 100_000, 100_000));
    assert_eq!((last.bytes, last.resumed_edges), (list(100_000).len() as u64, 0));
    assert!(last.seconds > 0.0 && last.edges_per_s > 0.0);
    assert!(messages.iter().rev().skip(1).all(|progress| !progress.done));
    assert!(messages.is_sorted_by_key(|progress| progress.edges));
    let followers: String =
        (0..100_000).filter(|edge| edge % USERS == 3).map(|edge| format!("{edge}\n")).collect();
    assert!(read(&mut client, b"3").await.unwrap().0 == followers.as_bytes());

    // A second load finds all edges.
    let again = init(&mut client, "graphs/small.txt").await.unwrap();
    assert_eq!((again.last().unwrap().done, again.last().unwrap().resumed_edges), (true, 100_000));
    assert!(read(&mut client, b"3").await.unwrap().0 == followers.as_bytes());
    assert!(init(&mut client, "link").await.unwrap().last().unwrap().done, "it is another name");
}

/// Cancels a load of `edges` edges, and loads the rest. Returns the last message, and the followers of user 6; `None`
/// if the load ended before it was cancelled.
async fn given_up(edges: usize) -> Option<(InitResponse, Vec<u8>)> {
    let directory = Directory::new("init-cancelled");
    let store = loading(&directory);
    let (mut client, mut other) = (store.client().await, store.client().await);
    fs::write(directory.0.join("list"), list(edges)).unwrap();
    let mut load = client.init(InitRequest { file: "list".to_owned() }).await.unwrap().into_inner();
    if load.message().await.unwrap().unwrap().done {
        return None;
    }
    let refused = init(&mut other, "list").await.err()?;
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(
        refused.message(),
        "another load is running, and one runs at a time: try again later"
    );
    drop(load);
    let messages = loop {
        match init(&mut other, "list").await {
            Ok(messages) => break messages,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
        tokio::task::yield_now().await;
    };
    let last = *messages.last().unwrap();
    assert_eq!((last.done, last.edges), (true, edges as u64));
    let followers = read(&mut other, b"6").await.unwrap().0;
    (last.resumed_edges < last.edges).then_some((last, followers))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_load_stops_and_resumes() {
    let mut edges = 100_000;
    let (last, followers) = loop {
        // If the load ended too soon, try a longer one.
        edges *= 2;
        assert!(edges < 50_000_000, "no load can be given up");
        if let Some(gone_on_with) = given_up(edges).await {
            break gone_on_with;
        }
    };
    assert!(last.resumed_edges > 0, "{last:?}");
    let expected = (0..edges).filter(|edge| edge % USERS == 6);
    let found = followers.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    assert!(found.eq(expected.map(|edge| edge.to_string().into_bytes()).collect::<Vec<_>>()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_file_is_refused() {
    let directory = Directory::new("init-refused");
    let store = loading(&directory);
    let mut client = store.client().await;
    fs::write(directory.0.join("wrong"), "1\t2\n# no edge\n3 four\n").unwrap();
    fs::create_dir(directory.0.join("folder")).unwrap();
    let outside = Directory::new("init-outside");
    fs::create_dir_all(&outside.0).unwrap();
    fs::write(outside.0.join("list"), "1 2\n").unwrap();
    symlink(outside.0.join("list"), directory.0.join("out")).unwrap();
    symlink(&outside.0, directory.0.join("outside")).unwrap();
    let above = format!("../{}/list", outside.0.file_name().unwrap().display());
    let absolute = outside.0.join("list").display().to_string();
    for (file, code, message) in [
        ("", Code::InvalidArgument, "the name '' is no relative path without '..', '.' and '//'"),
        (&absolute[..], Code::InvalidArgument, "is no relative path"),
        (&above, Code::InvalidArgument, "is no relative path"),
        ("folder/../wrong", Code::InvalidArgument, "is no relative path"),
        ("folder//list", Code::InvalidArgument, "is no relative path"),
        ("folder/./list", Code::InvalidArgument, "is no relative path"),
        ("wrong/", Code::InvalidArgument, "is no relative path"),
        ("a\0b", Code::InvalidArgument, "is no relative path"),
        ("out", Code::InvalidArgument, "'out' leads out of the server's directory"),
        ("outside/list", Code::InvalidArgument, "leads out of the server's directory"),
        ("folder", Code::InvalidArgument, "'folder' is no ordinary file"),
        ("none", Code::NotFound, "there is no file 'none'"),
        ("wrong/deeper", Code::NotFound, "there is no file 'wrong/deeper'"),
        ("wrong", Code::InvalidArgument, "line 3: expected the number of a follower"),
        (&"x".repeat(5000), Code::InvalidArgument, "the key has 5005 bytes"),
    ] {
        let status = init(&mut client, file).await.expect_err(message);
        assert_eq!(status.code(), code, "{file}: {status}");
        assert!(status.message().contains(message), "{status} is not: {message}");
    }
    // The mended list resumes at its mistake; another list of that name is refused.
    fs::write(directory.0.join("wrong"), "1\t2\n# no edge\n3 4\n").unwrap();
    assert_eq!(init(&mut client, "wrong").await.unwrap().last().unwrap().edges, 2);
    fs::write(directory.0.join("wrong"), "1\t3\n# no edge\n3 4\n").unwrap();
    let status = init(&mut client, "wrong").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("are not those that were loaded"), "{status}");

    fs::remove_dir_all(&directory.0).unwrap();
    let status = init(&mut client, "wrong").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("cannot be opened"), "{status}");
    let status = init(&mut Store::start().client().await, "wrong").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("--init-dir"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_waits_for_an_unfinished_line() {
    let directory = Directory::new("init-growing");
    let store = loading(&directory);
    let mut client = store.client().await;
    fs::write(directory.0.join("list"), "1\t2\n12\t3").unwrap();
    let status = init(&mut client, "list").await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("line 2: expected a line feed"), "{status}");
    assert_eq!(read(&mut client, b"12").await.unwrap_err().code(), Code::NotFound);
    fs::write(directory.0.join("list"), "1\t2\n12\t34\n").unwrap();
    assert_eq!(init(&mut client, "list").await.unwrap().last().unwrap().edges, 2);
    assert_eq!(read(&mut client, b"12").await.unwrap().0, b"34\n");
    assert_eq!(read(&mut client, b"1").await.unwrap().0, b"2\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_into_a_full_store_is_refused() {
    let directory = Directory::new("init-full");
    fs::create_dir_all(&directory.0).unwrap();
    fs::write(directory.0.join("list"), list(200_000)).unwrap();
    fs::write(directory.0.join("star"), "1000000\t10000000\n".repeat(20_000)).unwrap();
    let settings = GrpcSettings { init_dir: Some(directory.0.clone()), ..settings() };
    let small = StoreOptions { value_bytes_max: 100_000, segment_bytes: 128 << 10, ..options() };
    let small = Versioned::in_memory(small, 1 << 20).unwrap();
    let store = Store::of(small, settings);
    let mut client = store.client().await;
    let status = init(&mut client, "star").await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("the followers of user 1000000 do not fit"), "{status}");
    let status = init(&mut client, "list").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}
