//! Prints a request and its times on one line, for `--trace`.

use knee_telemetry::{Op, Stamps, elapsed_ns, tell};

use crate::server::Server;

/// A traced request, kept until its reply has left.
#[derive(Debug)]
pub(crate) struct Trace {
    op: Op,
    /// Its first line, shortened.
    line: String,
    servers: String,
}

/// Longest printed part of a line.
const LINE_CHARS_MAX: usize = 120;

impl Trace {
    pub(crate) fn new(op: Op, request: &[u8], tried: u64, servers: &[Server]) -> Trace {
        let line = request.split(|&byte| byte == b'\r' || byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).chars().take(LINE_CHARS_MAX).collect();
        let asked: Vec<&str> = servers
            .iter()
            .enumerate()
            .filter(|(index, _)| tried >> index & 1 == 1)
            .map(|(_, server)| server.name.as_str())
            .collect();
        Trace { op, line, servers: asked.join(",") }
    }

    pub(crate) fn print(&self, stamps: &Stamps, error: bool) {
        let us = |from, to| elapsed_ns(from, to) as f64 / 1000.0;
        let message = format_args!(
            "trace {} {:?} servers={} queued={:.1}us sending={:.1}us waiting={:.1}us \
             replying={:.1}us total={:.1}us{}",
            self.op.name(),
            self.line,
            self.servers,
            us(stamps.received, stamps.dequeued),
            us(stamps.dequeued, stamps.sent),
            us(stamps.sent, stamps.answered),
            us(stamps.answered, stamps.replied),
            us(stamps.received, stamps.replied),
            if error { " error" } else { "" },
        );
        tell("knee-proxy", message);
    }
}
