//! Sizes on the command line.

/// Parses a number of bytes, perhaps with a binary unit.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.find(|letter: char| !letter.is_ascii_digit()) {
        Some(end) => text.split_at(end),
        None => (text, ""),
    };
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("expected a number of bytes, or one of K, M, G or T, as in 4G".into()),
    };
    let number: u64 = number.parse().map_err(|error| format!("not a number of bytes: {error}"))?;
    // NBD's addresses have 63 usable bits.
    match number.checked_mul(1 << shift).filter(|bytes| (1..1 << 63).contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => Err("expected from 1 byte to 8388607T".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_has_a_binary_unit_or_none() {
        for (text, expected) in [("1", Some(1)), ("4K", Some(4096)), ("2T", Some(2 << 40))] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
        for text in ["", "0", "G", "1g", "1.5G", "-1", "9000000T", "99999999999999999999"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
