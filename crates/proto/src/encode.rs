//! Requests and responses to bytes, appended to the caller's buffer.

mod request;
mod response;

pub use request::{gat, get, request, request_with_opaque, store, version};
pub use response::{
    DELETED, END, EXISTS, META_DONE, META_EXISTS, META_MISS, META_NOOP, META_NOT_FOUND,
    META_NOT_STORED, NOT_FOUND, NOT_STORED, OK, RESET, SHUTDOWN_DISABLED, STORED, TOUCHED,
    line_end, meta_flag, meta_flag_number, meta_key, meta_value_header, number_line, stat, value,
    version_line,
};

/// Appends a number in decimal.
#[inline]
pub fn number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends a signed number in decimal.
#[inline]
pub fn signed_number(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    number(value.unsigned_abs(), out);
}
