//! The codec.
#![allow(clippy::unwrap_used)]

mod nbd;
