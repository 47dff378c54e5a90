//! The cost of durable puts: the store's log compared with a bare log, and with LMDB.
//!
//! `cargo bench -p knee-bench --bench durable [-- [SECONDS] [WRITERS] [bare] [store] [LMDB]]`. Writers put values of
//! 100 bytes under random keys, and wait for the sync. One sync serves all earlier writes. The contestants take turns;
//! the figures are medians of five rounds. The kernel counts the written bytes. Processor time is that of the whole
//! process, with system calls.
//!
//! Like the store, the bare log has a file with reserved space, so that no sync writes a new file length. Its records
//! have the length of the store's, and are only copied. It has no table and no other lock: these are the store's extra
//! cost.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use heed::types::Bytes;
use heed::{Database, EnvOpenOptions};
use knee_kv_cache::engine::Expiry;
use knee_kv_store::{
    Action, Condition, Consistency, DirectoryOptions, Durability, History, Keeper, Store,
    StoreOptions, Write,
};

const ROUNDS: usize = 5;
const KEYS: u64 = 1_000_000;
const VALUE: [u8; 100] = [b'v'; 100];
/// The length of the store's record headers.
const HEAD_BYTES: usize = 48;
/// The bare log's file: more than it fills.
const SPACE_BYTES: libc::off_t = 256 << 20;

/// Puts a value and returns once it is safe.
trait Durable: Sync {
    fn put(&self, key: &[u8]);
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut numbers = words.iter().filter_map(|word| word.parse::<f64>().ok());
    let seconds = numbers.next().unwrap_or(2.0);
    let writers = numbers.next().map_or(vec![1, 16, 128], |writers| vec![writers as u64]);
    let asked = |name: &&str| words.iter().any(|word| word == name);
    let mut names = ["bare", "store", "LMDB"].to_vec();
    if names.iter().any(asked) {
        names.retain(asked);
    }
    println!("{:<6}{:>9}{:>12}{:>12}{:>12}", "", "writers", "puts/s", "CPU us/put", "bytes/put");
    for writers in writers {
        let mut figures = vec![Vec::new(); names.len()];
        for _ in 0..ROUNDS {
            for (name, figures) in names.iter().zip(&mut figures) {
                let directory = directory();
                figures.push(match *name {
                    "bare" => measure(&BareLog::new(&directory), writers, seconds),
                    "store" => measure(&VersionedStore::new(&directory), writers, seconds),
                    _ => measure(&Lmdb::new(&directory), writers, seconds),
                });
                let _ = fs::remove_dir_all(directory);
            }
        }
        for (name, figures) in names.iter().zip(&figures) {
            let [rate, cpu, bytes] = [0, 1, 2].map(|figure| {
                let mut of_rounds: Vec<f64> = figures.iter().map(|round| round[figure]).collect();
                of_rounds.sort_by(f64::total_cmp);
                of_rounds[ROUNDS / 2]
            });
            println!("{name:<6}{writers:>9}{rate:>12.0}{cpu:>12.2}{bytes:>12.0}");
        }
    }
}

fn directory() -> PathBuf {
    let path = std::env::temp_dir().join(format!("knee-durable-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).expect("a directory");
    path
}

/// Puts per second, and processor time in microseconds and written bytes per put.
fn measure(contestant: &impl Durable, writers: u64, seconds: f64) -> [f64; 3] {
    let (over, puts) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = (written(), processor_us());
    let began = Instant::now();
    thread::scope(|scope| {
        for writer in 0..writers {
            let (over, puts) = (&over, &puts);
            scope.spawn(move || {
                let mut draw = writer;
                while !over.load(Ordering::Relaxed) {
                    draw =
                        draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(2 * writer + 1);
                    contestant.put(format!("key:{:08}", (draw >> 33) % KEYS).as_bytes());
                    puts.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(Duration::from_secs_f64(seconds));
        over.store(true, Ordering::Relaxed);
    });
    let puts = puts.into_inner() as f64;
    let rate = puts / began.elapsed().as_secs_f64();
    [rate, (processor_us() - before.1) / puts, (written() - before.0) as f64 / puts]
}

/// The processor time of this process.
fn processor_us() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` has the size of the call's result.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    assert_eq!(failed, 0, "it is counted");
    // SAFETY: the call has written all of it.
    let usage = unsafe { usage.assume_init() };
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// Bytes that this process has sent to the disk.
fn written() -> u64 {
    let io = fs::read_to_string("/proc/self/io").expect("readable");
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.expect("it is counted").parse().expect("a number")
}

/// A log of records, with one sync for all waiting writers.
struct BareLog {
    tail: Mutex<Vec<u8>>,
    appended: AtomicU64,
    file: Mutex<(File, u64)>,
    /// Whether a writer syncs, and up to where the log is synced.
    syncing: Mutex<(bool, u64)>,
    over: Condvar,
}

impl BareLog {
    fn new(directory: &Path) -> BareLog {
        let file = File::create(directory.join("log")).expect("a file");
        // SAFETY: the descriptor is open.
        let failed = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, SPACE_BYTES) };
        assert_eq!(failed, 0, "space");
        file.sync_all().expect("it is synced");
        BareLog {
            tail: Mutex::default(),
            appended: AtomicU64::new(0),
            file: Mutex::new((file, 0)),
            syncing: Mutex::new((false, 0)),
            over: Condvar::new(),
        }
    }
}

impl Durable for BareLog {
    fn put(&self, key: &[u8]) {
        let own = {
            let mut tail = self.tail.lock().expect("no panics");
            tail.extend_from_slice(&[0; HEAD_BYTES]);
            tail.extend_from_slice(key);
            tail.write_all(&VALUE).expect("memory");
            self.appended.fetch_add(1, Ordering::Relaxed) + 1
        };
        let mut syncing = self.syncing.lock().expect("no panics");
        while syncing.0 && syncing.1 < own {
            syncing = self.over.wait(syncing).expect("no panics");
        }
        if syncing.1 >= own {
            return;
        }
        syncing.0 = true;
        drop(syncing);
        let (bytes, last) = {
            let mut tail = self.tail.lock().expect("no panics");
            (std::mem::take(&mut *tail), self.appended.load(Ordering::Relaxed))
        };
        let mut file = self.file.lock().expect("no panics");
        file.0.write_all_at(&bytes, file.1).expect("it is written");
        file.1 += bytes.len() as u64;
        file.0.sync_data().expect("it is synced");
        drop(file);
        *self.syncing.lock().expect("no panics") = (false, last);
        self.over.notify_all();
    }
}

struct VersionedStore {
    store: Store,
    _keeper: Keeper,
}

impl VersionedStore {
    fn new(directory: &Path) -> VersionedStore {
        let options = StoreOptions {
            consistency: Consistency::Linearizable,
            stripes: 64,
            value_bytes_max: 1 << 20,
            segment_bytes: 64 << 20,
        };
        let directory = DirectoryOptions {
            path: directory.to_owned(),
            durability: Durability::Always,
            repair: false,
        };
        let (store, _) = Store::open(options, &directory, 32 << 30).expect("it opens");
        let keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
        VersionedStore { store, _keeper: keeper }
    }
}

impl Durable for VersionedStore {
    fn put(&self, key: &[u8]) {
        let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &VALUE };
        let write = Write { key, condition: Condition::Always, action };
        let made = self.store.write(&[write], None, 1).expect("it is taken");
        self.store.sync(made.sequence).expect("it is synced");
    }
}

/// LMDB, with one transaction for all waiting writers.
struct Lmdb {
    waiting: Arc<(Mutex<Waiting>, Condvar)>,
    committer: Option<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Waiting {
    keys: Vec<Vec<u8>>,
    batch: u64,
    committed: u64,
    over: bool,
}

impl Lmdb {
    fn new(directory: &Path) -> Lmdb {
        let mut options = EnvOpenOptions::new();
        options.map_size(8 << 30);
        // SAFETY: no other process opens the directory.
        let env = unsafe { options.open(directory) }.expect("it opens");
        let mut txn = env.write_txn().expect("a transaction");
        let database: Database<Bytes, Bytes> =
            env.create_database(&mut txn, None).expect("a database");
        txn.commit().expect("committed");
        let waiting = Arc::new((Mutex::new(Waiting::default()), Condvar::new()));
        let shared = Arc::clone(&waiting);
        let committer = thread::spawn(move || {
            let (waiting, changed) = &*shared;
            loop {
                let mut guard = waiting.lock().expect("no panics");
                while guard.keys.is_empty() && !guard.over {
                    guard = changed.wait(guard).expect("no panics");
                }
                if guard.over {
                    return;
                }
                let keys = std::mem::take(&mut guard.keys);
                let batch = guard.batch;
                guard.batch += 1;
                drop(guard);
                let mut txn = env.write_txn().expect("a transaction");
                for key in &keys {
                    database.put(&mut txn, key, &VALUE).expect("put");
                }
                txn.commit().expect("committed");
                waiting.lock().expect("no panics").committed = batch + 1;
                changed.notify_all();
            }
        });
        Lmdb { waiting, committer: Some(committer) }
    }
}

impl Durable for Lmdb {
    fn put(&self, key: &[u8]) {
        let (waiting, changed) = &*self.waiting;
        let mut guard = waiting.lock().expect("no panics");
        guard.keys.push(key.to_vec());
        let own = guard.batch;
        changed.notify_all();
        while guard.committed <= own {
            guard = changed.wait(guard).expect("no panics");
        }
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        self.waiting.0.lock().expect("no panics").over = true;
        self.waiting.1.notify_all();
        if let Some(committer) = self.committer.take() {
            committer.join().expect("no panics");
        }
    }
}
