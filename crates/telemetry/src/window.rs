//! The records of a window, and how windows add up.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use crate::pool::Pool;
use crate::requests::OpWindows;
use crate::role::{Reading as _, Role};

/// The records of one thread from one cut to the next, as plain data to send.
#[derive(Debug)]
pub struct Window<R: Role> {
    pub(crate) thread: usize,
    /// Start and end, on the wall clock: whole seconds, except at a thread's start and end.
    pub(crate) from_unix_ns: u64,
    pub(crate) to_unix_ns: u64,
    /// CPU time that the thread used.
    pub(crate) cpu: Duration,
    /// Number of connections open at the end.
    pub(crate) connections: u64,
    pub(crate) ops: OpWindows,
    pub(crate) reading: R::Reading,
    /// Whether the thread will send no more.
    pub(crate) last: bool,
    /// The number of the thread's windows that wait for the reporter, including this one.
    pub(crate) waiting: Arc<AtomicUsize>,
}

impl<R: Role> Window<R> {
    /// Adds a later window of the same thread.
    pub(crate) fn then(&mut self, later: Window<R>, pool: &Pool) {
        self.from_unix_ns = self.from_unix_ns.min(later.from_unix_ns);
        self.to_unix_ns = self.to_unix_ns.max(later.to_unix_ns);
        self.cpu += later.cpu;
        self.connections = later.connections;
        self.reading.then(&later.reading);
        self.last = later.last;
        add_ops(&mut self.ops, later.ops, pool);
    }
}

/// Adds `more` to `ops`, type by type, and returns unused memory to the pool.
pub(crate) fn add_ops(ops: &mut OpWindows, more: OpWindows, pool: &Pool) {
    for (op, more) in ops.iter_mut().zip(more) {
        match (op, more) {
            (Some(op), Some(more)) => {
                op.add(&more);
                pool.give(more);
            }
            (op @ None, more) => *op = more,
            (Some(_), None) => {}
        }
    }
}
