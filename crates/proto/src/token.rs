//! The words of a command line.

/// Splits only at spaces, as memcached does: a tab or a control character is part of a word.
#[derive(Debug, Clone)]
pub(crate) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Tokens { rest: line }
    }

    /// The part of the line after the last word taken.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&byte| byte != b' ')?;
        let word = &self.rest[start..];
        let (word, rest) = word.split_at(find_space(word));
        self.rest = rest;
        Some(word)
    }
}

/// The place of the first space, or the length. Words are short, so a vectorised search does not pay. Instead, eight
/// bytes at a time are tested in a register (the zero-byte test of Mycroft, 1987).
#[inline]
fn find_space(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH_BITS: u64 = ONES << 7;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk() {
        let zero_where_space = u64::from_le_bytes(*chunk) ^ (ONES * b' ' as u64);
        let found = zero_where_space.wrapping_sub(ONES) & !zero_where_space & HIGH_BITS;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    bytes[at..].iter().position(|&byte| byte == b' ').map_or(bytes.len(), |place| at + place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_every_length_at_every_place_are_found() {
        for blanks in 0..20 {
            for length in 1..40 {
                // A bit trick could take these bytes for a space: neighbours of the space, also with the high bit set.
                for byte in [b'!', 0x1f, 0xa0, 0xa1] {
                    let word = vec![byte; length];
                    let line = [&vec![b' '; blanks], &word[..], b"  ", &word].concat();
                    let words: Vec<_> = Tokens::new(&line).collect();
                    assert_eq!(words, [&word[..], &word], "{blanks} blanks, {length} bytes");
                }
            }
        }
    }
}
