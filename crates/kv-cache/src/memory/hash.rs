//! Hashing of keys.

use std::hash::{BuildHasher, RandomState};

/// A seeded hash: a client cannot choose colliding keys.
///
/// Each step multiplies 64 by 64 bits, and folds the 128-bit product (the mixing step of wyhash, Wang Yi 2019).
#[derive(Debug, Clone, Copy)]
pub struct KeyHash {
    seed: u64,
    factor: u64,
}

impl KeyHash {
    /// A hash with a random seed.
    pub fn random() -> KeyHash {
        let random = RandomState::new();
        // Multiplying by an odd factor loses no bit.
        KeyHash { seed: random.hash_one(1), factor: random.hash_one(2) | 1 }
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(self, key: &[u8]) -> u64 {
        let mut state = self.seed ^ key.len() as u64;
        let mut chunks = key.chunks_exact(8);
        for chunk in &mut chunks {
            state = fold(state ^ word(chunk), self.factor);
        }
        state = fold(state ^ word(chunks.remainder()), self.factor);
        fold(state, 0x9E37_79B9_7F4A_7C15)
    }
}

/// Up to eight bytes as a number.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(padded)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn hashes_of_similar_keys_spread_over_all_bits() {
        let hash = KeyHash::random();
        let keys = 1 << 16;
        let hashes: Vec<u64> =
            (0..keys).map(|n| hash.hash(format!("key:{n}").as_bytes())).collect();
        for shift in [0, 20, 48] {
            let distinct: HashSet<u64> = hashes.iter().map(|hash| hash >> shift & 0xFFFF).collect();
            // 2^16 random numbers of 16 bits take a share of 1 - 1/e of all values.
            let share = distinct.len() as f64 / f64::from(keys);
            assert!((0.60..0.66).contains(&share), "{share} of the values at bit {shift}");
        }
    }

    #[test]
    fn length_and_every_byte_change_the_hash() {
        let hash = KeyHash::random();
        let mut key = b"0123456789abcdefghij".to_vec();
        let whole = hash.hash(&key);
        assert_ne!(hash.hash(b""), hash.hash(b"\0"));
        assert_ne!(hash.hash(b"\0\0\0\0\0\0\0\0"), hash.hash(b"\0"));
        for index in 0..key.len() {
            key[index] ^= 1;
            assert_ne!(hash.hash(&key), whole, "byte {index}");
            key[index] ^= 1;
        }
    }
}
