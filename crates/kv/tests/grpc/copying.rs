//! `Backup`: copies of the store.

use std::fs;

use knee_kv::grpc::GrpcSettings;
use knee_kv_store::remove_unfinished_copies;
use knee_rpc::kv::{BackupRequest, BackupResponse};
use tonic::{Code, Status};

use crate::grpc::serving::{
    Client, Directory, Store, begin, bulk_put, changed, everything, inserted, options, put, rest,
    settings,
};

async fn backup(client: &mut Client, directory: &str) -> Result<BackupResponse, Status> {
    let request = BackupRequest { directory: directory.to_owned() };
    client.backup(request).await.map(|response| response.into_inner())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_is_the_store_at_one_commit() {
    let directory = Directory::new("backup");
    fs::create_dir_all(&directory.0).unwrap();
    let settings = GrpcSettings { backup_dir: Some(directory.0.clone()), ..settings() };
    let store = Store::with(options(), settings);
    let before = inserted(&store, 300, |number| format!("value {number}").into_bytes());
    let mut client = store.client().await;
    // A writer continues during the copy, with several keys per commit.
    let mut writer = store.client().await;
    let (end, mut ended) = tokio::sync::oneshot::channel::<()>();
    let writing = tokio::spawn(async move {
        for number in 0.. {
            let value = format!("{number}");
            let changes = ["x", "y"].map(|key| changed(key.as_bytes(), value.as_bytes()));
            bulk_put(&mut writer, changes.to_vec()).await.unwrap();
            if number > 0 && ended.try_recv().is_ok() {
                return;
            }
        }
    });
    let copied = backup(&mut client, "copy").await.unwrap();
    end.send(()).unwrap();
    writing.await.unwrap();
    assert!(copied.commit >= 300);
    put(&mut client, b"later", b"").await.unwrap();

    let there = Directory(directory.0.join("copy"));
    let copy = Store::of(there.open(options()), crate::grpc::serving::settings());
    let mut copied_client = copy.client().await;
    let mut found = rest(begin(&mut copied_client, everything()).await).await.unwrap();
    assert_eq!(found.remove(&b"x"[..]), found.remove(&b"y"[..]), "half of a bulk put was copied");
    assert!(found == before);
    let version = put(&mut copied_client, b"new", b"").await.unwrap();
    assert!(version > copied.commit, "it goes on to count");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_copy_is_refused() {
    let directory = Directory::new("backup-refused");
    fs::create_dir_all(directory.0.join("there")).unwrap();
    fs::write(directory.0.join("there/file"), "").unwrap();
    fs::write(directory.0.join("file"), "").unwrap();
    // A directory with the name of an unfinished copy.
    fs::create_dir(directory.0.join(".foreign.partial")).unwrap();
    fs::write(directory.0.join(".foreign.partial/file"), "").unwrap();
    let settings_there = GrpcSettings { backup_dir: Some(directory.0.clone()), ..settings() };
    let store = Store::with(options(), settings_there);
    let mut client = store.client().await;
    put(&mut client, b"key", b"value").await.unwrap();
    for (name, code, message) in [
        ("", Code::InvalidArgument, "the name '' is no relative path"),
        ("/tmp/copy", Code::InvalidArgument, "is no relative path"),
        ("../copy", Code::InvalidArgument, "is no relative path"),
        ("a/b", Code::InvalidArgument, "it has several parts"),
        (".", Code::InvalidArgument, "is no relative path"),
        ("copy/", Code::InvalidArgument, "is no relative path"),
        ("a\0b", Code::InvalidArgument, "is no relative path"),
        ("there", Code::AlreadyExists, "'there' is there already"),
        (".copy", Code::InvalidArgument, "it begins with '.'"),
        ("file", Code::AlreadyExists, "'file' is there already"),
        (&"x".repeat(247), Code::InvalidArgument, "it has 247 bytes, more than 246"),
        ("foreign", Code::AlreadyExists, "'foreign' is being made"),
    ] {
        let status = backup(&mut client, name).await.expect_err(message);
        assert_eq!(status.code(), code, "{name}: {status}");
        assert!(status.message().contains(message), "{status} is not: {message}");
    }
    let mut names: Vec<_> =
        fs::read_dir(&directory.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".foreign.partial", "file", "there"], "nothing else is left");
    let status = backup(&mut Store::start().client().await, "copy").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("--backup-dir"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_copy_does_not_prevent_a_new_one() {
    let directory = Directory::new("backup-unfinished");
    let settings = GrpcSettings { backup_dir: Some(directory.0.clone()), ..settings() };
    // Make the files that a killed server leaves: a store that no process has open.
    let unfinished = Directory(directory.0.join(".copy.partial"));
    drop(unfinished.open(options()));
    let removed = remove_unfinished_copies(&directory.0).unwrap();
    assert_eq!(removed, *std::slice::from_ref(&unfinished.0));
    let store = Store::with(options(), settings);
    let mut client = store.client().await;
    put(&mut client, b"key", b"value").await.unwrap();
    // A finished copy may have a name that ends in `.partial`.
    backup(&mut client, "copy.partial").await.unwrap();
    assert_eq!(backup(&mut client, "copy").await.unwrap().commit, 1);
    // A directory that never was a copy stays.
    let foreign = [".file.partial", ".directory.partial"].map(|name| directory.0.join(name));
    fs::write(&foreign[0], "").unwrap();
    fs::create_dir(&foreign[1]).unwrap();
    fs::write(foreign[1].join("file"), "").unwrap();
    fs::create_dir(directory.0.join(".empty.partial")).unwrap();
    let removed = remove_unfinished_copies(&directory.0).unwrap();
    assert_eq!(removed, [directory.0.join(".empty.partial")]);
    assert!(foreign[0].exists() && foreign[1].join("file").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_have_a_limit() {
    let directory = Directory::new("backup-limit");
    fs::create_dir_all(&directory.0).unwrap();
    fs::write(directory.0.join("notes"), "").unwrap();
    let settings =
        GrpcSettings { backup_dir: Some(directory.0.clone()), copies_max: 2, ..settings() };
    let store = Store::with(options(), settings);
    let mut client = store.client().await;
    backup(&mut client, "one").await.unwrap();
    backup(&mut client, "two").await.unwrap();
    let status = backup(&mut client, "three").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().starts_with("there are 2 copies: remove some"), "{status}");
    fs::remove_dir_all(directory.0.join("one")).unwrap();
    backup(&mut client, "three").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_log_is_reported_as_broken() {
    let (directory, copies) = (Directory::new("backup-broken"), Directory::new("backup-of-broken"));
    fs::create_dir_all(&copies.0).unwrap();
    let settings = GrpcSettings { backup_dir: Some(copies.0.clone()), ..settings() };
    let store = Store::of(directory.open(options()), settings);
    let mut client = store.client().await;
    directory.fill_up();
    put(&mut client, b"key", b"value").await.unwrap_err();
    let status = backup(&mut client, "copy").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().starts_with("the disk failed"), "{status}");
    assert_eq!(fs::read_dir(&copies.0).unwrap().count(), 0, "nothing is left");
}
