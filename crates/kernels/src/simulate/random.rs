//! Pseudo-random numbers: xoshiro256++ (Blackman & Vigna, "Scrambled linear pseudorandom number
//! generators", ACM TOMS 47:4, 2021), seeded through SplitMix64 as its authors advise.

use std::sync::LazyLock;

/// The step of SplitMix64: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// One stream of random numbers: that of a seed and the number of a replication.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: [u64; 4],
    ziggurat: &'static Ziggurat,
}

impl Random {
    /// The stream numbered `stream` of `seed`. Of a period of 2^256 − 1 two streams of 2^40 numbers
    /// share any with a probability below 2^−214.
    pub(super) fn stream(seed: u64, stream: u64) -> Random {
        // Hashed apart first: SplitMix64 from neighbouring starts gives overlapping sequences.
        let mut start = mix(mix(seed).wrapping_add(stream));
        let state = std::array::from_fn(|_| {
            start = start.wrapping_add(GOLDEN);
            mix(start)
        });
        Random { state, ziggurat: &ZIGGURAT }
    }

    #[inline]
    fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d, shifted) = (c ^ a, d ^ b, b << 17);
        self.state = [a ^ d, b ^ c, c ^ shifted, d.rotate_left(45)];
        result
    }

    /// Uniform in [0, 1), with 53 bits.
    #[inline]
    pub(super) fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    /// Uniform in 0..`bound`: a multiplication maps 64 bits to the range (Lemire 2019, without its
    /// rejection; the bias is below `bound` / 2^64).
    #[inline]
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Exponential with mean 1, by the ziggurat (Marsaglia & Tsang 2000): nearly always a look into a
    /// table in place of a logarithm.
    #[inline]
    pub(super) fn exponential(&mut self) -> f64 {
        let bits = self.bits();
        // The layer is of other bits than the place in it (Doornik 2005).
        let layer = bits as usize % LAYERS;
        let value = unit(bits) * self.ziggurat.widths[layer];
        if value < self.ziggurat.widths[layer + 1] {
            return value;
        }
        self.exponential_at_the_edge(layer, value)
    }

    #[cold]
    fn exponential_at_the_edge(&mut self, layer: usize, value: f64) -> f64 {
        if layer == 0 {
            // Beyond the base everything begins anew.
            return TAIL - (1.0 - self.unit()).ln();
        }
        let (low, high) = (self.ziggurat.heights[layer], self.ziggurat.heights[layer + 1]);
        if low + (high - low) * self.unit() < (-value).exp() {
            return value;
        }
        self.exponential()
    }

    /// Normal with mean 0 and variance 1, by the polar method (Marsaglia & Bray 1964).
    #[inline]
    pub(super) fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }

    /// Gamma with shape `shape` from 1 and scale 1 (Marsaglia & Tsang 2000).
    #[inline]
    pub(super) fn gamma(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = (9.0 * d).sqrt().recip();
        loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            if root <= 0.0 {
                continue;
            }
            let v = root * root * root;
            let u = 1.0 - self.unit();
            if u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

/// Layers of equal area under e^−x; the lowest one's includes the tail.
const LAYERS: usize = 256;
/// Where the tail begins, and the area of a layer, for so many layers (Marsaglia & Tsang 2000).
const TAIL: f64 = 7.697_117_470_131_05;
const AREA: f64 = 0.003_949_659_822_581_557;

#[derive(Debug)]
struct Ziggurat {
    /// Of every layer, from the base: how far it reaches. The base's is that of a rectangle.
    widths: [f64; LAYERS + 1],
    /// Of every layer: where it begins, which is e^−x at its end.
    heights: [f64; LAYERS + 1],
}

static ZIGGURAT: LazyLock<Ziggurat> = LazyLock::new(|| {
    let mut widths = [0.0; LAYERS + 1];
    widths[0] = AREA * TAIL.exp();
    widths[1] = TAIL;
    for layer in 2..LAYERS {
        let width: f64 = widths[layer - 1];
        widths[layer] = -(AREA / width + (-width).exp()).ln();
    }
    Ziggurat { widths, heights: widths.map(|width| (-width).exp()) }
});

/// 64 random bits as a number in [0, 1).
#[inline]
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// SplitMix64's finalizer: a bijection in which every bit of the input changes half of the output's
/// (Steele, Lea & Flood, OOPSLA 2014; Stafford's variant 13).
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs from the state 1, 2, 3, 4, computed with the authors' C program
    /// (<https://prng.di.unimi.it/xoshiro256plusplus.c>).
    #[test]
    fn agrees_with_the_reference_implementation() {
        let mut random = Random { state: [1, 2, 3, 4], ziggurat: &ZIGGURAT };
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
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

    #[test]
    fn the_layers_have_the_same_area() {
        for layer in 1..LAYERS {
            let Ziggurat { widths, heights } = &*ZIGGURAT;
            let area = widths[layer] * (heights[layer + 1] - heights[layer]);
            // The last one takes what rounding of the constants has left.
            assert!((area / AREA - 1.0).abs() < 1e-9, "layer {layer}: {area}");
        }
    }

    /// Kolmogorov and Smirnov's distance from 1 − e^−x: above 2.5 / √n by chance with a probability
    /// of 2 e^−12.5 = 7e-6, but the seed is fixed.
    #[test]
    fn an_exponential_is_one_everywhere() {
        let mut random = Random::stream(1, 1);
        let count = 1_000_000;
        let mut draws: Vec<f64> = (0..count).map(|_| random.exponential()).collect();
        draws.sort_unstable_by(f64::total_cmp);
        let far = draws
            .iter()
            .enumerate()
            .map(|(index, draw)| (1.0 - (-draw).exp() - index as f64 / f64::from(count)).abs())
            .fold(0.0, f64::max);
        assert!(far < 2.5 / f64::from(count).sqrt(), "{far}");
        // Of a million draws e^−7.7 · 10^6 = 454 are in the tail: four standard deviations.
        let tail = draws.iter().filter(|&&draw| draw > TAIL).count();
        assert!(tail.abs_diff(454) < 86, "{tail}");
    }
}
