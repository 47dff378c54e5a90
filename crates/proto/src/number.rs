//! Numbers, read as memcached reads them.
//!
//! memcached reads numbers with `strtoll` and similar functions, and checks only that white space or the word's end
//! follows. So it takes ` 7`, `+7` and `7\tx` for numbers. The common case, digits alone, has a fast path here.

/// An unsigned 64-bit number (`safe_strtoull`).
#[inline]
pub(crate) fn parse_u64(word: &[u8]) -> Option<u64> {
    if let Some(value) = parse_digits(word) {
        return Some(value);
    }
    let (negative, magnitude) = parse_c(word)?;
    // C negates with wrap-around. memcached refuses a minus sign only if the result, as a signed number, is negative.
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    (!negative || value <= i64::MAX as u64).then_some(value)
}

/// An unsigned number cut to its low 32 bits (`safe_strtoul`: 2^32 is read as 0).
#[inline]
pub(crate) fn parse_u32(word: &[u8]) -> Option<u32> {
    parse_u64(word).map(|value| value as u32)
}

/// A signed 64-bit number cut to its low 32 bits (`safe_strtol`: 2^31 is read as -2^31).
#[inline]
pub(crate) fn parse_i32(word: &[u8]) -> Option<i32> {
    parse_i64(word).map(|value| value as i32)
}

/// A signed 64-bit number.
#[inline]
pub(crate) fn parse_i64(word: &[u8]) -> Option<i64> {
    if let Some(value) = parse_digits(word) {
        return i64::try_from(value).ok();
    }
    let (negative, magnitude) = parse_c(word)?;
    let value = i128::from(magnitude);
    i64::try_from(if negative { -value } else { value }).ok()
}

/// A number of one to nineteen digits and nothing else, which cannot overflow.
#[inline]
pub(crate) fn parse_digits(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 19 {
        return None;
    }
    let mut value = 0u64;
    for byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// The sign and magnitude that C's `strtoull` reads: white space, a sign, digits, then white space or the end.
#[cold]
fn parse_c(word: &[u8]) -> Option<(bool, u64)> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = word.iter().position(|byte| !is_space(byte))?;
    let mut rest = &word[start..];
    let negative = rest[0] == b'-';
    if matches!(rest[0], b'-' | b'+') {
        rest = &rest[1..];
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || rest.get(digits).is_some_and(|byte| !is_space(byte)) {
        return None;
    }
    let mut magnitude = 0u64;
    for byte in &rest[..digits] {
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    Some((negative, magnitude))
}
