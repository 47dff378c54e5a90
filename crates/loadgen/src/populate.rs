//! The phase that fills memcached servers: it sets the first keys, in order, on every server.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use knee_proto::encode;
use knee_telemetry::tell;
use serde_json::json;

use crate::error::Error;
use crate::items::Items;
use crate::run::{CONNECT_TIMEOUT, end_with};

/// Number of sets in flight on each server's connection: enough to keep the server busy, and few enough for other
/// clients.
const IN_FLIGHT_MAX: u64 = 64;

/// A write with this many bytes takes no further set.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// The length of the longest answer to a set.
const RESPONSE_BYTES_MAX: u64 = 4096;

pub(crate) const PROGRESS: Duration = Duration::from_secs(1);

/// How long an answer may take.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Sets the first `share` of the keys on each of `servers`, and returns a summary as a line of JSON.
///
/// # Errors
/// When anything is not stored, with the server's answer; when interrupted.
pub(crate) fn populate(
    servers: &[SocketAddr],
    items: Items,
    share: f64,
    parent: Option<u32>,
) -> Result<String, Error> {
    let total = items.keys.count();
    let keys = share_of(total, share);
    if keys > 0 {
        let (outcome, outcomes) = channel();
        let interrupted = outcome.clone();
        end_with(parent, move || {
            // The receiver takes only the first failure.
            let _ = interrupted.send(Err(Error::Interrupted));
        })?;
        let stored = Arc::<AtomicU64>::default();
        for &server in servers {
            let (items, stored, outcome) = (items.clone(), Arc::clone(&stored), outcome.clone());
            let fill = move || {
                let filled = fill(server, &items, keys, &stored);
                let _ = outcome.send(filled.map_err(|why| Error::Populate { server, why }));
            };
            thread::Builder::new().name("populate".into()).spawn(fill).map_err(Error::System)?;
        }
        let tell = || tell_progress(stored.load(Ordering::Relaxed), keys * servers.len() as u64);
        let mut left = servers.len();
        while left > 0 {
            match outcomes.recv_timeout(PROGRESS) {
                Ok(filled) => {
                    filled?;
                    left -= 1;
                }
                Err(_) => tell(),
            }
        }
        tell();
    }
    Ok(summary(servers, total, share, keys))
}

pub(crate) fn share_of(total: u64, share: f64) -> u64 {
    (total as f64 * share).round() as u64
}

/// The summary, as a line of JSON, when every server has `stored` of `keys` keys.
pub(crate) fn summary(servers: &[SocketAddr], keys: u64, share: f64, stored: u64) -> String {
    let servers: Vec<_> =
        servers.iter().map(|address| json!({ "address": address, "stored": stored })).collect();
    let populate = json!({ "keys": keys, "share": share, "servers": servers });
    json!({ "type": "summary", "role": "load", "populate": populate }).to_string()
}

pub(crate) fn tell_progress(stored: u64, wanted: u64) {
    let percent = stored * 100 / wanted;
    tell("knee-load", format_args!("stored {stored} of {wanted} values ({percent} %)"));
}

/// Sets the first `keys` keys on one server. The error is the predicate of a message about the server.
fn fill(server: SocketAddr, items: &Items, keys: u64, stored: &AtomicU64) -> Result<(), String> {
    let lost = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock => format!("no answer for {} s", ANSWER_TIMEOUT.as_secs()),
        ErrorKind::TimedOut => format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()),
        _ => error.to_string(),
    };
    let mut stream = TcpStream::connect_timeout(&server, CONNECT_TIMEOUT).map_err(lost)?;
    stream.set_nodelay(true).map_err(lost)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(lost)?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT)).map_err(lost)?;
    let mut answers = BufReader::new(stream.try_clone().map_err(lost)?);
    let (mut sent, mut answered) = (0, 0);
    let (mut output, mut answer) = (Vec::new(), Vec::new());
    while answered < keys {
        output.clear();
        while sent < keys.min(answered + IN_FLIGHT_MAX) && output.len() < OUTPUT_BYTES_MAX {
            items.append_store("set", sent as u32, &mut output);
            sent += 1;
        }
        stream.write_all(&output).map_err(lost)?;
        // While the server works on the later half, this side prepares the next sets.
        let half = if sent == keys { sent } else { sent.min(answered + IN_FLIGHT_MAX / 2) };
        while answered < half {
            answer.clear();
            let mut line = (&mut answers).take(RESPONSE_BYTES_MAX);
            if line.read_until(b'\n', &mut answer).map_err(lost)? == 0 {
                return Err(format!("it closed the connection after {answered} keys"));
            }
            if answer != encode::STORED {
                let mut key = Vec::new();
                items.keys.append(answered as u32, &mut key);
                let (key, answer) = (key.escape_ascii(), answer.trim_ascii_end().escape_ascii());
                return Err(format!("it answered the set of {key} with {answer}"));
            }
            answered += 1;
            stored.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}
