//! Arrays as bytes of 64-bit numbers in the machine's byte order, which NumPy reads without a copy.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The bytes of all rows, one row after the other.
pub(super) fn bytes<'py, 'row>(
    py: Python<'py>,
    rows: impl Iterator<Item = &'row [f64]> + Clone,
) -> PyResult<Bound<'py, PyBytes>> {
    let length = rows.clone().map(size_of_val).sum();
    PyBytes::new_with(py, length, |target| {
        let numbers = rows.flatten();
        for (place, number) in target.chunks_exact_mut(size_of::<f64>()).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(())
    })
}
