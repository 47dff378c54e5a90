//! `knee._kernels`: the measurements of this machine. None of them holds the interpreter.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::machine::clock::{Timer, timer};
use crate::machine::files::{Transfer, fill, scan_mapped, takes_direct, transfers_per_s};
use crate::machine::memory::{Memory, measure};
use crate::machine::network;

#[pyfunction]
pub(super) fn memory(
    py: Python<'_>,
    bytes: usize,
    seconds: f64,
    seed: u64,
) -> PyResult<(f64, f64, f64, f64)> {
    let found = py.detach(|| measure(bytes, seconds, seed)).map_err(raised)?;
    let Memory { latency_ns, read_bytes_per_s, write_bytes_per_s, copy_bytes_per_s } = found;
    Ok((latency_ns, read_bytes_per_s, write_bytes_per_s, copy_bytes_per_s))
}

#[pyfunction]
pub(super) fn file_fill(
    py: Python<'_>,
    file: i32,
    bytes: u64,
    seconds: f64,
    seed: u64,
) -> PyResult<u64> {
    let file = opened(file).map_err(raised)?;
    py.detach(|| fill(&file, bytes, seconds, seed)).map_err(raised)
}

#[pyfunction]
#[pyo3(signature = (file, bytes, seconds, seed, *, block_bytes, writes, random, direct, synced))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(super) fn file_transfers_per_s(
    py: Python<'_>,
    file: i32,
    bytes: u64,
    seconds: f64,
    seed: u64,
    block_bytes: usize,
    writes: bool,
    random: bool,
    direct: bool,
    synced: bool,
) -> PyResult<f64> {
    let file = opened(file).map_err(raised)?;
    let transfer = Transfer {
        block_bytes,
        is_write: writes,
        is_random: random,
        is_direct: direct,
        is_synced: synced,
    };
    py.detach(|| transfers_per_s(&file, bytes, transfer, seconds, seed)).map_err(raised)
}

#[pyfunction]
pub(super) fn file_takes_direct(py: Python<'_>, file: i32) -> PyResult<bool> {
    let file = opened(file).map_err(raised)?;
    py.detach(|| takes_direct(&file)).map_err(raised)
}

#[pyfunction]
pub(super) fn file_scan_mapped(
    py: Python<'_>,
    file: i32,
    bytes: usize,
    from_disk: bool,
) -> PyResult<Vec<(f64, u64, u64)>> {
    let file = opened(file).map_err(raised)?;
    let scans = py.detach(|| scan_mapped(&file, bytes, from_disk)).map_err(raised)?;
    Ok(scans.map(|scan| (scan.bytes_per_s, scan.minor_faults, scan.major_faults)).to_vec())
}

#[pyfunction]
pub(super) fn loopback_bytes_per_s(py: Python<'_>, seconds: f64) -> PyResult<f64> {
    py.detach(|| network::loopback_bytes_per_s(seconds)).map_err(raised)
}

#[pyfunction]
pub(super) fn loopback_round_trip_us(py: Python<'_>, seconds: f64) -> PyResult<f64> {
    py.detach(|| network::loopback_round_trip_us(seconds)).map_err(raised)
}

#[pyfunction]
pub(super) fn clock(py: Python<'_>, seconds: f64) -> (f64, f64, f64) {
    let Timer { read_ns, step_ns, late_us } = py.detach(|| timer(seconds));
    (read_ns, step_ns, late_us)
}

/// The exception with the system's number and message.
fn raised(error: io::Error) -> PyErr {
    let Some(number) = error.raw_os_error() else { return error.into() };
    let message = error.to_string();
    let message = message.split(" (os error").next().unwrap_or_default();
    PyOSError::new_err((number, message.to_owned()))
}

/// A file of this process, kept open for the call.
fn opened(number: i32) -> io::Result<File> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the number is not −1; the system refuses it unless a file is open there.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().map(File::from)
}
