//! The memory that a key takes: `cargo bench -p knee-bench --bench resident [-- KEYS]`.
//!
//! Keys of 16 bytes and values of 32 are put once each, not in the order of the keys. The figure is the growth of the
//! process's resident memory. Each engine runs in its own process.

use std::process::Command;
use std::{env, fs};

use knee_kv_cache::engine::{Change, Engine, Expiry};
use knee_kv_cache::{Memory, MemoryLimits};
use knee_kv_store::{Consistency, Items, Store, StoreOptions};

const NOW: u32 = 1_700_000_000;
const MEMORY_BYTES: usize = 8 << 30;

fn main() {
    let words: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    let keys = words.iter().find_map(|word| word.parse().ok()).unwrap_or(10_000_000);
    match words.iter().find(|word| word.parse::<u64>().is_err()).map(String::as_str) {
        Some("cache") => {
            let limits = MemoryLimits { memory_bytes_max: MEMORY_BYTES, value_bytes_max: 1 << 20 };
            fill("cache", Memory::new(limits).expect("memory suffices"), keys);
        }
        Some("versioned") => {
            let options = StoreOptions {
                consistency: Consistency::Linearizable,
                stripes: 64,
                value_bytes_max: 1 << 20,
                segment_bytes: 64 << 20,
            };
            let store = Store::in_memory(options, MEMORY_BYTES as u64).expect("memory suffices");
            fill("versioned", Items::new(store), keys);
        }
        _ => {
            println!("{:<12}{:>12}{:>14}", "", "keys", "bytes/key");
            for engine in ["cache", "versioned"] {
                let program = env::current_exe().expect("it runs");
                let run = Command::new(program).args([engine, &keys.to_string()]).status();
                assert!(run.expect("it starts").success());
            }
        }
    }
}

fn fill(name: &str, mut engine: impl Engine, keys: u64) {
    let before = resident_bytes();
    for number in 0..keys {
        // A bijection: no key comes twice.
        let key = format!("{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let put = Change::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &[7; 32] };
        engine.update(key.as_bytes(), NOW, |_| (put, ())).0.expect("there is memory");
    }
    assert_eq!(engine.figures().items, keys, "none was evicted");
    let bytes = (resident_bytes() - before) as f64 / keys as f64;
    println!("{name:<12}{keys:>12}{bytes:>14.1}");
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel reports it");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}
