//! Closed networks with several classes of customers, by mean value analysis.
//!
//! A customer that arrives finds the station as it is with one customer of its class less (Reiser &
//! Lavenberg 1980), so its residence time in population n is a_ck A_k(n - 1_c), where A_k is what
//! the station then takes for one unit of demand:
//!
//! ```text
//! A_k = Σ_j (j + 1)/μ(j + 1) p(j) = (1 + Q)/μ(L) + Σ_{j<L-1} (j + 1) (1/μ(j + 1) - 1/μ(L)) p(j)
//! ```
//!
//! Where rates only grow, every term is positive. The textbooks' p(0) = 1 - Σ p(j) is what breaks
//! down; here it is the ratio of normalising constants without the station and with it, carried
//! forward as p(0|n) = p(0|n - 1_c) X_c(n)/X'_c(n) with X' the throughputs without the station
//! (Reiser 1981). So the network is solved without every set of load-dependent stations as well.

use crate::Error;
use crate::station::{Station, checked_time};

/// Numbers that a solution may hold while it is made: 320 MB.
const VALUES_MAX: u128 = 40_000_000;

/// Probabilities are carried as so many times themselves, 2^960, as p(0) becomes very small before
/// the probabilities that follow from it cease to matter.
const UNIT: f64 = f64::from_bits((1023 + 960) << 52);
/// What a probability that was lost, below 10^-308/UNIT, may be multiplied with before it matters:
/// the logarithm of 10^280 UNIT.
const GROWTH_MAX: f64 = 645.0 + 665.0;
/// How far the sum of all probabilities may be from 1.
const ROUNDING: f64 = 1e-9;

/// The solution for every combination of populations from 0 on: the state of populations n is
/// Σ_c n_c Π_{d>c} (N_d + 1), the last class running fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Lattice {
    /// Throughput by state and class; 0 for a class without customers.
    pub throughput: Vec<f64>,
    /// A by state and station: the residence time of one unit of demand that arrives in that state.
    pub arrival: Vec<f64>,
}

/// Solves a closed network for all populations up to `populations`, one for each class.
///
/// `think_times` are by class; every station has its demands by class.
///
/// # Errors
///
/// No class, lengths that differ, a negative or infinite time, a class that nothing takes time of,
/// more than [`VALUES_MAX`] values, or numbers that leave their range.
pub fn lattice(
    populations: &[usize],
    think_times: &[f64],
    stations: &[(Vec<f64>, Station)],
) -> Result<Lattice, Error> {
    check(populations, think_times, stations)?;
    let everybody: usize = populations.iter().sum();
    let queues: Vec<Queue<'_>> =
        stations.iter().map(|(demands, station)| Queue::of(demands, station, everybody)).collect();
    let dependent: Vec<usize> = (0..queues.len()).filter(|&k| queues[k].tracked > 0).collect();
    let space = Space::of(populations);

    if queues.iter().any(|queue| queue.growth > GROWTH_MAX) {
        return Err(Error::Range);
    }

    // Every set of load-dependent stations that may be absent, from all of them to none.
    let sets = 1_usize << dependent.len();
    let mut throughputs: Vec<Vec<f64>> = vec![Vec::new(); sets];
    for absent in (1..sets).rev() {
        let (throughput, _) =
            sweep(&space, think_times, &queues, &dependent, absent, &throughputs)?;
        throughputs[absent] = throughput;
    }
    let (throughput, arrival) = sweep(&space, think_times, &queues, &dependent, 0, &throughputs)?;
    if throughput.iter().chain(&arrival).all(|value| value.is_finite()) {
        Ok(Lattice { throughput, arrival })
    } else {
        Err(Error::Range)
    }
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
    let values = values(populations, stations);
    if values > VALUES_MAX {
        return Err(Error::TooLarge { values, values_max: VALUES_MAX });
    }
    Ok(())
}

/// How many numbers the solution of a network holds while it is made.
fn values(populations: &[usize], stations: &[(Vec<f64>, Station)]) -> u128 {
    let everybody = populations.iter().fold(0_usize, |sum, n| sum.saturating_add(*n));
    let states =
        populations.iter().fold(1_u128, |product, &n| product.saturating_mul(n as u128 + 1));
    let tracked = stations
        .iter()
        .map(|(_, station)| tracked(station, everybody) as u128)
        .filter(|&counts| counts > 0);
    let sets = 1_u128.checked_shl(tracked.clone().count() as u32).unwrap_or(u128::MAX);
    let throughputs = sets.saturating_mul(populations.len() as u128);
    states
        .saturating_mul(throughputs.saturating_add(stations.len() as u128 + tracked.sum::<u128>()))
}

/// How many of a station's probabilities p(0), p(1), … the recursion needs: all of them where the
/// last rate is not the largest, as the terms of the shorter sum would have either sign.
fn tracked(station: &Station, everybody: usize) -> usize {
    let last = station.last_rate();
    match station.rates().iter().all(|&rate| rate <= last) {
        true if !station.is_load_dependent() => 0,
        true => (station.rates().len() - 1).min(everybody.saturating_add(1)),
        false => everybody.saturating_add(1),
    }
}

/// The states and where their neighbours are.
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

    /// Counts one state on.
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

/// A station as the recursion takes it.
struct Queue<'a> {
    demands: &'a [f64],
    /// 1/μ(1), 1/μ(2), …, as many as probabilities are tracked.
    inverse_rates: Vec<f64>,
    tracked: usize,
    /// What p(j) adds to A beyond `slope` (1 + Q).
    weights: Vec<f64>,
    slope: f64,
    /// Whether all probabilities are tracked.
    complete: bool,
    /// The logarithm of how many times p(0) a probability that is tracked can become: what the station
    /// does is at most μ(L), so that p(j) grows to Π μ(L)/μ(i) times p(0). Where all are tracked their sum
    /// tells.
    growth: f64,
}

impl<'a> Queue<'a> {
    fn of(demands: &'a [f64], station: &Station, everybody: usize) -> Queue<'a> {
        let tracked = tracked(station, everybody);
        let rate = |j: usize| station.rates()[j.min(station.rates().len()) - 1];
        let complete = tracked > everybody;
        let slope = if complete { 0.0 } else { station.last_rate().recip() };
        Queue {
            demands,
            inverse_rates: (1..=tracked).map(|j| rate(j).recip()).collect(),
            tracked,
            weights: (1..=tracked).map(|j| j as f64 * (rate(j).recip() - slope) / UNIT).collect(),
            slope,
            complete,
            growth: match complete {
                true => 0.0,
                false => (1..tracked).map(|j| (station.last_rate() / rate(j)).ln()).sum(),
            },
        }
    }
}

/// The recursion over all states, without the load-dependent stations that are `absent`. Returns
/// throughputs and A, or [`Error::Range`] where probabilities were lost.
fn sweep(
    space: &Space,
    think_times: &[f64],
    queues: &[Queue<'_>],
    dependent: &[usize],
    absent: usize,
    throughputs: &[Vec<f64>],
) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let (classes, width) = (think_times.len(), queues.len());
    let bit = |k: usize| dependent.iter().position(|&other| other == k).map_or(0, |at| 1 << at);
    let present: Vec<usize> = (0..width).filter(|&k| bit(k) & absent == 0).collect();
    // A class may have no work left: its customers are nowhere then.
    let working: Vec<usize> = (0..classes)
        .filter(|&c| think_times[c] > 0.0 || present.iter().any(|&k| queues[k].demands[c] > 0.0))
        .collect();
    let without: Vec<&[f64]> =
        (0..width).map(|k| throughputs[absent | bit(k)].as_slice()).collect();

    let mut throughput = vec![0.0; space.states * classes];
    let mut arrival = vec![0.0; space.states * width];
    let mut probabilities: Vec<Vec<f64>> = (0..width)
        .map(|k| vec![0.0; if bit(k) & absent == 0 { space.states * queues[k].tracked } else { 0 }])
        .collect();

    let mut customers = vec![0; classes];
    let mut there = Vec::with_capacity(classes);
    for state in 0..space.states {
        there.clear();
        there.extend(working.iter().copied().filter(|&c| customers[c] > 0));
        let rates = &mut throughput[state * classes..][..classes];
        for c in 0..classes {
            if customers[c] > 0 {
                rates[c] = f64::INFINITY;
            }
        }
        for &c in &there {
            let before = &arrival[(state - space.strides[c]) * width..][..width];
            let residence: f64 = present.iter().map(|&k| queues[k].demands[c] * before[k]).sum();
            rates[c] = customers[c] as f64 / (think_times[c] + residence);
        }
        for &k in &present {
            let queue = &queues[k];
            let mut length = 0.0;
            for &c in &there {
                let before = arrival[(state - space.strides[c]) * width + k];
                length += rates[c] * queue.demands[c] * before;
            }
            let mut held = queue.slope * (1.0 + length);
            if queue.tracked > 0 {
                let (past, now) = probabilities[k].split_at_mut(state * queue.tracked);
                let now = &mut now[..queue.tracked];
                now[0] = UNIT;
                if let Some(&c) = there.first() {
                    let other = &without[k][state * classes..][..classes];
                    // Somebody without other work is always there.
                    now[0] = match there.iter().any(|&c| other[c].is_infinite()) {
                        true => 0.0,
                        false => {
                            past[(state - space.strides[c]) * queue.tracked] * (rates[c] / other[c])
                        }
                    };
                }
                for &c in &there {
                    let load = rates[c] * queue.demands[c];
                    let before =
                        &past[(state - space.strides[c]) * queue.tracked..][..queue.tracked];
                    for j in 1..queue.tracked {
                        now[j] += load * queue.inverse_rates[j - 1] * before[j - 1];
                    }
                }
                if queue.complete
                    && there.len() == customers.iter().filter(|&&n| n > 0).count()
                    && (now.iter().sum::<f64>() / UNIT - 1.0).abs() > ROUNDING
                {
                    return Err(Error::Range);
                }
                held += queue.weights.iter().zip(&*now).map(|(weight, p)| weight * p).sum::<f64>();
            }
            arrival[state * width + k] = held;
        }
        space.advance(&mut customers);
    }
    Ok((throughput, arrival))
}
