//! What messages say: who sent them and the how manieth they are, over and over.

/// The longest content.
pub(crate) const CHARACTERS_MAX: usize = 1 << 28;

/// What the message with this number says, of so many characters.
pub(super) fn content(sender: u32, number: u64, characters: usize) -> String {
    let head = format!("{sender}:{number} ");
    let mut content = head.repeat(characters / head.len() + 1);
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
        assert_eq!(content(7, 12, 12), "7:12 7:12 7:");
        for characters in [1, 2, 3, 4, 5, 6, 200] {
            let said = content(7, 12, characters);
            assert!(is_of(&said, 7, characters), "{said}");
            assert!(!is_of(&said, 8, characters), "{said}");
            assert!(!is_of(&said, 7, characters + 1), "{said}");
        }
        assert!(!is_of("7:12 7:13 7:", 7, 12));
    }
}
