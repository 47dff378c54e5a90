//! Base64, in which memcached reads and writes binary keys (RFC 4648, section 4, read leniently).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            out.push(if index <= chunk.len() {
                ALPHABET[(bits >> (18 - 6 * index)) as usize & 63]
            } else {
                b'='
            });
        }
    }
}

/// Passes the decoded bytes to `emit`. Returns false if memcached refuses the encoding.
///
/// As in memcached, characters outside the alphabet are skipped. The number of the others must be a positive multiple
/// of four. Padding may stand anywhere in its group. All characters after a padded group are ignored.
pub(crate) fn decode(encoded: &[u8], mut emit: impl FnMut(u8)) -> bool {
    let digits = encoded.iter().filter(|&&byte| value(byte).is_some()).count();
    if digits == 0 || digits % 4 != 0 {
        return false;
    }
    let (mut bits, mut count, mut padding) = (0u32, 0, 0);
    for &byte in encoded {
        let Some(value) = value(byte) else { continue };
        bits = bits << 6 | value;
        count += 1;
        padding += usize::from(byte == b'=');
        if count == 4 {
            if padding > 2 {
                return false;
            }
            bits.to_be_bytes()[1..4 - padding].iter().for_each(|&byte| emit(byte));
            if padding > 0 {
                break;
            }
            (bits, count) = (0, 0);
        }
    }
    true
}

/// The six bits of a character; padding counts as zero bits.
fn value(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        b'=' => 0,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(encoded, |byte| out.push(byte)).then_some(out)
    }

    #[test]
    fn vectors_of_rfc_4648_encode_and_decode() {
        let vectors: [(&[u8], &[u8]); 6] = [
            (b"f", b"Zg=="),
            (b"fo", b"Zm8="),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg=="),
            (b"fooba", b"Zm9vYmE="),
            (b"foobar", b"Zm9vYmFy"),
        ];
        for (plain, encoded) in vectors {
            let mut out = Vec::new();
            encode(plain, &mut out);
            assert_eq!(out, encoded);
            assert_eq!(decoded(encoded).as_deref(), Some(plain));
        }
    }

    #[test]
    fn odd_encodings_decode_as_in_memcached() {
        let rows: [(&[u8], Option<&[u8]>); 8] = [
            (b"", None),
            (b"Zm9", None),              // not a whole group
            (b"YWJj=", None),            // padding counts as a character
            (b"A===", None),             // three padding characters
            (b"YWJj!!!!", Some(b"abc")), // other characters are skipped
            (b"YW\tJj", Some(b"abc")),   // also within a group
            (b"YW=h", Some(b"a`")),      // padding in the middle of a group
            (b"YQ==YQ==", Some(b"a")),   // the first padded group is the last
        ];
        for (encoded, plain) in rows {
            assert_eq!(decoded(encoded).as_deref(), plain, "{}", encoded.escape_ascii());
        }
    }
}
