//! The value of a key: a function of the key alone.
//!
//! So a process can verify values that another process stored, and replicas agree. A value's size is drawn once per
//! *key*, not per request: a hash of the key replaces the random number.

use std::fmt;
use std::str::FromStr;

use knee_random::{GOLDEN, below, mix, unit};

/// The length of the largest value.
pub(crate) const VALUE_BYTES_MAX: u32 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ValueSize {
    Fixed {
        bytes: u32,
    },
    /// Uniform, both ends included.
    Uniform {
        low: u32,
        high: u32,
    },
    /// Exponential, rounded up to whole bytes, at most [`VALUE_BYTES_MAX`].
    Exponential {
        /// The mean before rounding and limiting.
        mean_bytes: f64,
    },
}

impl FromStr for ValueSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ValueSize, String> {
        let bytes = |part: &str| match part.parse::<u32>() {
            Ok(bytes) if bytes <= VALUE_BYTES_MAX => Ok(bytes),
            _ => Err(format!("{part:?} is not a number of bytes from 0 to {VALUE_BYTES_MAX}")),
        };
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            [fixed] => Ok(ValueSize::Fixed { bytes: bytes(fixed)? }),
            ["uniform", low, high] => match (bytes(low)?, bytes(high)?) {
                (low, high) if low <= high => Ok(ValueSize::Uniform { low, high }),
                (low, high) => Err(format!("the lowest size, {low}, is above the highest, {high}")),
            },
            ["exponential", mean] => match mean.parse::<f64>() {
                Ok(mean) if mean > 0.0 && mean <= f64::from(VALUE_BYTES_MAX) => {
                    Ok(ValueSize::Exponential { mean_bytes: mean })
                }
                _ => {
                    Err(format!("{mean:?} is not a mean above 0 and up to {VALUE_BYTES_MAX} bytes"))
                }
            },
            _ => Err("expected BYTES, uniform:LOW:HIGH or exponential:MEAN".into()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyValue {
    hash: u64,
    /// The value's length.
    pub(crate) bytes: u32,
}

impl KeyValue {
    #[inline]
    pub(crate) fn of(size: ValueSize, hash: u64) -> KeyValue {
        let bytes = match size {
            ValueSize::Fixed { bytes } => bytes,
            ValueSize::Uniform { low, high } => {
                low + below(mix(hash ^ GOLDEN), u64::from(high - low) + 1) as u32
            }
            ValueSize::Exponential { mean_bytes } => {
                let drawn = -(1.0 - unit(mix(hash ^ GOLDEN))).ln() * mean_bytes;
                drawn.ceil().clamp(1.0, f64::from(VALUE_BYTES_MAX)) as u32
            }
        };
        KeyValue { hash, bytes }
    }

    /// The flags stored with the value. They are not 0, so that verification detects lost flags. They have five digits,
    /// so that a request's length depends only on the value's size.
    #[inline]
    pub(crate) fn flags(self) -> u32 {
        (self.hash >> 48) as u32 | 0x8000
    }

    /// Appends the content: words of 64 bits that all differ, so that verification detects lost, doubled and moved
    /// bytes. The bytes may include line ends, as in real values.
    #[inline]
    pub(crate) fn append(self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.bytes as usize, 0);
        let mut chunks = out[start..].chunks_exact_mut(8);
        let mut word = self.seed();
        for chunk in chunks.by_ref() {
            chunk.copy_from_slice(&word.to_le_bytes());
            word = word.wrapping_add(GOLDEN);
        }
        let rest = chunks.into_remainder();
        rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
    }

    /// The difference between a received value and this one, if they differ.
    pub(crate) fn differs(self, flags: u32, content: &[u8]) -> Option<Difference> {
        if flags != self.flags() {
            return Some(Difference::Flags { expected: self.flags(), found: flags });
        }
        if content.len() != self.bytes as usize {
            return Some(Difference::Length { expected: self.bytes, found: content.len() });
        }
        let mut word = self.seed();
        for (index, chunk) in content.chunks(8).enumerate() {
            let expected = word.to_le_bytes();
            if *chunk != expected[..chunk.len()] {
                let within = chunk.iter().zip(expected).take_while(|(a, b)| **a == *b).count();
                return Some(Difference::Content { offset: index * 8 + within });
            }
            word = word.wrapping_add(GOLDEN);
        }
        None
    }

    /// The first word. It depends on the length, so that a truncated value differs from its first byte on.
    fn seed(self) -> u64 {
        self.hash ^ mix(u64::from(self.bytes))
    }
}

/// The difference between a received value and its key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    Flags { expected: u32, found: u32 },
    Length { expected: u32, found: usize },
    Content { offset: usize },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Flags { expected, found } => {
                write!(f, "its flags are {found} instead of {expected}")
            }
            Difference::Length { expected, found } => {
                write!(f, "it has {found} bytes instead of {expected}")
            }
            Difference::Content { offset } => write!(f, "it differs from byte {offset} on"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::chi_square;
    use crate::keys::{KeyFormat, KeySpace};
    use proptest::prelude::*;

    fn sizes(size: ValueSize, keys: u32) -> Vec<u32> {
        let space = KeySpace::new("sizes-", KeyFormat::Padded, u64::from(keys)).unwrap();
        (0..keys).map(|key| KeyValue::of(size, space.hash(key)).bytes).collect()
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let read = |text: &str| text.parse::<ValueSize>();
        assert_eq!(read("4096"), Ok(ValueSize::Fixed { bytes: 4096 }));
        assert_eq!(read("uniform:1:9"), Ok(ValueSize::Uniform { low: 1, high: 9 }));
        assert_eq!(read("exponential:300"), Ok(ValueSize::Exponential { mean_bytes: 300.0 }));
        for wrong in
            ["", "-1", "1048577", "uniform:9:1", "uniform:1", "exponential:0", "exponential:inf"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn uniform_sizes_are_uniform() {
        let mut counts = vec![0; 64];
        for bytes in sizes(ValueSize::Uniform { low: 100, high: 163 }, 200_000) {
            counts[bytes as usize - 100] += 1;
        }
        chi_square::assert_fits(&counts, &[1.0 / 64.0; 64]);
    }

    #[test]
    fn exponential_sizes_follow_their_distribution() {
        let mean = 20.0;
        let mut counts = vec![0; 400];
        for bytes in sizes(ValueSize::Exponential { mean_bytes: mean }, 200_000) {
            counts[bytes as usize - 1] += 1;
        }
        let survives = |bytes: f64| (-bytes / mean).exp();
        let probabilities: Vec<f64> = (0..400)
            .map(|bytes| survives(f64::from(bytes)) - survives(f64::from(bytes + 1)))
            .collect();
        chi_square::assert_fits(&counts, &probabilities);
    }

    #[test]
    fn exponential_sizes_are_bounded() {
        let size = ValueSize::Exponential { mean_bytes: f64::from(VALUE_BYTES_MAX) };
        let sizes = sizes(size, 10_000);
        assert!(sizes.iter().all(|&bytes| (1..=VALUE_BYTES_MAX).contains(&bytes)));
        assert!(sizes.contains(&VALUE_BYTES_MAX));
    }

    #[test]
    fn values_of_neighbouring_keys_share_no_word() {
        let space = KeySpace::new("k", KeyFormat::Padded, 2).unwrap();
        let size = ValueSize::Fixed { bytes: 64 };
        let mut contents = [Vec::new(), Vec::new()];
        for (key, content) in contents.iter_mut().enumerate() {
            KeyValue::of(size, space.hash(key as u32)).append(content);
        }
        assert!(contents[0].chunks(8).zip(contents[1].chunks(8)).all(|(a, b)| a != b));
    }

    proptest! {
        #[test]
        fn right_value_is_accepted_and_any_changed_byte_found(
            hash: u64, bytes in 0_u32..200, at: prop::sample::Index, change in 1_u8..,
        ) {
            let value = KeyValue::of(ValueSize::Fixed { bytes }, hash);
            let mut content = Vec::new();
            value.append(&mut content);
            prop_assert_eq!(value.differs(value.flags(), &content), None);
            prop_assert_eq!(value.flags().to_string().len(), 5);
            let wrong = value.flags() ^ u32::from(change);
            prop_assert!(value.differs(wrong, &content).is_some());
            if bytes > 0 {
                let offset = at.index(content.len());
                content[offset] ^= change;
                let difference = value.differs(value.flags(), &content);
                prop_assert_eq!(difference, Some(Difference::Content { offset }));
                content.pop();
                prop_assert!(value.differs(value.flags(), &content).is_some());
            }
        }
    }
}
