//! The extension module `knee._kernels`. `python/knee/_kernels.pyi` types it.
//!
//! * `exact`: the solvers. `simulation`: the simulator. Both check for signals (`interrupt`), and return `arrays`.
//! * `machine`: the measurements.

use pyo3::prelude::*;

mod arrays;
mod exact;
mod interrupt;
mod machine;
mod simulation;

#[pymodule]
fn _kernels(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("POPULATION_MAX", crate::POPULATION_MAX)?;
    module.add("TooLargeError", module.py().get_type::<exact::TooLargeError>())?;
    module.add("LostError", module.py().get_type::<simulation::LostError>())?;
    module.add_function(wrap_pyfunction!(exact::closed, module)?)?;
    module.add_function(wrap_pyfunction!(exact::lattice, module)?)?;
    module.add_function(wrap_pyfunction!(simulation::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(simulation::simulate_layered, module)?)?;
    module.add_function(wrap_pyfunction!(machine::memory, module)?)?;
    module.add_function(wrap_pyfunction!(machine::file_fill, module)?)?;
    module.add_function(wrap_pyfunction!(machine::file_transfers_per_s, module)?)?;
    module.add_function(wrap_pyfunction!(machine::file_scan_mapped, module)?)?;
    module.add_function(wrap_pyfunction!(machine::file_takes_direct, module)?)?;
    module.add_function(wrap_pyfunction!(machine::loopback_bytes_per_s, module)?)?;
    module.add_function(wrap_pyfunction!(machine::loopback_round_trip_us, module)?)?;
    module.add_function(wrap_pyfunction!(machine::clock, module)?)?;
    Ok(())
}
