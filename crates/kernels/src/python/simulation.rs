//! `knee._kernels.simulate`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrays::bytes;
use super::interrupt::LOOK_EVERY;
use crate::simulate::{
    Class, Error, Layered, Length, Model, Plan, Replication, Route, Service, Shape, Source, Stage,
    Station, Tier, Time,
};

/// Servers, 0 for a delay; speeds, empty unless they vary; places; whether customers share the servers; levels by class,
/// empty without priorities; whether customers wait for a place.
type StationArgument = (u32, Vec<f64>, u32, bool, Vec<u32>, bool);
/// Name; parameters; the probabilities of quantiles.
type ShapeArgument = (String, Vec<f64>, Vec<f64>);
type TimeArgument = (f64, ShapeArgument);
/// Population, None for an open class; think or interarrival time; service times by station; steps by position; ways by
/// position.
type ClassArgument =
    (Option<u32>, TimeArgument, Vec<TimeArgument>, Vec<usize>, Vec<Vec<(f64, u32)>>);

type Bytes<'py> = Bound<'py, PyBytes>;
/// Duration; rounds; visits; busy servers; histograms by class; series.
type ReplicationResult<'py> = (
    f64,
    Bytes<'py>,
    Bytes<'py>,
    Bytes<'py>,
    Vec<Bytes<'py>>,
    Option<(u64, Bytes<'py>, Bytes<'py>)>,
);

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        match error {
            Error::Lost { lost, completed } => LostError::new_err((lost, completed)),
            _ => PyValueError::new_err(error.to_string()),
        }
    }
}

create_exception!(
    _kernels,
    LostError,
    PyValueError,
    "Far more rounds are lost than completed: (lost, completed)."
);

/// Simulates a network several times.
#[pyfunction]
#[pyo3(signature = (
    stations, steps, classes, *, seed, first_stream, replications, warmup, observed, in_time, has_series
))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(super) fn simulate(
    py: Python<'_>,
    stations: Vec<StationArgument>,
    steps: Vec<Vec<usize>>,
    classes: Vec<ClassArgument>,
    seed: u64,
    first_stream: u64,
    replications: u32,
    warmup: f64,
    observed: f64,
    in_time: bool,
    has_series: bool,
) -> PyResult<Vec<ReplicationResult<'_>>> {
    let stations = stations.into_iter().map(station).collect();
    let classes = classes.into_iter().map(class).collect::<Result<_, Error>>()?;
    let model = Model { stations, steps, classes };
    let length = |value: f64| match in_time {
        true => Length::Time(value),
        // A negative number, or one that is not a number, becomes 0.
        false => Length::Rounds(value as u64),
    };
    let (warmup, observed) = (length(warmup), length(observed));
    let plan = Plan { seed, first_stream, replications, warmup, observed, has_series };
    let replications =
        py.detach(|| in_other_threads(|stop| crate::simulate::simulate(&model, &plan, stop)))?;
    replications.iter().map(|replication| result(py, replication)).collect()
}

/// Host; threads; work; wake-up; whether each slot has its own thread.
type TierArgument = (usize, usize, f64, f64, bool);
/// Delay; stretch; shares by tier.
type StageArgument = (f64, f64, Vec<f64>);
/// Duration, completed requests, sums of response times, waits and times inside; active threads by tier; busy cores by
/// host; histogram.
type ObservedResult<'py> = (Bytes<'py>, Bytes<'py>, Bytes<'py>, Bytes<'py>);

/// Simulates a layered network several times.
#[pyfunction]
#[pyo3(signature = (
    cores, tiers, outside, inside, *, think, work, customers, pools, slots, seed, replications, warmup, rounds
))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(super) fn simulate_layered(
    py: Python<'_>,
    cores: Vec<f64>,
    tiers: Vec<TierArgument>,
    outside: StageArgument,
    inside: StageArgument,
    think: TimeArgument,
    work: ShapeArgument,
    customers: usize,
    pools: usize,
    slots: usize,
    seed: u64,
    replications: u32,
    warmup: u64,
    rounds: u64,
) -> PyResult<Vec<ObservedResult<'_>>> {
    let tier =
        |(host, threads, work, wakeup, by_slot)| Tier { host, threads, work, wakeup, by_slot };
    let stage = |(delay, stretch, shares)| Stage { delay, stretch, shares };
    let (outside, inside) = (stage(outside), stage(inside));
    let (tiers, think, work) = (tiers.into_iter().map(tier).collect(), time(think)?, shape(work)?);
    let network = Layered { cores, tiers, outside, inside, think, work, customers, pools, slots };
    let simulated = |stop: &AtomicBool| {
        crate::simulate::simulate_layered(&network, seed, replications, warmup, rounds, stop)
    };
    let found = py.detach(|| in_other_threads(simulated))?;
    found
        .iter()
        .map(|one| {
            let sums = [one.duration, one.completed as f64, one.response, one.waiting, one.inside];
            let buckets: Vec<[f64; 3]> = one.histogram.buckets().collect();
            Ok((
                array(py, &sums)?,
                array(py, &one.active)?,
                array(py, &one.cores)?,
                array(py, buckets.as_flattened())?,
            ))
        })
        .collect()
}

/// Simulates in other threads, while this thread checks for signals.
fn in_other_threads<T: Send>(
    simulate: impl FnOnce(&AtomicBool) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let cancelled = AtomicBool::new(false);
    let (answer, answered) = mpsc::channel();
    thread::scope(|scope| {
        // After a signal there is no receiver.
        scope.spawn(|| drop(answer.send(simulate(&cancelled))));
        loop {
            match answered.recv_timeout(LOOK_EVERY) {
                Ok(found) => return Ok(found?),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(signal) = Python::attach(|py| py.check_signals()) {
                        cancelled.store(true, Ordering::Relaxed);
                        return Err(signal);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("the simulator ended without an answer"));
                }
            }
        }
    })
}

fn station((servers, speeds, places, is_shared, levels, is_blocking): StationArgument) -> Station {
    let service = match (servers, speeds.is_empty()) {
        (0, true) => Service::Delay,
        (servers, true) if is_shared => Service::Sharing(servers),
        (servers, true) => Service::Servers(servers),
        (_, false) => Service::Varying(speeds),
    };
    Station { service, places, levels, is_blocking }
}

fn class((population, outside, service, steps, ways): ClassArgument) -> Result<Class, Error> {
    let outside = time(outside)?;
    let source = match population {
        Some(population) => Source::Closed { population, think: outside },
        None => Source::Open { between: outside },
    };
    let service = service.into_iter().map(time).collect::<Result<_, Error>>()?;
    Ok(Class { source, service, route: Route::new(steps, ways)? })
}

fn time((mean, of): TimeArgument) -> Result<Time, Error> {
    Ok(Time { mean, shape: shape(of)? })
}

fn shape((name, values, probabilities): ShapeArgument) -> Result<Shape, Error> {
    Ok(match (name.as_str(), values.as_slice()) {
        ("exponential", []) => Shape::Exponential,
        ("deterministic", []) => Shape::Deterministic,
        ("erlang", &[stages]) => Shape::Erlang(stages as u32),
        ("hyperexponential", &[probability]) => Shape::HyperExponential { probability },
        ("lognormal", &[deviation]) => Shape::Lognormal { deviation },
        ("samples", _) => Shape::Samples(values),
        ("quantiles", _) => Shape::Quantiles { probabilities, values },
        _ => return Err(Error::Argument { name: "shape", problem: "unknown shape" }),
    })
}

/// The arrays of one replication, as described in `_kernels.pyi`.
fn result<'py>(py: Python<'py>, observed: &Replication) -> PyResult<ReplicationResult<'py>> {
    let rounds: Vec<[f64; 3]> = observed
        .rounds
        .iter()
        .map(|rounds| [rounds.completed as f64, rounds.lost as f64, rounds.response])
        .collect();
    let visits: Vec<[f64; 5]> = observed
        .visits
        .iter()
        .map(|visits| {
            let counts = [visits.came, visits.went, visits.refused].map(|count| count as f64);
            [counts[0], counts[1], counts[2], visits.stay, visits.area]
        })
        .collect();
    let histograms = observed.rounds.iter().map(|rounds| {
        let buckets: Vec<[f64; 3]> = rounds.histogram.buckets().collect();
        array(py, buckets.as_flattened())
    });
    let series = observed.series.as_ref().map(|series| {
        PyResult::Ok((series.rounds, array(py, &series.means)?, array(py, &series.ends)?))
    });
    Ok((
        observed.duration,
        array(py, rounds.as_flattened())?,
        array(py, visits.as_flattened())?,
        array(py, &observed.busy)?,
        histograms.collect::<PyResult<_>>()?,
        series.transpose()?,
    ))
}

fn array<'py>(py: Python<'py>, values: &[f64]) -> PyResult<Bytes<'py>> {
    bytes(py, std::iter::once(values))
}
