//! Closed networks with one class of customers.

use crate::Error;
use crate::series::{Series, Shares};
use crate::station::{Station, checked_time};

/// The largest population.
pub const POPULATION_MAX: usize = 1_000_000;

/// The most terms in the series of all load-dependent stations: some ten seconds of computing.
const TERMS_MAX: u128 = 10_000_000_000;

/// The most numbers in a solution: 320 MB.
const VALUES_MAX: u128 = 40_000_000;

/// The solution for every population; index n - 1 is the population n.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// Customers that pass the reference point, per unit of time.
    pub throughput: Vec<f64>,
    /// The solution of every station.
    pub stations: Vec<Shares>,
}

/// Solves a closed network for the populations 1, …, `population`.
///
/// `think_time` is the mean time at all delays. `stations` are the other stations with their demands. A demand is the
/// mean number of visits times the mean service time at rate 1. The solver calls `goes_on` now and then, and ends if it
/// returns false.
///
/// # Errors
///
/// * The population is 0 or above [`POPULATION_MAX`].
/// * A time is negative or infinite, or the network has no time at all.
/// * There are more than [`TERMS_MAX`] terms or [`VALUES_MAX`] values, or numbers leave their range.
/// * `goes_on` ended the solution.
pub fn closed(
    population: usize,
    think_time: f64,
    stations: &[(f64, Station)],
    goes_on: &dyn Fn() -> bool,
) -> Result<Closed, Error> {
    check(population, think_time, stations)?;

    let mut base = Series::of_delay(think_time, population);
    let (mut servers, mut others) = (Vec::new(), Vec::new());
    for (index, (demand, station)) in stations.iter().enumerate() {
        match *demand {
            0.0 => {}
            _ if station.is_load_dependent() => others.push(index),
            _ => servers.push((index, demand / station.last_rate())),
        }
    }
    for (_, load) in &servers {
        base.multiply_by_server(*load);
    }

    let nothing = || Shares { queue_length: vec![0.0; population], busy: vec![0.0; population] };
    let mut shares: Vec<Shares> = stations.iter().map(|_| nothing()).collect();
    let whole = match others.is_empty() {
        true => base,
        false => multiply_each_last(base, &others, stations, &mut shares, goes_on)?,
    };
    let throughput: Vec<f64> = whole.ratios().iter().map(|ratio| ratio.recip()).collect();
    for (index, load) in servers {
        shares[index] = of_server(load, &throughput);
    }

    let solution = Closed { throughput, stations: shares };
    if solution.is_in_range() { Ok(solution) } else { Err(Error::Range) }
}

impl Closed {
    fn is_in_range(&self) -> bool {
        self.throughput.iter().all(|rate| rate.is_finite() && *rate > 0.0)
            && self.stations.iter().flat_map(|shares| &shares.queue_length).all(|n| n.is_finite())
    }
}

fn check(population: usize, think_time: f64, stations: &[(f64, Station)]) -> Result<(), Error> {
    if !(1..=POPULATION_MAX).contains(&population) {
        return Err(Error::Argument { name: "population", problem: "expected 1 to 1,000,000" });
    }
    checked_time("think_time", think_time)?;
    for (demand, _) in stations {
        checked_time("demands", *demand)?;
    }
    if think_time == 0.0 && stations.iter().all(|(demand, _)| *demand == 0.0) {
        return Err(Error::Argument { name: "demands", problem: "nothing takes any time" });
    }
    let values = population as u128 * (1 + 2 * stations.len() as u128);
    if values > VALUES_MAX {
        return Err(Error::TooLarge { values, values_max: VALUES_MAX });
    }
    let others = stations.iter().filter(|(_, station)| station.is_load_dependent());
    let depth = others.clone().count().max(1).ilog2() + 1;
    let terms = others
        .map(|(_, station)| station.rates().len().min(population) as u128 * population as u128)
        .sum::<u128>()
        * u128::from(depth);
    if terms > TERMS_MAX {
        return Err(Error::TooLarge { values: terms, values_max: TERMS_MAX });
    }
    Ok(())
}

/// Multiplies the stations with these indices into the series. A product shows only the queue of its last factor, so
/// each station is the last factor once. Recursive halving of K stations takes log₂ K multiplications for each station,
/// instead of K.
fn multiply_each_last(
    series: Series,
    indices: &[usize],
    stations: &[(f64, Station)],
    shares: &mut [Shares],
    goes_on: &dyn Fn() -> bool,
) -> Result<Series, Error> {
    if let [index] = *indices {
        let (demand, station) = &stations[index];
        let mut whole = series;
        shares[index] = whole.multiply_last(*demand, station.rates(), goes_on)?;
        return Ok(whole);
    }
    let multiplied = |mut series: Series, indices: &[usize]| {
        for &index in indices {
            let (demand, station) = &stations[index];
            series.multiply(*demand, station.rates(), goes_on)?;
        }
        Ok(series)
    };
    let (some, rest) = indices.split_at(indices.len() / 2);
    let with_some = multiplied(series.clone(), some)?;
    let with_rest = multiplied(series, rest)?;
    multiply_each_last(with_rest, some, stations, shares, goes_on)?;
    multiply_each_last(with_some, rest, stations, shares, goes_on)
}

/// A single server in a network. An arriving customer sees the network with one customer less (Reiser & Lavenberg
/// 1980), so Q(n) = s X(n) (1 + Q(n - 1)).
fn of_server(load: f64, throughput: &[f64]) -> Shares {
    let busy: Vec<f64> = throughput.iter().map(|rate| load * rate).collect();
    let queue_length = busy
        .iter()
        .scan(0.0, |before, busy| {
            *before = busy * (1.0 + *before);
            Some(*before)
        })
        .collect();
    Shares { queue_length, busy }
}
