//! Compares the solvers with plain convolution and with each other, and tests their errors.

use std::cell::Cell;

use knee_kernels::{Closed, Error, Lattice, POPULATION_MAX, Station};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn closed(
    population: usize,
    think_time: f64,
    stations: &[(f64, Station)],
) -> Result<Closed, Error> {
    knee_kernels::closed(population, think_time, stations, &|| true)
}

fn lattice(
    populations: &[usize],
    think_times: &[f64],
    stations: &[(Vec<f64>, Station)],
) -> Result<Lattice, Error> {
    knee_kernels::lattice(populations, think_times, stations, &|| true)
}

/// Normalising constants 0, …, N by convolution (Buzen 1973), which works for small networks.
fn constants(population: usize, think_time: f64, stations: &[(f64, Vec<f64>)]) -> Vec<f64> {
    let mut all = series(population, think_time, |there| there as f64);
    for (demand, rates) in stations {
        let one = series(population, *demand, |there| rates[there.min(rates.len()) - 1]);
        all = (0..=population).map(|n| (0..=n).map(|j| one[j] * all[n - j]).sum()).collect();
    }
    all
}

fn series(population: usize, demand: f64, rate: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut coefficients = vec![1.0];
    for there in 1..=population {
        coefficients.push(coefficients[there - 1] * demand / rate(there));
    }
    coefficients
}

fn solvable(stations: &[(f64, Vec<f64>)]) -> Vec<(f64, Station)> {
    stations
        .iter()
        .map(|(demand, rates)| (*demand, Station::new(rates.clone()).expect("rates above 0")))
        .collect()
}

/// A station of this number of servers of rate 1.
fn servers(count: u32) -> Station {
    Station::new((1..=count).map(f64::from).collect()).expect("rates above 0")
}

fn assert_close(ours: f64, expected: f64, relative: f64) {
    assert!(
        (ours - expected).abs() <= relative * expected.abs() + f64::MIN_POSITIVE,
        "{ours} is not {expected}"
    );
}

prop_compose! {
    fn stations()(
        some in prop::collection::vec((0.01..10.0, prop::collection::vec(0.05..20.0, 1..6)), 1..6)
    ) -> Vec<(f64, Vec<f64>)> {
        some
    }
}

/// By default all runs draw the same networks. `KNEE_SOAK=n` draws n times as many networks, different in each run.
fn draws() -> ProptestConfig {
    let soak: Option<u32> = std::env::var("KNEE_SOAK").ok().and_then(|times| times.parse().ok());
    let config = ProptestConfig::default();
    ProptestConfig {
        cases: config.cases * soak.unwrap_or(1),
        rng_seed: soak.map_or(RngSeed::Fixed(20_261_123), |_| RngSeed::Random),
        ..config
    }
}

proptest! {
    #![proptest_config(draws())]
    #[test]
    fn solution_agrees_with_convolution(population in 1..30_usize, think_time in 0.0..20.0, stations in stations()) {
        let solution = closed(population, think_time, &solvable(&stations)).expect("in range");
        let all = constants(population, think_time, &stations);
        for n in 1..=population {
            assert_close(solution.throughput[n - 1], all[n - 1] / all[n], 1e-12);
        }
        for (index, (demand, rates)) in stations.iter().enumerate() {
            let mut others = stations.clone();
            others.remove(index);
            let without = constants(population, think_time, &others);
            let one = series(population, *demand, |there| rates[there.min(rates.len()) - 1]);
            for n in 1..=population {
                let length: f64 = (1..=n).map(|j| j as f64 * one[j] * without[n - j]).sum();
                let busy: f64 = (1..=n).map(|j| one[j] * without[n - j]).sum();
                let shares = &solution.stations[index];
                assert_close(shares.queue_length[n - 1], length / all[n], 1e-12);
                assert_close(shares.busy[n - 1], busy / all[n], 1e-12);
            }
        }
    }

    #[test]
    fn lattice_of_one_class_agrees_with_closed(
        population in 1..200_usize, think_time in 0.0..20.0, stations in stations()
    ) {
        let one = closed(population, think_time, &solvable(&stations)).expect("in range");
        let by_class: Vec<(Vec<f64>, Station)> = solvable(&stations)
            .into_iter()
            .map(|(demand, station)| (vec![demand], station))
            .collect();
        let all = lattice(&[population], &[think_time], &by_class).expect("in range");
        for n in 1..=population {
            assert_close(all.throughput[n], one.throughput[n - 1], 1e-11);
            for (k, shares) in one.stations.iter().enumerate() {
                assert_close(all.busy[n * stations.len() + k], shares.busy[n - 1], 1e-11);
                let arrival = all.arrival[(n - 1) * stations.len() + k];
                let length = one.throughput[n - 1] * stations[k].0 * arrival;
                assert_close(length, shares.queue_length[n - 1], 1e-11);
            }
        }
    }

    #[test]
    fn queue_lengths_add_up_to_the_population(population in 1..5000_usize, stations in stations()) {
        let solution = closed(population, 3.0, &solvable(&stations)).expect("in range");
        for n in 1..=population {
            let thinking = 3.0 * solution.throughput[n - 1];
            let there: f64 = solution.stations.iter().map(|all| all.queue_length[n - 1]).sum();
            assert_close(thinking + there, n as f64, 1e-11);
        }
    }
}

#[test]
fn unvisited_stations_do_not_change_the_solution() {
    let visited = (0.5, servers(3));
    let alone = closed(50, 1.0, std::slice::from_ref(&visited)).expect("in range");
    let unvisited =
        [(0.0, servers(1)), visited, (0.0, Station::new(vec![2.0, 1.0]).expect("rates"))];
    let among = closed(50, 1.0, &unvisited).expect("in range");
    assert_eq!(alone.throughput, among.throughput);
    assert!(among.stations[0].queue_length.iter().all(|&length| length == 0.0));
    assert!(among.stations[2].busy.iter().all(|&share| share == 0.0));
}

#[test]
fn sum_beyond_the_range_of_numbers_is_rescaled() {
    // 2000 servers are a delay for 2000 customers, because no customer waits.
    let delay = closed(2000, 700.0, &[(0.5, servers(1))]).expect("in range");
    let servers = [(0.5, servers(1)), (700.0, servers(2000))];
    let pool = closed(2000, 0.0, &servers).expect("in range");
    for (ours, expected) in pool.throughput.iter().zip(&delay.throughput) {
        assert_close(*ours, *expected, 1e-13);
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let disk = || (1.0, servers(1));
    let name = |result: Result<_, Error>| match result.map(|_: Closed| ()) {
        Err(Error::Argument { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(name(closed(0, 1.0, &[disk()])), "population");
    assert_eq!(name(closed(POPULATION_MAX + 1, 1.0, &[disk()])), "population");
    assert_eq!(name(closed(1, f64::NAN, &[disk()])), "think_time");
    assert_eq!(name(closed(1, -1.0, &[disk()])), "think_time");
    assert_eq!(name(closed(1, 0.0, &[(f64::INFINITY, servers(1))])), "demands");
    assert_eq!(name(closed(1, 0.0, &[(0.0, servers(1))])), "demands");
    assert_eq!(name(closed(1, 0.0, &[])), "demands");
    for rates in [vec![], vec![0.0], vec![1.0, -1.0], vec![f64::NAN], vec![f64::INFINITY]] {
        assert!(matches!(Station::new(rates), Err(Error::Argument { name: "rates", .. })));
    }
    let long = Station::new((1..=200_000).map(f64::from).collect()).expect("rates");
    assert!(matches!(closed(200_000, 1.0, &[(1.0, long)]), Err(Error::TooLarge { .. })));
    let many = vec![disk(); 20];
    assert!(matches!(closed(POPULATION_MAX, 1.0, &many), Err(Error::TooLarge { .. })));
    assert_eq!(closed(5, 0.0, &[(1e-310, servers(1))]), Err(Error::Range));
}

#[test]
fn far_falling_rates_are_solved() {
    // The rate is 1 with up to 400 customers, and falls to 1e-4 with more. The other station has rate 1.
    let cliff = [vec![1.0; 400], vec![1e-4]].concat();
    let stations = [(1.0, cliff), (1.0, vec![1.0])];
    let solution = closed(2000, 0.0, &solvable(&stations)).expect("in range");
    // Up to 400 customers, both stations are equal and share them evenly. With more, nearly all stay at the slow
    // station.
    assert_close(solution.throughput[399], 400.0 / 401.0, 1e-13);
    assert_close(solution.stations[0].queue_length[399], 200.0, 1e-13);
    assert_close(solution.throughput[1999], 1e-4, 1e-12);
    assert_close(solution.stations[0].queue_length[1999], 2000.0 - 1e-4 / (1.0 - 1e-4), 1e-12);
    // Without another station, the station has all customers.
    let alone = closed(2000, 0.0, &solvable(&stations[..1])).expect("in range");
    assert_eq!((alone.throughput[399], alone.throughput[400]), (1.0, 1e-4));
    assert_eq!(alone.stations[0].queue_length[1999], 2000.0);
}

#[test]
fn vanishing_probabilities_are_solved() {
    // With 1000 customers, the pool is empty with a probability of 10^-391; with 2000, it is 10^-4.
    let pool = [(900.0, servers(1000)), (1.0, servers(1))];
    let one = closed(2000, 0.0, &pool).expect("in range");
    let by_class = |pool: &[(f64, Station)]| -> Vec<(Vec<f64>, Station)> {
        pool.iter().map(|(demand, station)| (vec![*demand], station.clone())).collect()
    };
    let all = lattice(&[2000], &[0.0], &by_class(&pool)).expect("in range");
    for n in 1..=2000 {
        assert_close(all.throughput[n], one.throughput[n - 1], 1e-12);
    }
    let larger = [(1800.0, servers(2000)), (1.0, servers(1))];
    assert_eq!(lattice(&[3000], &[0.0], &by_class(&larger)), Err(Error::Range));
}

/// A store slowed down by coherence (Gunther's law). The product of its M/μ(j) leaves the range of numbers, as
/// docs/methods/closed-networks.md says.
#[test]
fn rates_falling_beyond_numbers_are_refused() {
    let rate = |j: f64| j / (1.0 + 0.02 * (j - 1.0) + 0.002 * j * (j - 1.0));
    let law = Station::new((1..=900).map(|j| rate(f64::from(j))).collect()).expect("rates");
    let server = servers(1);
    let two_classes = |first| {
        let stations = [(vec![1.0; 2], law.clone()), (vec![0.02; 2], server.clone())];
        lattice(&[first, 2], &[1.0; 2], &stations)
    };
    let all = two_classes(740).expect("in range");
    let one = closed(742, 1.0, &[(1.0, law.clone()), (0.02, server.clone())]).expect("in range");
    let last = &all.throughput[all.throughput.len() - 2..];
    assert_close(last[0] + last[1], one.throughput[741], 1e-12);
    assert_eq!(two_classes(850), Err(Error::Range));
    // The solver of one class computes only ratios, which stay in range.
    closed(900, 1.0, &[(1.0, law), (0.02, server)]).expect("in range");
}

#[test]
fn invalid_classes_are_refused() {
    let disk = || (vec![1.0, 1.0], servers(1));
    let is_refused = |populations: &[usize], think_times: &[f64], stations: &[_]| {
        matches!(lattice(populations, think_times, stations), Err(Error::Argument { .. }))
    };
    assert!(is_refused(&[], &[], &[]));
    assert!(is_refused(&[1], &[0.0, 0.0], &[disk()]));
    assert!(is_refused(&[1], &[0.0], &[disk()]));
    assert!(is_refused(&[1, 1], &[0.0, f64::NAN], &[disk()]));
    assert!(is_refused(&[1, 1], &[1.0, 0.0], &[(vec![1.0, 0.0], servers(1))]));
    assert!(!is_refused(&[1, 1], &[0.0, 0.0], &[disk()]));
    let most = [usize::MAX, usize::MAX];
    assert!(matches!(lattice(&most, &[0.0, 0.0], &[disk()]), Err(Error::TooLarge { .. })));
}

/// A solver ends at the first call of `goes_on` that returns false.
#[test]
fn interrupted_solver_is_an_error() {
    let falling = Station::new([vec![1.0; 400], vec![1e-4]].concat()).expect("rates");
    for station in [servers(8), falling] {
        for looks in 0..4 {
            let left = Cell::new(looks);
            let goes_on = || left.replace(left.get() - 1) > 0;
            let two = [(1.0, station.clone()), (1.0, servers(3))];
            let result = knee_kernels::closed(5000, 1.0, &two, &goes_on);
            assert_eq!(result, Err(Error::Interrupted));
            left.set(looks);
            let two = two.map(|(demand, station)| (vec![demand; 2], station));
            let result = knee_kernels::lattice(&[100, 200], &[1.0; 2], &two, &goes_on);
            assert_eq!(result, Err(Error::Interrupted));
        }
    }
}
