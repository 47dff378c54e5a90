//! Closed networks with several classes of customers.
//!
//! A station with rates μ(j) and the largest rate M has the generating function
//!
//! ```text
//! F(u) = Σ_j u^j / Π_{i≤j} μ(i) = P(u)/(1 - u/M),   P(u) = Σ_j ε_j u^j / Π_{i≤j} μ(i),   ε_j = 1 - μ(j)/M
//! ```
//!
//! with ε_0 = 1 and u = Σ_c a_c z_c, where class c has the demand a_c. So the network's generating function is that of
//! single servers times polynomials without negative coefficients. Mean value analysis solves the network of single
//! servers (Reiser & Lavenberg 1980). Horner's scheme multiplies the polynomials in, relative to the constants of the
//! network before. So nothing is subtracted, and numbers seldom leave their range:
//!
//! ```text
//! v_j(n) = ε_j + Σ_c a_c/μ(j + 1) X_c(n) v_{j+1}(n - 1_c)
//! ```
//!
//! Then the throughput becomes X_c(n) v_0(n - 1_c)/v_0(n). If the last rate is the largest, P ends with the last rate.
//! Otherwise the degree of P is the number of customers.
//!
//! For one unit of demand, an arriving customer stays A = Σ_j (j + 1)/μ(j + 1) p(j). This is the generating function
//! with F' instead of F, relative to the network's constants: F'/F = P'/P + (1/M)/(1 - u/M).

use crate::Error;
use crate::station::{Station, checked_time};

/// The most numbers that a solver holds: 320 MB.
const VALUES_MAX: u128 = 40_000_000;

/// The most terms in the polynomials of all load-dependent stations: some ten seconds of computing.
const TERMS_MAX: u128 = 10_000_000_000;

/// The number of states between two calls of `goes_on`.
const STATES_BETWEEN_LOOKS: usize = 1 << 14;

/// The number of states whose sums are computed together, so that they stay in the processor's cache.
const CHUNK: usize = 1024;

/// The unit of a polynomial that may grow by more than e^600: 2^-960.
const SMALL_UNIT: f64 = f64::from_bits((1023 - 960) << 52);

/// The solution for every combination of populations from 0 on. The index of the populations n is
/// Σ_c n_c Π_{d>c} (N_d + 1), so the last class varies fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Lattice {
    /// Throughput by state and class; 0 for a class without customers.
    pub throughput: Vec<f64>,
    /// A by state and station: the residence time of one unit of demand that arrives in that state.
    pub arrival: Vec<f64>,
    /// By state and station: the probability that the station is not empty.
    pub busy: Vec<f64>,
}

/// Solves a closed network for all populations up to `populations`, one for each class.
///
/// `think_times` has a time for each class, and every station has a demand for each class. The solver calls `goes_on`
/// now and then, and ends if it returns false.
///
/// # Errors
///
/// * There is no class, or lists have different lengths.
/// * A time is negative or infinite, or a class has no time at all.
/// * There are more than [`VALUES_MAX`] values or [`TERMS_MAX`] terms, or numbers leave their range.
/// * `goes_on` ended the solution.
pub fn lattice(
    populations: &[usize],
    think_times: &[f64],
    stations: &[(Vec<f64>, Station)],
    goes_on: &dyn Fn() -> bool,
) -> Result<Lattice, Error> {
    check(populations, think_times, stations)?;
    let space = Space::of(populations);
    let everybody: usize = populations.iter().sum();
    let queues: Vec<Queue<'_>> =
        stations.iter().map(|(demands, station)| Queue::of(demands, station, everybody)).collect();
    let dependent: Vec<usize> = (0..queues.len()).filter(|&k| !queues[k].is_server()).collect();

    let mut solver = Solver {
        goes_on,
        shares: vec![Shares::default(); queues.len()],
        work: Work::of(&space),
        space,
        queues,
    };
    let mut throughput = solver.servers(think_times)?;
    if !dependent.is_empty() {
        throughput = solver.multiply_each_last(throughput, &dependent)?;
    }
    solver.solution(throughput)
}

fn check(
    populations: &[usize],
    think_times: &[f64],
    stations: &[(Vec<f64>, Station)],
) -> Result<(), Error> {
    let classes = populations.len();
    let differ = Error::Argument { name: "demands", problem: "expected one for each class" };
    if classes == 0 {
        return Err(Error::Argument { name: "populations", problem: "expected a class or more" });
    }
    if think_times.len() != classes || stations.iter().any(|(demands, _)| demands.len() != classes)
    {
        return Err(differ);
    }
    for &time in think_times {
        checked_time("think_times", time)?;
    }
    for &demand in stations.iter().flat_map(|(demands, _)| demands) {
        checked_time("demands", demand)?;
    }
    for class in 0..classes {
        if think_times[class] == 0.0 && stations.iter().all(|(demands, _)| demands[class] == 0.0) {
            return Err(Error::Argument {
                name: "demands",
                problem: "a class takes no time at all",
            });
        }
    }
    let (values, terms) = size(populations, stations);
    for (values, values_max) in [(values, VALUES_MAX), (terms, TERMS_MAX)] {
        if values > values_max {
            return Err(Error::TooLarge { values, values_max });
        }
    }
    Ok(())
}

/// How many numbers the solver holds, and how many terms it sums for load-dependent stations.
fn size(populations: &[usize], stations: &[(Vec<f64>, Station)]) -> (u128, u128) {
    let everybody = populations.iter().fold(0_usize, |sum, n| sum.saturating_add(*n));
    let states =
        populations.iter().fold(1_u128, |product, &n| product.saturating_mul(n as u128 + 1));
    let degrees = stations.iter().map(|(_, station)| degree(station, everybody) as u128);
    let dependent = degrees.clone().filter(|&degree| degree > 0).count();
    let (classes, stations) = (populations.len() as u128, stations.len() as u128);
    let depth = u128::from(dependent.max(1).next_power_of_two().ilog2());
    // Arrays over all states. For each class: its throughput on every level of halving, and in the solution. For each
    // station: two in the solution, and two shares if it is load-dependent. Four for work.
    let held = classes * (depth + 2) + 2 * stations + 2 * dependent as u128 + 4;
    // Each station is multiplied in once on every level. As the last factor, it takes two polynomials, P and P'.
    let terms = degrees.sum::<u128>().saturating_mul(depth + 2).saturating_mul(classes);
    (states.saturating_mul(held), states.saturating_mul(terms))
}

/// The degree of a station's polynomial, at most the number of customers and one arriving customer.
fn degree(station: &Station, everybody: usize) -> usize {
    let rates = station.rates();
    let most = station.largest_rate();
    match rates.iter().rposition(|&rate| rate != most) {
        None => 0,
        Some(last) if last + 1 < rates.len() => (last + 1).min(everybody.saturating_add(1)),
        Some(_) => everybody.saturating_add(1),
    }
}

/// The states, and the distance from a state to its neighbours with one customer less.
struct Space {
    populations: Vec<usize>,
    strides: Vec<usize>,
    states: usize,
}

impl Space {
    fn of(populations: &[usize]) -> Space {
        let mut strides = vec![1; populations.len()];
        for class in (0..populations.len() - 1).rev() {
            strides[class] = strides[class + 1] * (populations[class + 1] + 1);
        }
        Space {
            populations: populations.to_vec(),
            states: strides[0] * (populations[0] + 1),
            strides,
        }
    }

    /// Moves on to the next state.
    fn advance(&self, customers: &mut [usize]) {
        for (n, population) in customers.iter_mut().zip(&self.populations).rev() {
            if *n < *population {
                *n += 1;
                return;
            }
            *n = 0;
        }
    }
}

/// A station as a single server with the station's largest rate, and the polynomial P.
struct Queue<'a> {
    demands: &'a [f64],
    /// 1/M.
    slope: f64,
    /// 1/μ(1), …, 1/μ(degree), and an unused number.
    inverse_rates: Vec<f64>,
    /// The coefficients of P - 1, relative to 1/Π μ(i): 0 and ε_1, …, ε_degree.
    steps: Vec<f64>,
    /// The coefficients of P': (j + 1) ε_{j+1}/μ(j + 1) from j = 0 to the degree - 1.
    slopes: Vec<f64>,
    /// The unit of the sums.
    unit: f64,
}

impl<'a> Queue<'a> {
    fn of(demands: &'a [f64], station: &Station, everybody: usize) -> Queue<'a> {
        let degree = degree(station, everybody);
        let most = station.largest_rate();
        let rate = |j: usize| station.rates()[j.min(station.rates().len()) - 1];
        let step = |j: usize| (most - rate(j)) / most;
        // The single server works at M at most, so no sum is larger than this power of e.
        let growth: f64 = (1..=degree).map(|j| (most / rate(j)).ln()).sum();
        let unit = if growth > 600.0 { SMALL_UNIT } else { 1.0 };
        Queue {
            demands,
            slope: most.recip(),
            inverse_rates: (1..=degree + 1).map(|j| rate(j).recip()).collect(),
            steps: std::iter::once(0.0).chain((1..=degree).map(|j| step(j) * unit)).collect(),
            slopes: (1..=degree).map(|j| j as f64 * step(j) / rate(j) * unit).collect(),
            unit,
        }
    }

    fn is_server(&self) -> bool {
        self.slopes.is_empty()
    }
}

/// A station's results from its multiplication as the last factor, by state; empty for single servers.
#[derive(Clone, Default)]
struct Shares {
    /// P'/P.
    slope: Vec<f64>,
    /// The probability that the station is not empty.
    busy: Vec<f64>,
}

/// Two levels of Horner's scheme, by state. Both begin with `room` extra numbers, where states without customers of a
/// class would have their neighbours. These numbers do not matter, because the class has throughput 0.
struct Work {
    room: usize,
    now: Vec<f64>,
    next: Vec<f64>,
}

impl Work {
    fn of(space: &Space) -> Work {
        let room = space.strides[0];
        let level = || vec![0.0; room + space.states];
        Work { room, now: level(), next: level() }
    }

    fn level(&self) -> &[f64] {
        &self.now[self.room..]
    }

    fn level_mut(&mut self) -> &mut [f64] {
        &mut self.now[self.room..]
    }
}

struct Solver<'a> {
    goes_on: &'a dyn Fn() -> bool,
    space: Space,
    queues: Vec<Queue<'a>>,
    shares: Vec<Shares>,
    work: Work,
}

impl Solver<'_> {
    fn look(&self) -> Result<(), Error> {
        if (self.goes_on)() { Ok(()) } else { Err(Error::Interrupted) }
    }

    /// Throughputs by class and state, in the network of single servers.
    fn servers(&self, think_times: &[f64]) -> Result<Vec<Vec<f64>>, Error> {
        let (space, width) = (&self.space, self.queues.len());
        let loads: Vec<Vec<f64>> = (0..think_times.len())
            .map(|c| self.queues.iter().map(|queue| queue.demands[c] * queue.slope).collect())
            .collect();
        let mut throughput = vec![vec![0.0; space.states]; loads.len()];
        // 1 + Q by state and station.
        let mut arrival = vec![1.0; space.states * width];
        let mut customers = vec![0; loads.len()];
        for state in 0..space.states {
            if state % STATES_BETWEEN_LOOKS == 0 {
                self.look()?;
            }
            let (past, now) = arrival.split_at_mut(state * width);
            let now = &mut now[..width];
            for (c, loads) in loads.iter().enumerate().filter(|&(c, _)| customers[c] > 0) {
                let before = &past[(state - space.strides[c]) * width..][..width];
                let residence: f64 = loads.iter().zip(before).map(|(load, one)| load * one).sum();
                let rate = customers[c] as f64 / (think_times[c] + residence);
                throughput[c][state] = rate;
                for ((now, load), before) in now.iter_mut().zip(loads).zip(before) {
                    *now += rate * load * before;
                }
            }
            space.advance(&mut customers);
        }
        Ok(throughput)
    }

    /// Multiplies the polynomials of these stations in. Each station is the last factor once, as in
    /// `closed::multiply_each_last`.
    fn multiply_each_last(
        &mut self,
        throughput: Vec<Vec<f64>>,
        stations: &[usize],
    ) -> Result<Vec<Vec<f64>>, Error> {
        if let [station] = *stations {
            return self.multiply_last(throughput, station);
        }
        let (some, rest) = stations.split_at(stations.len() / 2);
        let mut with_some = throughput.clone();
        for &station in some {
            self.multiply(&mut with_some, station)?;
        }
        let mut with_rest = throughput;
        for &station in rest {
            self.multiply(&mut with_rest, station)?;
        }
        self.multiply_each_last(with_rest, some)?;
        self.multiply_each_last(with_some, rest)
    }

    fn multiply(&mut self, throughput: &mut [Vec<f64>], station: usize) -> Result<(), Error> {
        self.horner(throughput, station, |queue| &queue.steps)?;
        self.replace(throughput, station)
    }

    /// Multiplies a station's polynomial in as the last factor, and keeps the station's shares.
    fn multiply_last(
        &mut self,
        mut throughput: Vec<Vec<f64>>,
        station: usize,
    ) -> Result<Vec<Vec<f64>>, Error> {
        self.horner(&throughput, station, |queue| &queue.slopes)?;
        let mut slope = self.work.level().to_vec();
        self.horner(&throughput, station, |queue| &queue.steps)?;
        // (F - 1)/F = (P - 1 + u/M)/P.
        let mut busy = self.work.level().to_vec();
        let queue = &self.queues[station];
        for (rates, demand) in throughput.iter().zip(queue.demands) {
            let load = demand * queue.slope * queue.unit;
            for (busy, rate) in busy.iter_mut().zip(rates) {
                *busy += load * rate;
            }
        }
        self.replace(&mut throughput, station)?;
        for ((slope, busy), sum) in slope.iter_mut().zip(&mut busy).zip(self.work.level()) {
            *slope /= sum;
            *busy /= sum;
        }
        self.shares[station] = Shares { slope, busy };
        Ok(throughput)
    }

    /// Computes a polynomial, relative to the constants of the network with these throughputs.
    fn horner(
        &mut self,
        throughput: &[Vec<f64>],
        station: usize,
        coefficients: for<'q> fn(&'q Queue<'_>) -> &'q Vec<f64>,
    ) -> Result<(), Error> {
        let queue = &self.queues[station];
        let classes: Vec<(&[f64], f64, usize)> = throughput
            .iter()
            .zip(queue.demands)
            .zip(&self.space.strides)
            .filter(|((_, demand), _)| **demand > 0.0)
            .map(|((rates, demand), stride)| (rates.as_slice(), *demand, *stride))
            .collect();
        let mut coefficients = coefficients(queue).iter().zip(&queue.inverse_rates).rev();
        // The coefficient of the highest power.
        if let Some((&coefficient, _)) = coefficients.next() {
            self.work.level_mut().fill(coefficient);
        }
        for (&coefficient, &inverse_rate) in coefficients {
            self.look()?;
            let Work { room, now, next } = &mut self.work;
            for (number, sums) in next[*room..].chunks_mut(CHUNK).enumerate() {
                let first = number * CHUNK;
                sums.fill(coefficient);
                for &(rates, demand, stride) in &classes {
                    let load = demand * inverse_rate;
                    let (rates, before) = (&rates[first..], &now[*room + first - stride..]);
                    for ((sum, rate), before) in sums.iter_mut().zip(rates).zip(before) {
                        *sum += load * rate * before;
                    }
                }
            }
            std::mem::swap(now, next);
        }
        Ok(())
    }

    /// Adds the missing 1 to P - 1, and replaces the throughputs by those of the network with the station.
    fn replace(&mut self, throughput: &mut [Vec<f64>], station: usize) -> Result<(), Error> {
        let unit = self.queues[station].unit;
        self.work.level_mut().iter_mut().for_each(|sum| *sum += unit);
        let Work { room, now, .. } = &self.work;
        if !self.work.level().iter().all(|sum| sum.is_finite()) {
            return Err(Error::Range);
        }
        for (rates, stride) in throughput.iter_mut().zip(&self.space.strides) {
            let neighbours = now[room - stride..].iter().zip(&now[*room..]);
            for (rate, (before, sum)) in rates.iter_mut().zip(neighbours) {
                *rate *= before / sum;
            }
        }
        Ok(())
    }

    fn solution(self, rates: Vec<Vec<f64>>) -> Result<Lattice, Error> {
        let (classes, width) = (rates.len(), self.queues.len());
        let mut throughput = vec![0.0; self.space.states * classes];
        let mut arrival = vec![1.0; self.space.states * width];
        let mut busy = vec![0.0; self.space.states * width];
        for state in 0..self.space.states {
            let (past, now) = arrival.split_at_mut(state * width);
            let busy = &mut busy[state * width..][..width];
            for (c, stride) in self.space.strides.iter().enumerate() {
                let rate = rates[c][state];
                throughput[state * classes + c] = rate;
                if rate > 0.0 {
                    let before = &past[(state - stride) * width..][..width];
                    for (k, queue) in self.queues.iter().enumerate() {
                        let load = rate * queue.demands[c] * queue.slope;
                        busy[k] += load;
                        now[k] += load * before[k];
                    }
                }
            }
        }
        for (k, queue) in self.queues.iter().enumerate() {
            let arrival = arrival[k..].iter_mut().step_by(width);
            let shares = &self.shares[k];
            for (state, arrival) in arrival.enumerate() {
                *arrival *= queue.slope;
                if !queue.is_server() {
                    *arrival += shares.slope[state];
                    busy[state * width + k] = shares.busy[state];
                }
            }
        }
        if throughput.iter().chain(&arrival).all(|value| value.is_finite()) {
            Ok(Lattice { throughput, arrival, busy })
        } else {
            Err(Error::Range)
        }
    }
}
