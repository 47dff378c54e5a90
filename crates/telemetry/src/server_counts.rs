//! Counts of a server behind a middleware.

use serde::Serialize;

/// One server as one middleware thread sees it.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct ServerCounts {
    /// Its address, `HOST:PORT`.
    pub address: String,
    /// Number of requests sent to it.
    pub requests: u64,
    /// Bytes of these requests and of their answers; at `knee-space`, of the data that they read or write.
    pub bytes: u64,
    /// Number of requests that it answered with an error line, or not at all.
    pub errors: u64,
    /// How often it was taken out.
    pub ejected: u64,
    /// Probes, each because an answer was late.
    pub probes: u64,
    /// Number of reads that were sent again, to another server.
    pub retries: u64,
    /// Connections closed because an answer did not fit its request; in the metrics only.
    #[serde(skip)]
    pub mismatches: u64,
    /// Whether it is in use; for a whole process, whether every thread uses it.
    pub up: bool,
}

impl ServerCounts {
    /// Returns the counts, and begins anew.
    pub(crate) fn take(&mut self) -> ServerCounts {
        let ServerCounts { address, up, .. } = &*self;
        let (address, up) = (address.clone(), *up);
        std::mem::replace(self, ServerCounts { address, up, ..ServerCounts::default() })
    }

    pub(crate) fn add(&mut self, other: &ServerCounts) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.ejected += other.ejected;
        self.probes += other.probes;
        self.retries += other.retries;
        self.mismatches += other.mismatches;
    }
}
