//! The answers of the meta commands, flag by flag.

use knee_kv_cache::engine::{Expiry, Item, Second, Version};
use knee_proto::{Meta, MetaFlag, encode};

use super::{BINARY_KEY, STALE, WON, expiry};

/// The expiry of an item after all flags have been applied in order.
pub(super) fn expiry_after(meta: &Meta<'_>, before: Expiry, created: bool, now: Second) -> Expiry {
    meta.flags().fold(before, |end, flag| match flag.letter {
        b'T' => expiry(meta.options.exptime, now),
        b'N' if created => expiry(meta.options.vivify_exptime, now),
        _ => end,
    })
}

/// Appends the answer to an `mg` that found or `created` the item. Returns whether this client won the right to
/// recache the item. The flags apply in order.
pub(super) fn show_item(
    meta: &Meta<'_>,
    key: &[u8],
    item: &Item<'_>,
    created: bool,
    now: Second,
    out: &mut Vec<u8>,
) -> bool {
    let with_value = meta.has(b'v');
    if with_value {
        encode::meta_value_header(item.value.len(), out);
    } else {
        out.extend_from_slice(encode::META_DONE);
    }
    let mut end = item.expiry;
    let mut won = false;
    for flag in meta.flags() {
        match flag.letter {
            b'T' => end = expiry(meta.options.exptime, now),
            b'N' if created => {
                end = expiry(meta.options.vivify_exptime, now);
                won = true;
            }
            b'R' => {
                let recache = expiry(meta.options.recache_exptime, now);
                won |= !created && item.marks & WON == 0 && end != Expiry::NEVER && end < recache;
            }
            b's' => encode::meta_flag_number(b's', item.value.len() as u64, out),
            b't' => show_time_left(end, now, out),
            b'c' => encode::meta_flag_number(b'c', item.version, out),
            b'f' => encode::meta_flag_number(b'f', item.flags.into(), out),
            b'l' => {
                encode::meta_flag_number(b'l', now.saturating_sub(item.used_at).into(), out);
            }
            b'h' => encode::meta_flag_number(b'h', item.read.into(), out),
            b'O' => encode::meta_flag(b'O', flag.argument, out),
            b'k' => encode::meta_key(key, is_shown_encoded(key, item.marks), out),
            _ => {}
        }
    }
    if item.marks & WON != 0 {
        encode::meta_flag(b'Z', b"", out);
    }
    if item.marks & STALE != 0 {
        encode::meta_flag(b'X', b"", out);
        won |= item.marks & WON == 0;
    }
    if won {
        encode::meta_flag(b'W', b"", out);
    }
    encode::line_end(out);
    if with_value {
        out.extend_from_slice(item.value);
        encode::line_end(out);
    }
    won
}

/// Whether an answer shows an item's key in base64. Other than in memcached, this includes keys of `mg`, `ma` or gRPC
/// that would break the answer's line.
pub(super) fn is_shown_encoded(key: &[u8], marks: u8) -> bool {
    marks & BINARY_KEY != 0 || key.iter().any(|byte| matches!(byte, 0 | b'\n' | b' '))
}

/// Appends the answer to an `ma` that changed or created the counter. `old_expiry` is the expiry before the change.
pub(super) fn show_counter(
    meta: &Meta<'_>,
    key: &[u8],
    value: u64,
    version: Version,
    old_expiry: Option<Expiry>,
    now: Second,
    out: &mut Vec<u8>,
) {
    let with_value = meta.has(b'v');
    if with_value {
        let digits = value.checked_ilog10().map_or(1, |log| log as usize + 1);
        encode::meta_value_header(digits, out);
    } else {
        out.extend_from_slice(encode::META_DONE);
    }
    let mut end = old_expiry.unwrap_or(Expiry::NEVER);
    for flag in meta.flags() {
        match flag.letter {
            b'T' => end = expiry(meta.options.exptime, now),
            b'N' if old_expiry.is_none() => end = expiry(meta.options.vivify_exptime, now),
            b't' => show_time_left(end, now, out),
            b'c' => encode::meta_flag_number(b'c', version, out),
            _ => show_request_flag(meta, key, flag, out),
        }
    }
    encode::line_end(out);
    if with_value {
        encode::number_line(value, out);
    }
}

/// The flag `t`: the remaining seconds, or -1 without an expiry.
fn show_time_left(end: Expiry, now: Second, out: &mut Vec<u8>) {
    match end.second() {
        None => encode::meta_flag(b't', b"-1", out),
        // Only the request that expired an item sees it expired; memcached's 32-bit difference wraps there.
        Some(end) => encode::meta_flag_number(b't', end.wrapping_sub(now).into(), out),
    }
}

/// Appends the flags that an answer repeats, and the end of the line.
pub(super) fn show_request_flags(meta: &Meta<'_>, key: &[u8], out: &mut Vec<u8>) {
    for flag in meta.flags() {
        show_request_flag(meta, key, flag, out);
    }
    encode::line_end(out);
}

pub(super) fn show_request_flag(
    meta: &Meta<'_>,
    key: &[u8],
    flag: MetaFlag<'_>,
    out: &mut Vec<u8>,
) {
    match flag.letter {
        b'O' => encode::meta_flag(b'O', flag.argument, out),
        b'k' => encode::meta_key(key, meta.has(b'b'), out),
        _ => {}
    }
}
