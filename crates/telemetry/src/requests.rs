//! Requests of one type: within a window, and since the start.

use hdrhistogram::{Counter, Histogram};

use crate::histogram;
use crate::op::Op;
use crate::stage::STAGES_MAX;

/// Requests of one type, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests completed.
    pub count: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Keys asked for.
    pub items: u64,
    /// Keys found.
    pub hits: u64,
    /// Keys not found.
    pub misses: u64,
    /// Bytes read for these requests.
    pub bytes_in: u64,
    /// Bytes written for these requests.
    pub bytes_out: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.count += other.count;
        self.errors += other.errors;
        self.items += other.items;
        self.hits += other.hits;
        self.misses += other.misses;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

/// Requests of one type: counts, stage time sums, stage histograms.
#[derive(Clone, Debug)]
pub(crate) struct Requests<C: Counter> {
    pub(crate) counts: Counts,
    /// Sums over the requests, in the order of the role's stages.
    pub(crate) sums_ns: [u64; STAGES_MAX],
    /// One histogram per stage of the role, in the same order.
    pub(crate) histograms: Vec<Histogram<C>>,
}

/// Requests within a window.
pub(crate) type OpWindow = Requests<u32>;

/// The requests of a window by type; a type that did not occur has none.
pub(crate) type OpWindows = [Option<OpWindow>; Op::COUNT];

/// Requests since the start.
pub(crate) type OpTotal = Requests<u64>;

impl<C: Counter> Requests<C> {
    pub(crate) fn new(stages: usize) -> Requests<C> {
        Requests {
            counts: Counts::default(),
            sums_ns: [0; STAGES_MAX],
            histograms: (0..stages).map(|_| histogram::empty()).collect(),
        }
    }

    /// Adds all but the histograms.
    fn add_sums(&mut self, window: &OpWindow) {
        self.counts.add(&window.counts);
        for (sum, more) in self.sums_ns.iter_mut().zip(window.sums_ns) {
            *sum += more;
        }
    }
}

impl OpWindow {
    /// Resets every count to 0, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.counts = Counts::default();
        self.sums_ns = [0; STAGES_MAX];
        for histogram in &mut self.histograms {
            histogram.reset();
        }
    }

    pub(crate) fn add(&mut self, other: &OpWindow) {
        self.add_sums(other);
        for (histogram, more) in self.histograms.iter_mut().zip(&other.histograms) {
            histogram.add(more).expect("every histogram has the same bounds");
        }
    }
}

impl OpTotal {
    pub(crate) fn add(&mut self, window: &OpWindow) {
        self.add_sums(window);
        for (total, more) in self.histograms.iter_mut().zip(&window.histograms) {
            histogram::accumulate(total, more);
        }
    }
}
