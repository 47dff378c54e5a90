//! Why a network cannot be solved.

use std::fmt;

/// Why a network cannot be solved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// An argument cannot be right, whatever the others are.
    Argument {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The solution would hold, or pass through, more numbers than are allowed.
    TooLarge {
        /// How many.
        values: u128,
        /// How many are allowed.
        values_max: u128,
    },
    /// Demands and rates differ by so many orders of magnitude, a station has so many servers, or rates
    /// fall so far, that 64-bit numbers cannot carry their products.
    Range,
    /// The caller ended it early.
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
