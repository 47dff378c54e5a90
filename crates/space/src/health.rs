//! Which machines are online: shared by the threads of a manager.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use knee_telemetry::tell;

use crate::PROGRAM;

/// The state of every machine. Only connecting and losing one changes it.
#[derive(Debug)]
pub(crate) struct Health {
    machines: Vec<Machine>,
    threads: usize,
}

#[derive(Debug)]
struct Machine {
    name: String,
    /// The number of threads that use it.
    threads: AtomicUsize,
    /// Closed connections of all threads with changes that it may still execute.
    lingering: AtomicUsize,
    /// Whether it was reported as out.
    is_out: AtomicBool,
}

impl Health {
    pub(crate) fn new(names: Vec<String>, threads: usize) -> Health {
        let machine = |name| {
            let (threads, lingering, is_out) = Default::default();
            Machine { name, threads, lingering, is_out }
        };
        Health { machines: names.into_iter().map(machine).collect(), threads }
    }

    /// The names of the machines, and whether every thread uses them.
    pub(crate) fn machines(&self) -> impl Iterator<Item = (&str, bool)> {
        self.machines.iter().map(|machine| {
            let online = machine.threads.load(Ordering::Relaxed) == self.threads;
            (machine.name.as_str(), online)
        })
    }

    /// A thread uses the machine. Reports its return.
    pub(crate) fn enter(&self, machine: usize) {
        let Machine { name, threads, is_out, .. } = &self.machines[machine];
        let all = threads.fetch_add(1, Ordering::Relaxed) + 1 == self.threads;
        if all && is_out.swap(false, Ordering::Relaxed) {
            tell(PROGRAM, format_args!("store {name} is in again"));
        }
    }

    /// Whether the machine may still execute changes that have failed. No thread uses it then.
    pub(crate) fn lingers(&self, machine: usize) -> bool {
        self.machines[machine].lingering.load(Ordering::Relaxed) > 0
    }

    /// A connection with such changes is closed. Note it before the changes fail.
    pub(crate) fn linger(&self, machine: usize) {
        self.machines[machine].lingering.fetch_add(1, Ordering::Relaxed);
    }

    /// The machine has closed its end of such a connection.
    pub(crate) fn hung_up(&self, machine: usize) {
        self.machines[machine].lingering.fetch_sub(1, Ordering::Relaxed);
    }

    /// A thread has lost the machine, which it used if `used`. Reports the first loss.
    pub(crate) fn leave(&self, machine: usize, used: bool, why: &str) {
        let Machine { name, threads, is_out, .. } = &self.machines[machine];
        if used {
            threads.fetch_sub(1, Ordering::Relaxed);
        }
        if !is_out.swap(true, Ordering::Relaxed) {
            let message = format_args!(
                "store {name} is out: {why}; requests that touch it fail until it returns"
            );
            tell(PROGRAM, message);
        }
    }
}
