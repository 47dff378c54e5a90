//! Zipf-distributed ranks.

use knee_random::Random;

/// Draws ranks 1..=n with probability proportional to rank^−θ, for any θ ≥ 0. This is the distribution of Gray et al.,
/// "Quickly generating billion-record synthetic databases" (SIGMOD 1994, section 3.2).
///
/// The generator in that paper inverts a continuous approximation, which is exact only for the first two ranks. At θ =
/// 0.99 and n = 1000, rank 3 comes 17 % too often. The generator divides by 1 − θ, so θ must be below 1, and begins
/// with a sum over all n ranks. `Zipf` uses rejection-inversion (Hörmann & Derflinger, "Rejection-inversion to generate
/// variates from monotone discrete distributions", ACM TOMACS 6:3, 1996), which is exact for every θ, needs no set-up,
/// and rejects less than one trial in fifty.
///
/// The idea: h(x) = x^−θ is convex. So the area H(k + ½) − H(k − ½) under h over a rank's interval is at least h(k). A
/// point drawn uniformly from the area under h falls into the interval of a rank k. A part of this interval keeps the
/// point: the part that ends at k + ½ and has the area h(k). The rest rejects the point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Zipf {
    theta: f64,
    ranks: f64,
    /// Where the area begins: H(3/2) − h(1), so that rank 1 is never rejected.
    area_start: f64,
    area_end: f64,
    /// A point within this distance below its rank is kept without computing its area.
    squeeze: f64,
}

impl Zipf {
    /// Ranks 1..=`ranks` (at least 1) with exponent `theta` (finite, not negative).
    pub(crate) fn new(ranks: u64, theta: f64) -> Zipf {
        assert!(ranks >= 1 && theta >= 0.0 && theta.is_finite());
        let ranks = ranks as f64;
        Zipf {
            theta,
            ranks,
            area_start: area(theta, 1.5) - 1.0,
            area_end: area(theta, ranks + 0.5),
            squeeze: 2.0 - inverse_area(theta, area(theta, 2.5) - height(theta, 2.0)),
        }
    }

    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.area_end + random.unit() * (self.area_start - self.area_end);
            let x = inverse_area(self.theta, u);
            // Rounding errors at the ends may lead out of the range.
            let rank = (x + 0.5).floor().clamp(1.0, self.ranks);
            if rank - x <= self.squeeze
                || u >= area(self.theta, rank + 0.5) - height(self.theta, rank)
            {
                return rank as u64;
            }
        }
    }
}

/// h(x) = x^−θ.
fn height(theta: f64, x: f64) -> f64 {
    (-theta * x.ln()).exp()
}

/// H(x), the integral of h from 1 to x: (x^(1−θ) − 1) / (1 − θ), which is ln x at θ = 1.
///
/// The form ln x · (e^t − 1)/t with t = (1 − θ) ln x also holds near θ = 1.
fn area(theta: f64, x: f64) -> f64 {
    let log = x.ln();
    let t = (1.0 - theta) * log;
    log * if t.abs() < SMALL { 1.0 + t / 2.0 } else { t.exp_m1() / t }
}

/// The x at which H is `y`: exp(y · ln(1 + t)/t) with t = (1 − θ) y.
fn inverse_area(theta: f64, y: f64) -> f64 {
    // For θ > 1, H is below 1 / (θ − 1); a rounding error must not exceed this bound.
    let t = ((1.0 - theta) * y).max(-1.0);
    (y * if t.abs() < SMALL { 1.0 - t / 2.0 } else { t.ln_1p() / t }).exp()
}

/// Below this, the first two terms of the series are exact to double precision.
const SMALL: f64 = 1e-8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square;

    fn probabilities(ranks: u64, theta: f64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=ranks).map(|rank| (rank as f64).powf(-theta)).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    #[test]
    fn draws_follow_the_exact_probabilities_for_any_theta() {
        for theta in [0.0, 0.2, 0.5, 0.99, 1.0 - 1e-9, 1.0, 1.0 + 1e-9, 1.2, 2.0, 3.5] {
            for ranks in [1, 2, 3, 10, 1000] {
                let zipf = Zipf::new(ranks, theta);
                let mut random = Random::stream(11, ranks);
                let mut counts = vec![0; ranks as usize];
                for _ in 0..400_000 {
                    counts[zipf.draw(&mut random) as usize - 1] += 1;
                }
                chi_square::assert_fits(&counts, &probabilities(ranks, theta));
            }
        }
    }

    #[test]
    fn ranks_of_a_large_population_stay_in_range() {
        for theta in [0.0, 0.99, 1.0, 1.5, 30.0, 700.0] {
            let ranks = 1 << 32;
            let zipf = Zipf::new(ranks, theta);
            let mut random = Random::stream(5, 0);
            for _ in 0..10_000 {
                assert!((1..=ranks).contains(&zipf.draw(&mut random)), "theta {theta}");
            }
        }
    }
}
