//! The errors of the solvers.

use std::fmt;

/// Why a network cannot be solved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// An argument is invalid.
    Argument {
        /// The argument's name.
        name: &'static str,
        /// The expected form, or the error.
        problem: &'static str,
    },
    /// The solution would hold, or compute, too many numbers.
    TooLarge {
        /// The number of values.
        values: u128,
        /// The limit.
        values_max: u128,
    },
    /// Numbers leave the range of 64-bit floating point. Demands and rates differ by too many orders of magnitude,
    /// rates fall too far, or a station has too many servers.
    Range,
    /// The caller ended the solution early.
    Interrupted,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Argument { name, problem } => write!(f, "{name}: {problem}"),
            Error::TooLarge { values, values_max } => {
                write!(f, "the solution takes {values} values, more than {values_max}")
            }
            Error::Range => f.write_str(
                "demands and rates differ by too many orders of magnitude, a station has too many \
                 servers, or rates fall too far, for 64-bit numbers: take fewer customers",
            ),
            Error::Interrupted => f.write_str("the solution was interrupted"),
        }
    }
}

impl std::error::Error for Error {}
