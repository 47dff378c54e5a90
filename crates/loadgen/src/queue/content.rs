//! The content of messages: sender, number, and random letters. The letters are random because PostgreSQL compresses
//! long values. PostgreSQL would store a repeated word in a hundredth of its length, and the load would measure
//! compression.

use std::iter;
use std::sync::LazyLock;

use knee_random::Random;

/// The length of the longest content.
pub(crate) const CHARACTERS_MAX: usize = 1 << 28;

/// The letters of random content. Six random bits choose a letter.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The number of letters from one random number of 64 bits.
const PER_NUMBER: usize = 10;

/// Random letters from which all messages are cut: drawing letters for each message would take time between requests.
/// The block is larger than the window of PostgreSQL's compressors, 4 or 64 KiB.
static BLOCK: LazyLock<String> = LazyLock::new(|| {
    let mut random = Random::stream(0, 0);
    let mut block = String::with_capacity(BLOCK_BYTES + PER_NUMBER);
    while block.len() < BLOCK_BYTES {
        let bits = random.bits();
        let letter = |place| char::from(LETTERS[(bits >> (6 * place)) as usize % LETTERS.len()]);
        block.extend((0..PER_NUMBER).map(letter));
    }
    block.truncate(BLOCK_BYTES);
    block
});
const BLOCK_BYTES: usize = 1 << 20;

pub(super) fn content(sender: u32, number: u64, characters: usize) -> String {
    let mut content = format!("{sender}:{number} ");
    content.truncate(characters);
    content.reserve_exact(characters - content.len());
    content.extend(behind(sender, number, characters - content.len()));
    content
}

/// The content after its head, in pieces.
fn behind(sender: u32, number: u64, characters: usize) -> impl Iterator<Item = &'static str> {
    let mut left = characters;
    let mut from = Random::stream(u64::from(sender), number).bits() as usize % BLOCK_BYTES;
    iter::from_fn(move || {
        let piece = &BLOCK[from..(from + left).min(BLOCK_BYTES)];
        (left, from) = (left - piece.len(), 0);
        (!piece.is_empty()).then_some(piece)
    })
}

pub(super) fn is_of(said: &str, sender: u32, characters: usize) -> bool {
    let head = format!("{sender}:");
    let number = said.split_once(' ').map(|(first, _)| first.strip_prefix(&head));
    said.len() == characters
        && match number {
            // The content ends within its head.
            None => said.starts_with(&head) || head.starts_with(said),
            Some(number) => number
                .and_then(|number| number.parse().ok())
                .is_some_and(|number| is_message(said, sender, number)),
        }
}

fn is_message(said: &str, sender: u32, number: u64) -> bool {
    let rest = said.strip_prefix(&format!("{sender}:{number} "));
    rest.is_some_and(|mut rest| {
        behind(sender, number, rest.len())
            .all(|piece| rest.strip_prefix(piece).map(|behind| rest = behind).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_names_its_sender() {
        assert!(content(7, 12, 12).starts_with("7:12 "));
        for characters in [1, 2, 3, 4, 5, 6, 200] {
            let said = content(7, 12, characters);
            assert!(is_of(&said, 7, characters), "{said}");
            assert!(!is_of(&said, 8, characters), "{said}");
            assert!(!is_of(&said, 7, characters + 1), "{said}");
        }
        let said = content(7, 12, 200);
        assert!(!is_of(&said.replacen("7:12 ", "7:13 ", 1), 7, 200));
        assert!(!is_of(&said.replacen("7:12 ", "7:012 ", 1)[..200], 7, 200));
        let (but_one, last) = said.split_at(199);
        let other = if last == "x" { "y" } else { "x" };
        assert!(!is_of(&format!("{but_one}{other}"), 7, 200));
    }

    #[test]
    fn content_may_be_longer_than_the_block() {
        let characters = 2 * BLOCK_BYTES + 100;
        let said = content(1, 2, characters);
        assert!(said.len() == characters && is_of(&said, 1, characters));
        assert!(!is_of(&said[..characters - 1], 1, characters));
        assert_ne!(said["1:2 ".len()..][..100], content(1, 3, 200)["1:3 ".len()..][..100]);
    }

    /// All letters have similar frequencies, and sequences of four letters repeat only by chance.
    #[test]
    fn content_cannot_be_compressed() {
        let said = content(7, 12, 4096);
        let said = &said.as_bytes()["7:12 ".len()..];
        let mut counts = [0; 256];
        said.iter().for_each(|&letter| counts[usize::from(letter)] += 1);
        let letters = counts.iter().filter(|&&count| count > 0).count();
        assert_eq!(letters, 64);
        assert!(counts.iter().all(|&count| count < 128), "64 of each are expected");
        let mut fours: Vec<_> = said.windows(4).collect();
        let all = fours.len();
        fours.sort_unstable();
        fours.dedup();
        assert!(all - fours.len() < 10, "{} of {all} come again", all - fours.len());
    }
}
