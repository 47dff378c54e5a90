//! The flags of meta commands and of their answers.

use crate::token::Tokens;

/// One flag of a meta command or response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaFlag<'a> {
    /// The flag's letter.
    pub letter: u8,
    /// The rest of the word, often empty.
    pub argument: &'a [u8],
}

/// The flags of a meta command or response, in the order of the line.
#[derive(Debug, Clone)]
pub struct MetaFlags<'a>(Tokens<'a>);

impl<'a> MetaFlags<'a> {
    pub(crate) fn new(words: &'a [u8]) -> Self {
        MetaFlags(Tokens::new(words))
    }
}

impl<'a> Iterator for MetaFlags<'a> {
    type Item = MetaFlag<'a>;

    fn next(&mut self) -> Option<MetaFlag<'a>> {
        let (&letter, argument) = self.0.next()?.split_first()?;
        Some(MetaFlag { letter, argument })
    }
}
