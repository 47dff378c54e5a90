//! Responses to bytes.

use super::number;
use crate::base64;

/// The value was stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// The condition of an `add`, `replace`, `append` or `prepend` did not hold.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// The cas token is outdated.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// The key is absent.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// The key was deleted.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// The expiry time was set.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// Done.
pub const OK: &[u8] = b"OK\r\n";
/// Statistics were set to zero.
pub const RESET: &[u8] = b"RESET\r\n";
/// The end of a retrieval or of statistics.
pub const END: &[u8] = b"END\r\n";
/// The answer to `shutdown` if the command is not enabled.
pub const SHUTDOWN_DISABLED: &[u8] = b"ERROR: shutdown not enabled\r\n";

/// Code of a meta response: done, or a hit without its value. Flags and [`line_end`] follow.
pub const META_DONE: &[u8] = b"HD";
/// Code of a meta response: a miss of `mg` or `me`.
pub const META_MISS: &[u8] = b"EN";
/// Code of a meta response: the key is absent.
pub const META_NOT_FOUND: &[u8] = b"NF";
/// Code of a meta response: the mode's condition did not hold.
pub const META_NOT_STORED: &[u8] = b"NS";
/// Code of a meta response: the cas token is outdated.
pub const META_EXISTS: &[u8] = b"EX";
/// The whole answer to `mn`.
pub const META_NOOP: &[u8] = b"MN\r\n";

/// Appends one value of a retrieval. `cas` is for `gets` and `gats`. [`END`] follows the last value.
#[inline]
pub fn value(key: &[u8], flags: u32, value: &[u8], cas: Option<u64>, out: &mut Vec<u8>) {
    out.reserve(key.len() + value.len() + 64);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number(u64::from(flags), out);
    out.push(b' ');
    number(value.len() as u64, out);
    if let Some(cas) = cas {
        out.push(b' ');
        number(cas, out);
    }
    line_end(out);
    out.extend_from_slice(value);
    line_end(out);
}

/// Appends a counter's new value, the answer to `incr` and `decr`.
pub fn number_line(value: u64, out: &mut Vec<u8>) {
    number(value, out);
    line_end(out);
}

/// Appends one statistic. [`END`] follows the last statistic.
pub fn stat(name: &str, value: impl std::fmt::Display, out: &mut Vec<u8>) {
    use std::io::Write;
    // Writing to a vector cannot fail.
    let _ = write!(out, "STAT {name} {value}\r\n");
}

/// Appends the answer to `version`.
pub fn version_line(version: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    line_end(out);
}

/// Appends the beginning of a meta response with a value. Flags, [`line_end`], the value and another [`line_end`]
/// follow.
pub fn meta_value_header(value_bytes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"VA ");
    number(value_bytes as u64, out);
}

/// Appends a flag of a request or a response.
pub fn meta_flag(letter: u8, argument: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[b' ', letter]);
    out.extend_from_slice(argument);
}

/// Appends a flag with a number.
pub fn meta_flag_number(letter: u8, argument: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b' ', letter]);
    number(argument, out);
}

/// Appends the flag `k` with the key. A `binary` key is written in base64, followed by the flag `b`.
pub fn meta_key(key: &[u8], binary: bool, out: &mut Vec<u8>) {
    if binary {
        out.extend_from_slice(b" k");
        base64::encode(key, out);
        out.extend_from_slice(b" b");
    } else {
        meta_flag(b'k', key, out);
    }
}

/// Appends the end of a line, or of a value.
#[inline]
pub fn line_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}
