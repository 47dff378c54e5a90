//! The words of a command line.

/// Splits at spaces, and at spaces only: a tab or a control character is part of a word, as in
/// memcached.
#[derive(Debug, Clone)]
pub(crate) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Tokens { rest: line }
    }

    /// What follows the last word taken.
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
        let end = word.iter().position(|&byte| byte == b' ').unwrap_or(word.len());
        self.rest = &word[end..];
        Some(&word[..end])
    }
}
