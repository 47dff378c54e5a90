//! What messages say: who sent them and the how manieth they are, and then what no database can store in
//! less than its length. PostgreSQL compresses what is long: of a word that is said over and over it
//! writes a hundredth, and what is measured is its compression.

use knee_random::Random;

/// The longest content.
pub(crate) const CHARACTERS_MAX: usize = 1 << 28;

/// What random content consists of: of six bits each.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Letters that a random number of 64 bits is good for.
const PER_NUMBER: usize = 10;

/// What the message with this number says, of so many characters.
pub(super) fn content(sender: u32, number: u64, characters: usize) -> String {
    let mut content = format!("{sender}:{number} ");
    content.reserve(characters + PER_NUMBER);
    let mut random = Random::stream(u64::from(sender), number);
    while content.len() < characters {
        let bits = random.bits();
        let letter = |place| char::from(LETTERS[(bits >> (6 * place)) as usize % LETTERS.len()]);
        content.extend((0..PER_NUMBER).map(letter));
    }
    content.truncate(characters);
    content
}

/// Whether a message of `sender` says what one of its messages does.
pub(super) fn is_of(said: &str, sender: u32, characters: usize) -> bool {
    let head = format!("{sender}:");
    let number = said.split_once(' ').map(|(first, _)| first.strip_prefix(&head));
    said.len() == characters
        && match number {
            // Too short to tell which one.
            None => said.starts_with(&head) || head.starts_with(said),
            Some(number) => number
                .and_then(|number| number.parse().ok())
                .is_some_and(|number| said == content(sender, number, characters)),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_who_sent_it() {
        assert!(content(7, 12, 12).starts_with("7:12 "));
        for characters in [1, 2, 3, 4, 5, 6, 200] {
            let said = content(7, 12, characters);
            assert!(is_of(&said, 7, characters), "{said}");
            assert!(!is_of(&said, 8, characters), "{said}");
            assert!(!is_of(&said, 7, characters + 1), "{said}");
        }
        let changed = content(7, 12, 200).replacen("7:12 ", "7:13 ", 1);
        assert!(!is_of(&changed, 7, 200));
    }

    /// All 64 letters are about as frequent, and no four of them follow each other twice in what a
    /// compressor looks back on, but by chance.
    #[test]
    fn what_a_message_says_cannot_be_compressed() {
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
