//! Why a network cannot be simulated.

use std::fmt;

use super::limits::{CUSTOMERS_MAX, EVENTS_MAX};

/// Why a network cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// An argument cannot be right, whatever the others are.
    Argument {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// More customers and siblings are there at once than are allowed.
    Crowded,
    /// A replication takes more events than are allowed.
    Endless,
    /// Far more rounds are lost than completed, so that it would hardly come to an end.
    Lost {
        /// How many were.
        lost: u64,
        /// How many were completed in the same time.
        completed: u64,
    },
    /// The caller ended it early.
    Interrupted,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Argument { name, problem } => write!(f, "{name}: {problem}"),
            Error::Crowded => {
                write!(f, "more than {CUSTOMERS_MAX} requests are in the network at once")
            }
            Error::Endless => write!(f, "a replication takes more than {EVENTS_MAX} events"),
            Error::Lost { lost, completed } => {
                write!(f, "{lost} rounds were lost while {completed} were completed")
            }
            Error::Interrupted => f.write_str("the simulation was interrupted"),
        }
    }
}

impl std::error::Error for Error {}
