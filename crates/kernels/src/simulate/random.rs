//! Random numbers of non-uniform distributions.

use std::sync::LazyLock;

use knee_random::unit;

#[derive(Clone, Debug)]
pub(super) struct Random {
    uniform: knee_random::Random,
    ziggurat: &'static Ziggurat,
}

impl Random {
    pub(super) fn stream(seed: u64, stream: u64) -> Random {
        Random { uniform: knee_random::Random::stream(seed, stream), ziggurat: &ZIGGURAT }
    }

    /// Uniform in [0, 1), with 53 bits.
    #[inline]
    pub(super) fn unit(&mut self) -> f64 {
        self.uniform.unit()
    }

    #[inline]
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.uniform.below(bound as u64) as usize
    }

    /// Exponential with mean 1, by the ziggurat (Marsaglia & Tsang 2000), which nearly always needs only a table, not a
    /// logarithm.
    #[inline]
    pub(super) fn exponential(&mut self) -> f64 {
        let bits = self.uniform.bits();
        // The layer comes from other bits than the place in the layer (Doornik 2005).
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
            // The tail is an exponential distribution that begins at TAIL.
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

/// The number of layers of equal area under e^−x. The lowest layer includes the tail.
const LAYERS: usize = 256;
/// The beginning of the tail, and the area of a layer, for 256 layers (Marsaglia & Tsang 2000).
const TAIL: f64 = 7.697_117_470_131_05;
const AREA: f64 = 0.003_949_659_822_581_557;

#[derive(Debug)]
struct Ziggurat {
    /// The width of each layer, from the base up. The base has the width of a rectangle with the same area.
    widths: [f64; LAYERS + 1],
    /// The lower edge of each layer: e^−x at its width x.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_have_the_same_area() {
        for layer in 1..LAYERS {
            let Ziggurat { widths, heights } = &*ZIGGURAT;
            let area = widths[layer] * (heights[layer + 1] - heights[layer]);
            // The top layer contains the rounding error of the constants.
            assert!((area / AREA - 1.0).abs() < 1e-9, "layer {layer}: {area}");
        }
    }

    /// The Kolmogorov–Smirnov distance from 1 − e^−x. It exceeds 2.5 / √n by chance with a probability of
    /// 2 e^−12.5 = 7e-6; with the fixed seed it does not.
    #[test]
    fn exponential_draws_fit_their_distribution_function() {
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
        // The tail should have e^−7.7 · 10^6 = 454 of the million draws. The tolerance is four standard deviations.
        let tail = draws.iter().filter(|&&draw| draw > TAIL).count();
        assert!(tail.abs_diff(454) < 86, "{tail}");
    }
}
