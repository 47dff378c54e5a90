//! Exact solvers and a simulator of queueing networks.
//!
//! Numbers in, numbers out: the crate reads no file and no clock, takes chance from seeds only, and
//! checks every limit on size before it allocates anything. What the numbers mean, and every message
//! that a person reads about an argument, is the business of `knee.queueing`.
//!
//! * [`closed`]: one class of customers, every population up to N, in ratios of successive
//!   normalising constants ([`Series`]).
//!
//! * [`lattice`]: several classes, every combination of populations, by mean value analysis of single
//!   servers and polynomials that put the others right.
//!
//! * [`Station`]: what both know of a station.
//!
//! * [`simulate`]: a discrete-event simulator, for what has no exact solution.
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
