//! Recorders to text, with clocks that the tests move; the admin port through real sockets.

#![allow(clippy::unwrap_used)]

mod admin;
mod fields;
mod formats;
mod outputs;
mod printed;
mod windows;
