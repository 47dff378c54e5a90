//! Keys, and each client's choice of keys.

use std::str::FromStr;

use clap::ValueEnum;
use knee_random::{GOLDEN, Random, mix};

use crate::zipf::Zipf;

/// The largest number of keys: a key's number has ten digits and fits 32 bits.
pub(crate) const KEYS_MAX: u64 = 1 << 32;

/// Digits of the largest number of a key.
const DIGITS: usize = 10;

/// The length of the longest key in the protocol.
const KEY_BYTES_MAX: usize = 250;

/// How a key's number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum KeyFormat {
    /// Padded with zeros to one length. Requests for all keys are equally long, and keys sort by their numbers.
    #[default]
    Padded,
    /// Without leading zeros, as in the keys of a graph's users.
    Plain,
}

/// The keys `PREFIX0000000000`, `PREFIX0000000001`, … (or `PREFIX0`, `PREFIX1`, …): a name for each number.
#[derive(Debug, Clone)]
pub(crate) struct KeySpace {
    prefix: Box<[u8]>,
    prefix_hash: u64,
    format: KeyFormat,
    count: u64,
}

impl KeySpace {
    /// `count` keys that begin with `prefix`.
    ///
    /// # Errors
    /// When the protocol does not allow such keys, or `count` is 0 or too large.
    pub(crate) fn new(prefix: &str, format: KeyFormat, count: u64) -> Result<KeySpace, String> {
        let longest = KEY_BYTES_MAX - DIGITS;
        if prefix.len() > longest {
            return Err(format!("a key prefix has at most {longest} bytes, not {}", prefix.len()));
        }
        if let Some(wrong) = prefix.bytes().find(|byte| !byte.is_ascii_graphic()) {
            return Err(format!(
                "a key prefix has no spaces and no control characters, but {prefix:?} has {:?}",
                char::from(wrong)
            ));
        }
        if !(1..=KEYS_MAX).contains(&count) {
            return Err(format!("there can be 1 to {KEYS_MAX} keys, not {count}"));
        }
        let prefix_hash =
            prefix.bytes().fold(mix(prefix.len() as u64), |hash, byte| mix(hash ^ u64::from(byte)));
        Ok(KeySpace { prefix: prefix.as_bytes().into(), prefix_hash, format, count })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    pub(crate) fn format(&self) -> KeyFormat {
        self.format
    }

    pub(crate) fn key_bytes_max(&self) -> usize {
        self.prefix.len() + DIGITS
    }

    #[inline]
    pub(crate) fn append(&self, key: u32, out: &mut Vec<u8>) {
        self.append_number(u64::from(key), out);
    }

    /// Appends the name of a key with this number, of at most ten digits. The number may be greater than any key's.
    #[inline]
    pub(crate) fn append_number(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        let mut digits = [b'0'; DIGITS];
        let mut rest = number;
        let mut first = DIGITS;
        for (index, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            first = index;
            if rest == 0 {
                break;
            }
        }
        let shown = match self.format {
            KeyFormat::Padded => &digits[..],
            KeyFormat::Plain => &digits[first..],
        };
        out.extend_from_slice(shown);
    }

    /// The number of the key with this name; `None` if no key has it.
    #[inline]
    pub(crate) fn number(&self, name: &[u8]) -> Option<u32> {
        let digits = name.strip_prefix(&*self.prefix)?;
        let written = match (self.format, digits) {
            (KeyFormat::Padded, _) => digits.len() == DIGITS,
            (KeyFormat::Plain, [b'0', _, ..]) => false,
            (KeyFormat::Plain, _) => (1..=DIGITS).contains(&digits.len()),
        };
        if !written {
            return None;
        }
        let mut number = 0_u64;
        for digit in digits {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number * 10 + u64::from(digit);
        }
        (number < self.count).then_some(number as u32)
    }

    /// A hash of the prefix and the number. The key's value is derived from it.
    #[inline]
    pub(crate) fn hash(&self, key: u32) -> u64 {
        mix(self.prefix_hash ^ u64::from(key).wrapping_mul(GOLDEN))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum KeyChoice {
    /// Each client goes through all keys in order, over and over. The clients' first keys are evenly spaced.
    Sequential,
    Uniform,
    /// The key of rank r with probability proportional to r^−θ.
    Zipf {
        /// The exponent θ, 0 (uniform) or above.
        theta: f64,
    },
    /// Hot keys get a share of the requests, other keys get the rest; both uniformly.
    HotSet {
        /// The share of the keys that are hot.
        share: f64,
        /// The probability that a request goes to a hot key.
        probability: f64,
    },
}

impl FromStr for KeyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyChoice, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let fraction = |part: &str| match part.parse::<f64>() {
            Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
            _ => Err(format!("{part:?} is not a number from 0 to 1")),
        };
        match parts[..] {
            ["sequential"] => Ok(KeyChoice::Sequential),
            ["uniform"] => Ok(KeyChoice::Uniform),
            ["zipf", theta] => match theta.parse::<f64>() {
                Ok(theta) if theta >= 0.0 && theta.is_finite() => Ok(KeyChoice::Zipf { theta }),
                _ => Err(format!("zipf takes an exponent of 0 or above, not {theta:?}")),
            },
            ["hotset", share, probability] => Ok(KeyChoice::HotSet {
                share: fraction(share)?,
                probability: fraction(probability)?,
            }),
            _ => Err("expected sequential, uniform, zipf:THETA or hotset:SHARE:PROBABILITY".into()),
        }
    }
}

/// One client's choice of keys.
#[derive(Debug, Clone)]
pub(crate) struct KeyPicker {
    keys: u64,
    scatter: Scatter,
    way: Way,
}

#[derive(Debug, Clone)]
enum Way {
    Sequential { next: u64 },
    Uniform,
    Zipf(Zipf),
    HotSet { hot: u64, probability: f64 },
}

impl KeyPicker {
    pub(crate) fn new(choice: KeyChoice, keys: u64, client: u64, clients: u64) -> KeyPicker {
        let way = match choice {
            KeyChoice::Sequential => {
                let start = u128::from(keys) * u128::from(client) / u128::from(clients);
                Way::Sequential { next: start as u64 }
            }
            KeyChoice::Uniform => Way::Uniform,
            KeyChoice::Zipf { theta } => Way::Zipf(Zipf::new(keys, theta)),
            KeyChoice::HotSet { share, probability } => {
                let hot = ((keys as f64 * share).round() as u64).clamp(1, keys);
                Way::HotSet { hot, probability: if hot == keys { 1.0 } else { probability } }
            }
        };
        KeyPicker { keys, scatter: Scatter::new(keys), way }
    }

    /// The number of the next key.
    #[inline]
    pub(crate) fn pick(&mut self, random: &mut Random) -> u32 {
        let key = match &mut self.way {
            Way::Sequential { next } => {
                let key = *next;
                *next = if key + 1 == self.keys { 0 } else { key + 1 };
                key
            }
            Way::Uniform => random.below(self.keys),
            Way::Zipf(zipf) => self.scatter.place(zipf.draw(random) - 1),
            Way::HotSet { hot, probability } => {
                let rank = if random.unit() < *probability {
                    random.below(*hot)
                } else {
                    *hot + random.below(self.keys - *hot)
                };
                self.scatter.place(rank)
            }
        };
        key as u32
    }
}

/// Scatters popular keys over the key space: a bijection of 0..keys, the same for every process and seed. Without it,
/// the most popular keys would be the first keys, which are those that the populating phase stores.
///
/// The bijection multiplies by a number coprime to the number of keys. This factor is close to the golden section,
/// 0.618 times the number of keys, and so puts popular keys far apart.
#[derive(Debug, Clone, Copy)]
struct Scatter {
    keys: u64,
    factor: u64,
}

impl Scatter {
    fn new(keys: u64) -> Scatter {
        let golden = (keys as f64 * 0.618_033_988_749_895) as u64;
        let factor = (golden.max(1)..).find(|&factor| coprime(factor, keys)).unwrap_or(1);
        Scatter { keys, factor }
    }

    /// The key of a rank, from 0 on. Neither factor exceeds 2^32, so the product fits.
    #[inline]
    fn place(self, rank: u64) -> u64 {
        (rank + 1) * self.factor % self.keys
    }
}

fn coprime(mut a: u64, mut b: u64) -> bool {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::chi_square;
    use proptest::prelude::*;

    fn counts(choice: KeyChoice, keys: u64, draws: u32) -> Vec<u64> {
        let mut picker = KeyPicker::new(choice, keys, 0, 1);
        let mut random = Random::stream(3, 0);
        let mut counts = vec![0; keys as usize];
        for _ in 0..draws {
            counts[picker.pick(&mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn padded_names_have_one_length_and_parse_back() {
        let space = KeySpace::new("knee-", KeyFormat::Padded, KEYS_MAX).unwrap();
        for key in [0, 1, 9, 10, 4_294_967_295] {
            let mut name = Vec::new();
            space.append(key, &mut name);
            assert_eq!(name.len(), space.key_bytes_max());
            assert_eq!(space.number(&name), Some(key));
        }
        let mut name = Vec::new();
        space.append(42, &mut name);
        assert_eq!(name, b"knee-0000000042");
    }

    #[test]
    fn plain_names_have_no_leading_zeros() {
        let space = KeySpace::new("", KeyFormat::Plain, 1_000_000).unwrap();
        for (key, written) in [(0, "0"), (7, "7"), (10, "10"), (999_999, "999999")] {
            let mut name = Vec::new();
            space.append(key, &mut name);
            assert_eq!(name, written.as_bytes());
            assert_eq!(space.number(&name), Some(key));
        }
        for name in ["", "07", "00", "1000000", "-1", "00000000000", "99999999999"] {
            assert_eq!(space.number(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn foreign_names_have_no_number() {
        let space = KeySpace::new("k", KeyFormat::Padded, 100).unwrap();
        let names: [&[u8]; 7] = [
            b"",
            b"k",
            b"k0000000100",
            b"k000000001",
            b"k00000000011",
            b"x0000000001",
            b"k00000000:1",
        ];
        for name in names {
            assert_eq!(space.number(name), None, "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn impossible_key_spaces_are_refused() {
        let space = |prefix: &str, count| KeySpace::new(prefix, KeyFormat::Padded, count);
        assert!(space(&"p".repeat(240), 1).is_ok());
        assert!(space(&"p".repeat(241), 1).is_err());
        assert!(space("a b", 1).is_err());
        assert!(space("a\n", 1).is_err());
        assert!(space("a", 0).is_err());
        assert!(space("a", KEYS_MAX + 1).is_err());
    }

    #[test]
    fn wrong_choices_are_refused() {
        let read = |text: &str| text.parse::<KeyChoice>();
        assert_eq!(read("sequential"), Ok(KeyChoice::Sequential));
        assert_eq!(read("uniform"), Ok(KeyChoice::Uniform));
        assert_eq!(read("zipf:1.2"), Ok(KeyChoice::Zipf { theta: 1.2 }));
        assert_eq!(read("hotset:0.1:0.9"), Ok(KeyChoice::HotSet { share: 0.1, probability: 0.9 }));
        for wrong in ["", "zipf", "zipf:-1", "zipf:NaN", "zipf:inf", "hotset:0.1", "hotset:2:0.5"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sequential_clients_begin_spaced_and_cover_all_keys() {
        let mut random = Random::stream(0, 0);
        let mut walks: Vec<KeyPicker> =
            (0..4).map(|client| KeyPicker::new(KeyChoice::Sequential, 10, client, 4)).collect();
        let starts: Vec<u32> = walks.iter_mut().map(|walk| walk.pick(&mut random)).collect();
        assert_eq!(starts, [0, 2, 5, 7]);
        let rest: Vec<u32> = (0..10).map(|_| walks[3].pick(&mut random)).collect();
        assert_eq!(rest, [8, 9, 0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn uniform_choice_is_uniform() {
        chi_square::assert_fits(&counts(KeyChoice::Uniform, 97, 200_000), &[1.0 / 97.0; 97]);
    }

    #[test]
    fn zipf_choice_fits_the_probabilities_of_its_ranks() {
        let keys = 101;
        let scatter = Scatter::new(keys);
        let counts = counts(KeyChoice::Zipf { theta: 1.1 }, keys, 300_000);
        let by_rank: Vec<u64> =
            (0..keys).map(|rank| counts[scatter.place(rank) as usize]).collect();
        let weights: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-1.1)).collect();
        let sum: f64 = weights.iter().sum();
        let probabilities: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
        chi_square::assert_fits(&by_rank, &probabilities);
    }

    #[test]
    fn hot_set_gets_its_share_evenly() {
        let (keys, hot) = (200, 20);
        let scatter = Scatter::new(keys);
        let choice = KeyChoice::HotSet { share: 0.1, probability: 0.75 };
        let counts = counts(choice, keys, 300_000);
        let by_rank: Vec<u64> =
            (0..keys).map(|rank| counts[scatter.place(rank) as usize]).collect();
        let probabilities: Vec<f64> =
            (0..keys).map(|rank| if rank < hot { 0.75 / 20.0 } else { 0.25 / 180.0 }).collect();
        chi_square::assert_fits(&by_rank, &probabilities);
    }

    proptest! {
        #[test]
        fn scattering_is_a_bijection(keys in 1_u64..5000) {
            let scatter = Scatter::new(keys);
            let mut places: Vec<u64> = (0..keys).map(|rank| scatter.place(rank)).collect();
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..keys));
        }

        #[test]
        fn scattering_does_not_overflow(keys in KEYS_MAX - 5000..=KEYS_MAX, rank in 0_u64..1 << 32) {
            let scatter = Scatter::new(keys);
            prop_assert!(scatter.place(rank.min(keys - 1)) < keys);
        }
    }
}
