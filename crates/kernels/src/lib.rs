//! Exact solvers and a simulator of queueing networks, and measurements of the machine.
//!
//! Solvers and simulator compute with numbers only. They read no file and no clock, and random numbers depend only on
//! the seed. The solvers check the size of a solution before they allocate memory. `knee.queueing` gives the numbers
//! their meaning, and words the messages about arguments.
//!
//! * [`closed`]: one class of customers, every population up to N, by ratios of successive normalising constants
//!   ([`Series`]).
//!
//! * [`lattice`]: several classes, every combination of populations, by mean value analysis of single servers.
//!   Polynomials correct the solution for other stations.
//!
//! * [`Station`]: a station of both solvers.
//!
//! * [`simulate`]: a discrete-event simulator, for networks without an exact solution.
//!
//! * [`machine`]: measurements of memory, files, loopback and clock, for `knee.machine`.
//!
//! The recursions of the solvers only add and multiply positive numbers. So no digit cancels, even with large
//! populations; see `docs/methods/closed-networks.md`.
//!
//! With the feature `python` the crate is also the extension module `knee._kernels`.

mod closed;
mod error;
mod lattice;
pub mod machine;
mod series;
pub mod simulate;
mod station;

#[cfg(feature = "python")]
mod python;

pub use closed::{Closed, POPULATION_MAX, closed};
pub use error::Error;
pub use lattice::{Lattice, lattice};
pub use series::{Series, Shares};
pub use station::Station;
