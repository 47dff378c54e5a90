//! What the servers of both kinds share: limits of the event loop, the handshake, records.

use std::time::Duration;

use knee_nbd::{
    Command, DATA_BYTES_MAX, Errno, Export, Negotiation, REPLY_BYTES, REQUEST_BYTES, Request, Step,
};
use knee_reactor::{Config, ConnId, Io};
use knee_server::Trace;
use knee_telemetry::Op;

/// After this much output, a client's next requests wait until the batch has been sent. One reply of 128 KiB fits, and
/// its buffer returns to the event loop's pool.
pub(crate) const OUTPUT_BYTES_MAX: usize = 128 * 1024;
/// Reads up to this length do not wait for memory.
pub(crate) const SHORT_BYTES: u32 = 4096;
/// Unsent output at which no further request of a client is taken, and at which taking resumes.
const OUTPUT_HIGH_WATER_BYTES: usize = 256 * 1024;
const OUTPUT_LOW_WATER_BYTES: usize = 64 * 1024;
/// Input of a connection besides one request with data.
const INPUT_BYTES: usize = 1 << 20;

/// Timer keys.
pub(crate) const WINDOW: u64 = 0;
pub(crate) const DRAIN: u64 = 1;
/// The interval of checks whether the last replies have left.
pub(crate) const DRAIN_POLL: Duration = Duration::from_millis(5);

/// Limits that the command line sets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Largest number of clients at a time; further ones are refused.
    pub(crate) clients_max: usize,
    /// Memory for unfinished requests and unread replies of all clients, in bytes.
    pub(crate) buffered_bytes_max: usize,
}

impl Limits {
    pub(crate) fn loop_config(&self) -> Config {
        Config {
            input_bytes_max: DATA_BYTES_MAX as usize + INPUT_BYTES,
            output_high_water_bytes: OUTPUT_HIGH_WATER_BYTES,
            output_low_water_bytes: OUTPUT_LOW_WATER_BYTES,
            buffered_bytes_max: self.buffered_bytes_max,
            connections_max: self.clients_max,
            request_bytes_max: DATA_BYTES_MAX as usize + REQUEST_BYTES.max(REPLY_BYTES),
            ..Config::default()
        }
    }
}

/// Takes the messages of a handshake. Returns their length, and whether requests follow.
pub(crate) fn negotiate(
    negotiation: &mut Negotiation,
    export: &Export,
    io: &mut Io,
    conn: ConnId,
    input: &[u8],
) -> (usize, bool) {
    let (mut at, mut out) = (0, Vec::new());
    let transmits = loop {
        match negotiation.take(&input[at..], export, &mut out) {
            Ok(Step::Incomplete) => break false,
            Ok(Step::Next(consumed)) => at += consumed,
            Ok(Step::Transmit(consumed)) => {
                at += consumed;
                break true;
            }
            Ok(Step::Leave) => {
                io.write(conn, &out);
                io.close_when_sent(conn);
                return (input.len(), false);
            }
            Err(_) => {
                io.close(conn);
                return (input.len(), false);
            }
        }
    };
    if !out.is_empty() {
        io.write(conn, &out);
    }
    (at, transmits)
}

/// The type under which a request is recorded.
pub(crate) fn operation(command: Command) -> Op {
    match command {
        Command::Read => Op::Read,
        Command::Write => Op::Write,
        _ => Op::Other,
    }
}

/// Writes the line of a request.
pub(crate) fn trace_request(trace: &Trace, request: &Request, error: Errno, total_ns: u64) {
    let Request { flags, command, offset, length, .. } = request;
    let total_us = total_ns as f64 / 1000.0;
    trace.tell(format_args!(
        "{command:?} offset={offset} length={length} flags={flags} error={error} total={total_us:.1}us"
    ));
}
