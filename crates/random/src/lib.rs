//! Pseudo-random numbers: xoshiro256++, seeded through SplitMix64, as its authors advise (Blackman & Vigna, "Scrambled
//! linear pseudorandom number generators", ACM TOMS 47:4, 2021).
//!
//! A stream depends only on its seed and its number, on any machine and with any number of threads.

/// One stream of random numbers: of a client, or of a replication.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream numbered `stream` of `seed`. The period is 2^256 − 1, so two streams of 2^40 numbers overlap with a
    /// probability below 2^−214.
    pub fn stream(seed: u64, stream: u64) -> Random {
        // Hashed apart first: SplitMix64 from neighbouring starts gives overlapping sequences.
        let mut start = mix(mix(seed).wrapping_add(stream));
        let state = std::array::from_fn(|_| {
            start = start.wrapping_add(GOLDEN);
            mix(start)
        });
        Random { state }
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d, shifted) = (c ^ a, d ^ b, b << 17);
        self.state = [a ^ d, b ^ c, c ^ shifted, d.rotate_left(45)];
        result
    }

    /// Uniform in [0, 1), with 53 bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    /// Uniform in 0..`bound`. A multiplication maps 64 bits to the range (Lemire 2019, without the rejection). The bias
    /// is below `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        below(self.bits(), bound)
    }
}

/// The step of SplitMix64: 2^64 divided by the golden ratio.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finalizer: a bijection in which each bit of the input changes half of the output's bits (Steele, Lea &
/// Flood, OOPSLA 2014; Stafford's variant 13).
#[inline]
pub fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// 64 random bits as a number in [0, 1).
#[inline]
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// 64 random bits as a number in 0..`bound`.
#[inline]
pub fn below(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs from the state 1, 2, 3, 4, computed with the authors' C program
    /// (<https://prng.di.unimi.it/xoshiro256plusplus.c>).
    #[test]
    fn agrees_with_the_reference_implementation() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
            14_011_001_112_246_962_877,
            12_406_186_145_184_390_807,
            15_849_039_046_786_891_736,
            10_450_023_813_501_588_000,
        ];
        for value in expected {
            assert_eq!(random.bits(), value);
        }
    }

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, stream| Random::stream(seed, stream).bits();
        assert_eq!(draw(7, 3), draw(7, 3));
        assert_ne!(draw(7, 3), draw(7, 4));
        assert_ne!(draw(7, 3), draw(8, 3));
        // A seed's neighbouring stream is not its neighbour's stream.
        assert_ne!(draw(7, 4), draw(8, 3));
    }
}
