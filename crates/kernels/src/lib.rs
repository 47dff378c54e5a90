//! Exact solvers and a simulator of queueing networks.
//!
//! Numbers in, numbers out: the crate reads no file and no clock, takes chance from seeds only, and
//! checks every limit on size before it allocates anything. `knee.queueing` gives the numbers their meaning, and words
//! the messages about arguments.
//!
//! * [`closed`]: one class of customers, every population up to N, in ratios of successive
//!   normalising constants ([`Series`]).
//!
//! * [`lattice`]: several classes, every combination of populations, by mean value analysis of single
//!   servers, which polynomials correct for other stations.
//!
//! * [`Station`]: a station, for both.
//!
//! * [`simulate`]: a discrete-event simulator, for networks without an exact solution.
//!
//! The solvers never subtract, so no digit is lost however large the population is; see
//! `docs/methods/closed-networks.md`.
//!
//! With the feature `python` the crate is also the extension module `knee._kernels`.

mod closed;
mod error;
mod lattice;
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
