//! A store at the limit of open files.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use knee_kv_cache::engine::Expiry;
use knee_kv_store::{
    Action, Condition, Consistency, DirectoryOptions, Durability, Store, StoreOptions, Unwritable,
    Write, WriteError,
};

use knee_testkit::alone;

/// Far longer than any wait of this test.
const PATIENCE: Duration = Duration::from_secs(20);

const OPTIONS: StoreOptions = StoreOptions {
    consistency: Consistency::Linearizable,
    stripes: 1,
    value_bytes_max: 1000,
    segment_bytes: 4096,
};

fn open(path: &Path) -> Store {
    let directory =
        DirectoryOptions { path: path.to_owned(), durability: Durability::Always, repair: false };
    Store::open(OPTIONS, &directory, 1 << 20).expect("it opens").0
}

/// Opens files up to the limit.
fn all_files() -> Vec<File> {
    // SAFETY: both calls get a valid `rlimit`.
    unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(100);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn store_without_descriptors_resumes_when_some_are_free() {
    alone("descriptors::without_descriptors");
}

#[test]
#[ignore = "takes all descriptors of its process"]
fn without_descriptors() {
    let path = std::env::temp_dir().join(format!("knee-kv-descriptors-{}", std::process::id()));
    let copy = path.with_extension("copy");
    let _ = fs::remove_dir_all(&path);
    let store = open(&path);
    let mut made = 0_u32;
    let mut write = || {
        let key = made.to_le_bytes();
        let action =
            Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &[made as u8; 500] };
        let committed =
            store.write(&[Write { key: &key, condition: Condition::Always, action }], None, 1)?;
        store.sync(committed.sequence).expect("the disk takes it");
        made += 1;
        Ok(made)
    };
    for spare in 0..6 {
        let mut files = all_files();
        files.truncate(files.len() - spare);
        let refused = (0..100).find_map(|_| write().err());
        drop(files);
        // The write may also succeed, if there are enough free descriptors.
        let is_told = matches!(refused, Some(WriteError::Log(Unwritable::Failed(_))));
        assert!(is_told || refused.is_none() && spare > 1, "{refused:?} with {spare} files");
        // Copy the files as a crash would leave them now.
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir(&copy).expect("a directory");
        for entry in fs::read_dir(&path).expect("the directory is there") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), copy.join(entry.file_name())).expect("a copy");
        }
        // The store makes its next attempt after some time.
        let began = Instant::now();
        let made = loop {
            match write() {
                Ok(made) => break made,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error:?}"),
            }
        };
        assert_eq!(open(&copy).keys() as u32 + 1, made);
    }
    // More segments than the limit of open files.
    while fs::read_dir(&path).expect("the directory is there").count() < 120 {
        write().expect("it is taken");
    }
    drop(store);
    let keys = open(&path).keys() as u32;
    for path in [&path, &copy] {
        let _ = fs::remove_dir_all(path);
    }
    assert_eq!(keys, made);
}
