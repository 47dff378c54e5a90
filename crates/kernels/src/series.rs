//! Generating functions of normalising constants, represented by ratios of successive coefficients.
//!
//! The stations of a closed network have generating functions. The coefficients of their product are the normalising
//! constants (Gordon & Newell 1967; Buzen 1973; Bolch et al. 2006, ch. 8). Let a be a station's demand and μ(j) its
//! rate with j customers, constant from μ(L) on. Then the station has
//!
//! ```text
//! F(z) = Σ_j f_j z^j,   f_j = Π_{i≤j} a/μ(i),   a geometric series of ratio s = a/μ(L) from f_L on
//! ```
//!
//! and a delay has exp(Zz). A coefficient g_n soon leaves the range of numbers. The ratio r_n = g_n/g_{n-1} is of the
//! order of a demand, and throughput needs only this ratio: X(n) = 1/r_n. Multiplying by a station's series takes only
//! sums and products of positive numbers, so no digit cancels.

use crate::Error;

/// A partial sum outside of this range is scaled by a power of two.
const LARGE: f64 = 1e150;
const SMALL: f64 = 1e-150;
/// The number of independent sums that are computed together, so that the processor need not wait for a result.
const LANES: usize = 8;
/// The number of populations that are computed together, so that their numbers stay in the processor's cache.
const CHUNK: usize = 1024;
/// The power of two by which sums are scaled, about LARGE.
const STEP: f64 = f64::from_bits((1023 + 498) << 52);

/// The ratios r_1, …, r_N of a power series with positive coefficients and g_0 = 1. After the last coefficient of a
/// finite series, the ratios are 0.
#[derive(Clone, Debug)]
pub struct Series {
    ratios: Vec<f64>,
}

/// A station's solution in the network whose series was multiplied by the station; index n - 1 is the population n.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// Mean number of customers at the station.
    pub queue_length: Vec<f64>,
    /// Probability that the station is not empty.
    pub busy: Vec<f64>,
}

impl Series {
    /// exp(Zz) up to z^N: a network with only a delay of `delay`.
    pub fn of_delay(delay: f64, population: usize) -> Series {
        Series { ratios: (1..=population).map(|n| delay / n as f64).collect() }
    }

    /// The ratio of each coefficient to the previous one, which is the inverse of throughput.
    pub fn ratios(&self) -> &[f64] {
        &self.ratios
    }

    /// Multiplies by 1/(1 - sz), a single server of demand `s` > 0.
    ///
    /// With h the product and t_n = g_n/h_n: h_n = g_n + s h_{n-1}.
    pub fn multiply_by_server(&mut self, s: f64) {
        let mut share = 1.0;
        for ratio in &mut self.ratios {
            let without = *ratio * share;
            *ratio = s + without;
            share = without / *ratio;
        }
    }

    /// Multiplies by the series of a station with demand `demand` > 0. Calls `goes_on` now and then, and ends if it
    /// returns false.
    ///
    /// # Errors
    ///
    /// Numbers that leave their range, and an end by `goes_on`.
    pub fn multiply(
        &mut self,
        demand: f64,
        rates: &[f64],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        self.multiply_and::<false>(demand, rates, goes_on).map(|_| ())
    }

    /// As [`multiply`](Series::multiply), and returns the station's solution in the resulting network.
    ///
    /// # Errors
    ///
    /// The errors of [`multiply`](Series::multiply).
    pub fn multiply_last(
        &mut self,
        demand: f64,
        rates: &[f64],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Shares, Error> {
        self.multiply_and::<true>(demand, rates, goes_on)
    }

    /// The series is first multiplied by the single server with the station's last rate, s = a/μ(L): h = g/(1 - sz).
    /// With t_n = g_n/h_n and r_n the ratios of h, the product's n-th coefficient, relative to h_n, is
    ///
    /// ```text
    /// v_0,   v_i = t_{n-i} + (a/μ(i+1))/r_{n-i} v_{i+1},   v_{L-1} = 1
    /// ```
    ///
    /// where v_i is the part with i or more customers at the station. The number of customers beyond i follows from
    /// w_i = (a/μ(i+1))/r_{n-i} (v_{i+1} + w_{i+1}). This recursion starts with w_{L-1}, the number of customers at the
    /// single server: λ_n = s/r_n (1 + λ_{n-1}).
    ///
    /// All v_i are at least Π_{j>i} min(1, μ(L)/μ(j)), so they become too small only if rates fall far.
    fn multiply_and<const WATCHED: bool>(
        &mut self,
        demand: f64,
        rates: &[f64],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Shares, Error> {
        if fall(rates) < SMALL {
            return self.multiply_falling(demand, rates, goes_on);
        }
        let watched = if WATCHED { self.ratios.len() } else { 0 };
        let mut product = Product {
            alone: Alone::of(demand / rates[rates.len() - 1], rates.len() - 1),
            loads: rates[..rates.len() - 1].iter().map(|rate| demand / rate).collect(),
            last: Scaled { value: 1.0, steps: 0 },
            shares: Shares {
                queue_length: Vec::with_capacity(watched),
                busy: Vec::with_capacity(watched),
            },
        };
        let mut n = 1;
        for ratios in self.ratios.chunks_mut(CHUNK) {
            if !goes_on() {
                return Err(Error::Interrupted);
            }
            product.alone.advance(ratios);
            let mut rest = ratios;
            while !rest.is_empty() {
                let width = if n >= product.loads.len() && rest.len() >= LANES { LANES } else { 1 };
                let (now, later) = rest.split_at_mut(width);
                match width {
                    LANES => product.extend::<LANES, WATCHED>(n, now),
                    _ => product.extend::<1, WATCHED>(n, now),
                }
                .ok_or(Error::Range)?;
                rest = later;
                n += width;
            }
        }
        Ok(product.shares)
    }

    /// Multiplies as `multiply_and`, for rates that fall so far that the sums relative to h_n would vanish.
    ///
    /// The n-th coefficient is relative to g_n, not h_n, so that every sum is at least 1. With r_n the ratios of g,
    ///
    /// ```text
    /// u_0,   u_i = 1 + (a/μ(i+1))/r_{n-i} u_{i+1},   u_{L-1} = 1/t_{n-L+1},   u_n = 1 where n < L
    /// ```
    fn multiply_falling(
        &mut self,
        demand: f64,
        rates: &[f64],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Shares, Error> {
        let reach = rates.len() - 1;
        let loads: Vec<f64> = rates.iter().map(|rate| demand / rate).collect();
        let others = self.ratios.clone();
        let population = others.len();
        let mut shares = Shares {
            queue_length: Vec::with_capacity(population),
            busy: Vec::with_capacity(population),
        };
        if others.first() == Some(&0.0) {
            // There is no other station, so all customers are at this one.
            for n in 1..=population {
                self.ratios[n - 1] = loads[reach.min(n - 1)];
                shares.queue_length.push(n as f64);
                shares.busy.push(1.0);
            }
            return Ok(shares);
        }
        // 1/t and λ of the single server with the load a/μ(L), at the population n - L + 1.
        let (mut beyond, mut waiting) = (Scaled { value: 1.0, steps: 0 }, 0.0);
        let mut last = Scaled { value: 1.0, steps: 0 };
        for n in 1..=population {
            if n % CHUNK == 1 && !goes_on() {
                return Err(Error::Interrupted);
            }
            if n > reach {
                let ratio = others[n - reach - 1];
                let with = loads[reach] + ratio / beyond.value * STEP.powi(-beyond.steps);
                beyond = Scaled { value: beyond.value * (with / ratio), ..beyond }
                    .normal()
                    .ok_or(Error::Range)?;
                waiting = loads[reach] / with * (1.0 + waiting);
            }
            let mut u = beyond;
            let mut w = waiting * u.value;
            let mut there = 0.0;
            let mut unit = STEP.powi(-u.steps);
            for i in (0..reach.min(n)).rev() {
                let load = loads[i] / others[n - i - 1];
                w = load * (w + u.value);
                there = load * u.value;
                u.value = unit + there;
                if !(w < LARGE && u.value < LARGE) {
                    if !(w.is_finite() && u.value.is_finite()) {
                        return Err(Error::Range);
                    }
                    (w, there) = (w / STEP, there / STEP);
                    u = Scaled { value: u.value / STEP, steps: u.steps + 1 };
                    unit = STEP.powi(-u.steps);
                }
            }
            shares.queue_length.push(w / u.value);
            shares.busy.push(there / u.value);
            self.ratios[n - 1] = others[n - 1] * u.over(last);
            last = u;
        }
        Ok(shares)
    }
}

/// The lower bound of a sum relative to the first one: Π min(1, μ(L)/μ(j)).
fn fall(rates: &[f64]) -> f64 {
    rates.iter().map(|rate| (rates[rates.len() - 1] / rate).min(1.0)).product()
}

/// The product h of the series and the single server, for a chunk of populations and `reach` earlier populations.
struct Alone {
    /// s, the load of the single server.
    load: f64,
    /// L - 1, the number of the station's rates before the last one.
    reach: usize,
    /// t and λ of the last population.
    state: (f64, f64),
    /// The population at the index `reach`.
    start: usize,
    ratios: Vec<f64>,
    inverses: Vec<f64>,
    /// t_n, the probability that the single server is idle.
    empty: Vec<f64>,
    /// The probability that the single server is busy.
    busy: Vec<f64>,
    /// λ_n, the mean number of customers at the single server.
    queue_length: Vec<f64>,
}

impl Alone {
    fn of(load: f64, reach: usize) -> Alone {
        let zeros = vec![0.0; reach];
        let mut empty = zeros.clone();
        // The only used population below 1 is 0.
        if let Some(last) = empty.last_mut() {
            *last = 1.0;
        }
        Alone {
            load,
            reach,
            state: (1.0, 0.0),
            start: 1,
            ratios: zeros.clone(),
            inverses: zeros.clone(),
            empty,
            busy: zeros.clone(),
            queue_length: zeros,
        }
    }

    /// Replaces the chunk by the next one.
    fn advance(&mut self, ratios: &[f64]) {
        let (mut empty, mut queue_length) = self.state;
        let past = self.ratios.len() - self.reach;
        for window in [
            &mut self.ratios,
            &mut self.inverses,
            &mut self.empty,
            &mut self.busy,
            &mut self.queue_length,
        ] {
            window.drain(..past);
        }
        self.start += past;
        for ratio in ratios {
            let without = ratio * empty;
            let with = self.load + without;
            let busy = self.load / with;
            empty = without / with;
            queue_length = busy * (1.0 + queue_length);
            self.ratios.push(with);
            self.inverses.push(with.recip());
            self.empty.push(empty);
            self.busy.push(busy);
            self.queue_length.push(queue_length);
        }
        self.state = (empty, queue_length);
    }

    /// The index of the population n, which may be one of those before the chunk.
    fn at(&self, n: usize) -> usize {
        n + self.reach - self.start
    }
}

/// A positive number as `value` × STEP^`steps`.
#[derive(Clone, Copy)]
struct Scaled {
    value: f64,
    steps: i32,
}

impl Scaled {
    fn over(self, other: Scaled) -> f64 {
        let ratio = self.value / other.value;
        match self.steps - other.steps {
            0 => ratio,
            steps => ratio * STEP.powi(steps),
        }
    }

    /// The same number with its value back in range; `None` if the value is not finite.
    fn normal(self) -> Option<Scaled> {
        match self.value {
            value if !value.is_finite() => None,
            value if value >= LARGE => Some(Scaled { value: value / STEP, steps: self.steps + 1 }),
            _ => Some(self),
        }
    }
}

/// The change in `steps` that brings a sum back into range: 1, 0 or -1. `None` if the sum has left the range for good.
fn step(sum: f64, steps: i32) -> Option<i32> {
    match sum {
        sum if !sum.is_finite() => None,
        sum if sum >= LARGE => Some(1),
        sum if sum <= SMALL => (steps > 0).then_some(-1),
        _ => Some(0),
    }
}

/// An incomplete product: its first populations are computed.
struct Product {
    alone: Alone,
    /// a/μ(i) for each i whose rate differs from the last.
    loads: Vec<f64>,
    /// v_0 of the last population.
    last: Scaled,
    shares: Shares,
}

impl Product {
    /// Computes the populations n, …, n + N - 1, and replaces their ratios.
    fn extend<const N: usize, const WATCHED: bool>(
        &mut self,
        n: usize,
        ratios: &mut [f64],
    ) -> Option<()> {
        // The station has at most n customers.
        let first = self.loads.len().min(n);
        let mut v = [1.0; N];
        let here = self.alone.at(n);
        let mut w = lanes::<N>(&self.alone.queue_length[here - first..]);
        // The part of v_0 in which the station is not empty.
        let mut there = lanes::<N>(&self.alone.busy[here..]);
        let mut unit = [1.0; N];
        let mut steps = [0; N];
        for i in (0..first).rev() {
            let inverses = lanes::<N>(&self.alone.inverses[here - i..]);
            let empty = lanes::<N>(&self.alone.empty[here - i..]);
            let load = self.loads[i];
            let (mut least, mut most) = (f64::INFINITY, 0.0);
            for lane in 0..N {
                let load = load * inverses[lane];
                if WATCHED {
                    w[lane] = load * (w[lane] + v[lane]);
                }
                there[lane] = load * v[lane];
                v[lane] = empty[lane] * unit[lane] + there[lane];
                least = if v[lane] < least { v[lane] } else { least };
                most += v[lane];
            }
            if !(least > SMALL && most < LARGE) {
                for lane in 0..N {
                    let by = step(v[lane], steps[lane])?;
                    let factor = STEP.powi(-by);
                    (v[lane], w[lane], there[lane]) =
                        (v[lane] * factor, w[lane] * factor, there[lane] * factor);
                    steps[lane] += by;
                    unit[lane] = STEP.powi(-steps[lane]);
                }
            }
        }
        for lane in 0..N {
            if WATCHED {
                self.shares.busy.push(there[lane] / v[lane]);
                self.shares.queue_length.push(w[lane] / v[lane]);
            }
            let weight = Scaled { value: v[lane], steps: steps[lane] };
            ratios[lane] = self.alone.ratios[here + lane] * weight.over(self.last);
            self.last = weight;
        }
        Some(())
    }
}

fn lanes<const N: usize>(numbers: &[f64]) -> [f64; N] {
    let mut first = [0.0; N];
    first.copy_from_slice(&numbers[..N]);
    first
}
