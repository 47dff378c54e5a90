//! What may be repeated of what somebody wrote where a password may be a part of it.

/// Whether a text is of letters and digits of ASCII, and of `others`: then nothing is in it that stands before or behind
/// a password in an address.
pub(crate) fn is_plain(text: &str, others: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric() || others.contains(letter))
}

/// Whether a text is what somebody or something may be called.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && is_plain(text, "_.-")
}

/// Whether a text is where a file may be.
pub(crate) fn is_path(text: &str) -> bool {
    !text.is_empty() && is_plain(text, "_.-/")
}
