//! `knee._kernels.closed` and `knee._kernels.lattice`.

use std::cell::Cell;
use std::time::Instant;

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrays::bytes;
use super::interrupt::LOOK_EVERY;
use crate::{Error, Station};

create_exception!(
    _kernels,
    TooLargeError,
    PyValueError,
    "More values than are allowed: (values, values_max)."
);

/// One class: throughput by population; queue length and probability of being busy by station and population. Several
/// classes: throughput by state and class; arrival and probability of being busy by state and station.
type Arrays<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        match error {
            Error::TooLarge { values, values_max } => TooLargeError::new_err((values, values_max)),
            Error::Argument { .. } | Error::Range | Error::Interrupted => {
                PyValueError::new_err(error.to_string())
            }
        }
    }
}

/// Solves a closed network for every population up to `population`.
#[pyfunction]
pub(super) fn closed(
    py: Python<'_>,
    population: usize,
    think_time: f64,
    demands: Vec<f64>,
    rates: Vec<Vec<f64>>,
) -> PyResult<Arrays<'_>> {
    let solution = interruptible(py, |goes_on| {
        let stations = stations(demands, rates)?;
        crate::closed(population, think_time, &stations, goes_on)
    })?;
    let columns = |column: fn(&crate::Shares) -> &Vec<f64>| {
        bytes(py, solution.stations.iter().map(|shares| column(shares).as_slice()))
    };
    Ok((
        bytes(py, [solution.throughput.as_slice()].into_iter())?,
        columns(|shares| &shares.queue_length)?,
        columns(|shares| &shares.busy)?,
    ))
}

/// Solves a closed network of several classes for all populations up to `populations`.
#[pyfunction]
pub(super) fn lattice(
    py: Python<'_>,
    populations: Vec<usize>,
    think_times: Vec<f64>,
    demands: Vec<Vec<f64>>,
    rates: Vec<Vec<f64>>,
) -> PyResult<Arrays<'_>> {
    let solution = interruptible(py, |goes_on| {
        let stations = stations(demands, rates)?;
        crate::lattice(&populations, &think_times, &stations, goes_on)
    })?;
    let array = |values: &Vec<f64>| bytes(py, [values.as_slice()].into_iter());
    Ok((array(&solution.throughput)?, array(&solution.arrival)?, array(&solution.busy)?))
}

/// Solves without holding the interpreter, but lets Python check for signals now and then. An exception of a signal
/// handler ends the solution and is returned.
fn interruptible<T: Send>(
    py: Python<'_>,
    solve: impl FnOnce(&dyn Fn() -> bool) -> Result<T, Error> + Send,
) -> PyResult<T> {
    py.detach(|| {
        let looked = Cell::new(Instant::now());
        let signal = Cell::new(None);
        let result = solve(&|| {
            if looked.get().elapsed() < LOOK_EVERY {
                return true;
            }
            let checked = Python::attach(|py| py.check_signals());
            looked.set(Instant::now());
            checked.map_err(|raised| signal.set(Some(raised))).is_ok()
        });
        match signal.into_inner() {
            Some(raised) => Err(raised),
            None => Ok(result?),
        }
    })
}

/// Stations with these demands. `D` is a demand, or a list of demands by class.
fn stations<D>(demands: Vec<D>, rates: Vec<Vec<f64>>) -> Result<Vec<(D, Station)>, Error> {
    if demands.len() != rates.len() {
        return Err(Error::Argument { name: "rates", problem: "expected rates for every station" });
    }
    demands
        .into_iter()
        .zip(rates)
        .map(|(demand, rates)| Ok((demand, Station::new(rates)?)))
        .collect()
}
