//! Totals since the start, for the summary and the admin port.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::NS_PER_S;
use crate::op::Op;
use crate::requests::{Counts, OpTotal};
use crate::role::{Reading as _, Role};
use crate::stage::{Stage, Times as _};
use crate::window::Window;

/// The totals of a process since its start.
#[derive(Clone, Debug)]
pub struct Totals<R: Role> {
    pub(crate) threads: Vec<ThreadTotal<R>>,
    pub(crate) ops: [Option<OpTotal>; Op::COUNT],
}

/// The totals of one thread since its start.
#[derive(Clone, Debug)]
pub(crate) struct ThreadTotal<R: Role> {
    pub(crate) name: String,
    pub(crate) cpu: Duration,
    pub(crate) connections: u64,
    /// `None` until its first window.
    pub(crate) reading: Option<R::Reading>,
    from_unix_ns: u64,
    /// The sum of its windows' lengths. Setting the wall clock does not change it.
    lived_ns: u64,
}

impl<R: Role> Totals<R> {
    pub(crate) fn new(thread_names: Vec<String>) -> Totals<R> {
        Totals {
            threads: thread_names
                .into_iter()
                .map(|name| ThreadTotal {
                    name,
                    cpu: Duration::ZERO,
                    connections: 0,
                    reading: None,
                    from_unix_ns: 0,
                    lived_ns: 0,
                })
                .collect(),
            ops: Default::default(),
        }
    }

    pub(crate) fn add(&mut self, window: &Window<R>) {
        let thread = &mut self.threads[window.thread];
        thread.cpu += window.cpu;
        thread.connections = window.connections;
        thread.lived_ns += window.to_unix_ns.saturating_sub(window.from_unix_ns);
        match &mut thread.reading {
            Some(reading) => reading.then(&window.reading),
            None => {
                thread.from_unix_ns = window.from_unix_ns;
                thread.reading = Some(window.reading.clone());
            }
        }
        for (total, window) in self.ops.iter_mut().zip(&window.ops) {
            if let Some(window) = window {
                total.get_or_insert_with(|| OpTotal::new(R::Times::STAGES.len())).add(window);
            }
        }
    }

    /// When the first thread began, in seconds of the Unix epoch; 0 before any window.
    pub fn started_unix_s(&self) -> f64 {
        self.span_unix_ns().0 as f64 / NS_PER_S as f64
    }

    /// When the last window ended, in seconds of the Unix epoch; 0 before any window.
    pub fn ended_unix_s(&self) -> f64 {
        self.span_unix_ns().1 as f64 / NS_PER_S as f64
    }

    /// From the first thread's start to the last window's end.
    pub fn seconds(&self) -> f64 {
        let (from, to) = self.span_unix_ns();
        to.saturating_sub(from) as f64 / NS_PER_S as f64
    }

    fn span_unix_ns(&self) -> (u64, u64) {
        let seen = || self.threads.iter().filter(|thread| thread.reading.is_some());
        let from = seen().map(|thread| thread.from_unix_ns).min();
        let to = seen().map(|thread| thread.from_unix_ns + thread.lived_ns).max();
        (from.unwrap_or(0), to.unwrap_or(0))
    }

    /// Counts of one type of request.
    pub fn counts(&self, op: Op) -> Counts {
        self.ops[op as usize].as_ref().map_or_else(Counts::default, |total| total.counts)
    }

    /// The histogram of one stage of one type of request, in nanoseconds. `None` if the type did not occur or the role
    /// does not time the stage.
    pub fn histogram(&self, op: Op, stage: Stage) -> Option<&Histogram<u64>> {
        let position = R::Times::STAGES.iter().position(|s| *s == stage)?;
        Some(&self.ops[op as usize].as_ref()?.histograms[position])
    }

    /// The threads' names and the CPU time of each.
    pub fn cpu(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.threads.iter().map(|thread| (thread.name.as_str(), thread.cpu))
    }

    /// Connections open at the end.
    pub fn connections(&self) -> u64 {
        self.threads.iter().map(|thread| thread.connections).sum()
    }

    /// The merged gauges of all threads; `None` before any window.
    pub fn reading(&self) -> Option<R::Reading> {
        self.threads.iter().filter_map(|thread| thread.reading.clone()).reduce(|mut all, thread| {
            all.beside(&thread);
            all
        })
    }

    pub(crate) fn ops(&self) -> impl Iterator<Item = (Op, &OpTotal)> {
        Op::ALL.into_iter().zip(&self.ops).filter_map(|(op, total)| Some((op, total.as_ref()?)))
    }
}
