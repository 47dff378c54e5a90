//! Files that are cut short or have a flipped bit. Opening the store names the damage, unless it hit unused bytes. The
//! store never serves damage.

use std::fs;
use std::path::PathBuf;

use knee_kv_store::{Consistency, DirectoryError, DirectoryOptions, Durability, StoreOptions};

use crate::harness::{Directory, Store, settings};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

const KEYS: usize = 150;
const CASES: usize = 100;

fn open(directory: &Directory) -> Result<knee_kv_store::Store, DirectoryError> {
    let options = StoreOptions {
        consistency: Consistency::Linearizable,
        stripes: 4,
        value_bytes_max: 1000,
        segment_bytes: 16 << 10,
    };
    let path = directory.0.clone();
    let directory = DirectoryOptions { path, durability: Durability::Always, repair: false };
    knee_kv_store::Store::open(options, &directory, 1 << 30).map(|(store, _)| store)
}

/// A memcached server over the store.
fn served(store: &knee_kv_store::Store) -> Store {
    Store::over(store, settings())
}

fn value(key: usize) -> String {
    format!("value of {key} ").repeat(1 + key % 60)
}

/// The files of a store whose keys were written in order.
fn written() -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Directory::new();
    let store = open(&directory).unwrap();
    let mut front = served(&store);
    let mut client = front.client();
    for key in 0..KEYS {
        let value = value(key);
        let set = format!("set k{key} 0 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(client.answer(&set), "STORED\r\n");
    }
    front.shut_down();
    drop(front);
    drop(store);
    let paths = fs::read_dir(&directory.0).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| !path.ends_with("LOCK"))
        .map(|path| (PathBuf::from(path.file_name().unwrap()), fs::read(&path).unwrap()))
        .collect();
    // A segment without records has no keys.
    files.retain(|(_, bytes)| !bytes.is_empty());
    // The copies of the manifest come after the segments.
    files.sort();
    files
}

/// The number of keys. They must be the first written keys.
fn there(store: &knee_kv_store::Store, happened: &str) -> usize {
    let front = served(store);
    let mut client = front.client();
    let keys: String = (0..KEYS).map(|key| format!(" k{key}")).collect();
    let answer = client.answer(&format!("get{keys}\r\n"));
    let count = answer.matches("VALUE k").count();
    let entries = (0..count).map(|key| {
        let value = value(key);
        format!("VALUE k{key} 0 {}\r\n{value}\r\n", value.len())
    });
    assert_eq!(answer, entries.collect::<String>() + "END\r\n", "{happened}");
    count
}

#[test]
fn damaged_file_of_a_closed_store_is_named() {
    let files = written();
    let last = files.len() - 3;
    assert!(files[last].0.extension().is_some_and(|name| name == "log") && last > 2);
    let mut random = TestRng::from_seed(RngAlgorithm::XorShift, &[5; 16]);
    let mut below = |end: usize| random.next_u32() as usize % end;
    let (mut named, mut harmless) = (0, 0);
    for case in 0..CASES {
        let directory = Directory::new();
        fs::create_dir(&directory.0).unwrap();
        let (hit, cuts) = (below(files.len()), below(3) == 0);
        let mut happened = String::new();
        for (index, (name, bytes)) in files.iter().enumerate() {
            let mut bytes = bytes.clone();
            if index == hit {
                let at = below(bytes.len());
                if cuts {
                    bytes.truncate(at);
                } else {
                    bytes[at] ^= 1 << below(8);
                }
                let what = if cuts { "cut short" } else { "flipped" };
                happened = format!("case {case}: {} {what} at {at}", name.display());
            }
            fs::write(directory.0.join(name), bytes).unwrap();
        }
        match open(&directory) {
            Ok(store) => {
                // Bytes behind the end of a log are unused, and the manifest has a copy.
                assert_eq!(there(&store, &happened), KEYS, "{happened}");
                harmless += 1;
            }
            Err(DirectoryError::Damaged(file, what)) => {
                assert_eq!(file, directory.0.join(&files[hit].0), "{happened}: {what}");
                named += 1;
            }
            Err(other) => panic!("{happened}: {other}"),
        }
    }
    assert!(named > CASES / 3 && harmless > 0, "{named} named, {harmless} harmless");
}
