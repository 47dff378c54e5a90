//! The memory's latency and bandwidth, of one thread.

use std::hint::black_box;
use std::io;
use std::ptr;
use std::time::{Duration, Instant};

use knee_random::Random;

/// The bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Dependent reads between two looks at the clock.
const STEPS: usize = 1 << 12;

/// Bytes between two looks at the clock, in small working sets.
const LOOK_BYTES: usize = 1 << 20;

/// A cache line. Its first word may hold the address of another line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([usize; LINE_BYTES / size_of::<usize>()]);

/// What one thread gets from the memory, over one working set.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The mean time of a read that depends on the read before, in random order.
    pub latency_ns: f64,
    /// Bytes read per second, in order.
    pub read_bytes_per_s: f64,
    /// Bytes written per second, in order, with ordinary stores.
    pub write_bytes_per_s: f64,
    /// Bytes that the C library's `memcpy` copies per second from the first half to the second; each counts once.
    pub copy_bytes_per_s: f64,
}

/// Measures a working set of `bytes`, in new memory. Each part lasts for `seconds`, and at least for one pass.
///
/// # Errors
///
/// The memory is missing.
pub fn measure(bytes: usize, seconds: f64, seed: u64) -> io::Result<Memory> {
    let count = (bytes / LINE_BYTES).max(2);
    let mut lines = Vec::new();
    lines.try_reserve_exact(count).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
    lines.resize(count, Line([1; _]));
    let limit = Duration::from_secs_f64(seconds);
    Ok(Memory {
        copy_bytes_per_s: per_s(&mut lines, limit, copy) / 2.0,
        write_bytes_per_s: per_s(&mut lines, limit, write),
        read_bytes_per_s: per_s(&mut lines, limit, read),
        latency_ns: latency_ns(&mut lines, limit, seed),
    })
}

/// Bytes of the lines per second of passes over them.
fn per_s(lines: &mut [Line], limit: Duration, pass: fn(&mut [Line], usize)) -> f64 {
    let passes = LOOK_BYTES.div_ceil(size_of_val(lines));
    let (begun, mut done) = (Instant::now(), 0);
    loop {
        for _ in 0..passes {
            done += 1;
            pass(lines, done);
        }
        let elapsed = begun.elapsed();
        if elapsed >= limit {
            return (done * size_of_val(lines)) as f64 / elapsed.as_secs_f64();
        }
    }
}

fn read(lines: &mut [Line], _: usize) {
    // A sum for each word of a line: with a single sum, additions would take longer than reads.
    let mut sums = Line([0; _]);
    for line in black_box(&*lines) {
        for (sum, word) in sums.0.iter_mut().zip(line.0) {
            *sum = sum.wrapping_add(word);
        }
    }
    black_box(sums);
}

fn write(lines: &mut [Line], number: usize) {
    black_box(lines).fill(Line([black_box(number); _]));
}

fn copy(lines: &mut [Line], _: usize) {
    let (from, to) = lines.split_at_mut(lines.len() / 2);
    to[..from.len()].copy_from_slice(black_box(&*from));
    black_box(to);
}

/// The caches are warm: one round comes first, or as much of it as the limit allows.
fn latency_ns(lines: &mut [Line], limit: Duration, seed: u64) -> f64 {
    link(lines, seed);
    let (mut at, begun, mut steps) = (lines.as_ptr(), Instant::now(), 0);
    while steps < lines.len() && begun.elapsed() < limit {
        at = walk(at);
        steps += STEPS;
    }
    let (begun, mut steps) = (Instant::now(), 0);
    loop {
        at = walk(at);
        steps += STEPS;
        let elapsed = begun.elapsed();
        if elapsed >= limit {
            black_box(at);
            return elapsed.as_secs_f64() * 1e9 / steps as f64;
        }
    }
}

/// Follows the links that [`link`] has made.
fn walk(from: *const Line) -> *const Line {
    let mut at = from;
    for _ in 0..STEPS {
        // SAFETY: a link leads to a line of the same slice, which the caller holds.
        at = ptr::with_exposed_provenance(unsafe { (*at).0[0] });
    }
    at
}

/// Links all lines to one random cycle (Sattolo 1986).
fn link(lines: &mut [Line], seed: u64) {
    let first = lines.as_ptr().expose_provenance();
    for (index, line) in lines.iter_mut().enumerate() {
        line.0[0] = first + index * LINE_BYTES;
    }
    let mut random = Random::stream(seed, 0);
    for last in (1..lines.len()).rev() {
        let other = random.below(last as u64) as usize;
        let next = lines[last].0[0];
        lines[last].0[0] = lines[other].0[0];
        lines[other].0[0] = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn linked(count: usize, seed: u64) -> Vec<usize> {
        let mut lines = vec![Line([0; _]); count];
        link(&mut lines, seed);
        let first = lines.as_ptr().addr();
        lines.iter().map(|line| (line.0[0] - first) / LINE_BYTES).collect()
    }

    proptest! {
        #[test]
        fn cycle_of_lines_visits_each_once(count in 1_usize..5000, seed: u64) {
            let next = linked(count, seed);
            let mut seen = vec![false; count];
            let mut at = 0;
            for _ in 0..count {
                prop_assert!(!std::mem::replace(&mut seen[at], true));
                at = next[at];
            }
            prop_assert_eq!(at, 0);
        }
    }

    #[test]
    fn cycle_of_another_seed_differs() {
        assert_eq!(linked(100, 1), linked(100, 1));
        assert_ne!(linked(100, 1), linked(100, 2));
    }

    #[test]
    fn copy_of_lines_ends_in_their_second_half() {
        let mut lines: Vec<Line> = (0..7).map(|number| Line([number; _])).collect();
        copy(&mut lines, 1);
        assert_eq!(lines.iter().map(|line| line.0[7]).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 6]);
        write(&mut lines, 9);
        assert!(lines.iter().all(|line| line.0 == [9; _]));
    }
}
