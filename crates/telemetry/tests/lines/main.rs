//! What a process prints, from recorders to text, with clocks that the tests move.

#![allow(clippy::unwrap_used)]

mod fields;
mod formats;
mod outputs;
mod printed;
mod windows;
