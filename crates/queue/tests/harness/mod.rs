//! What tests of databases share.

// Not every one of them needs all.
#![allow(dead_code)]

pub(crate) mod cluster;
pub(crate) mod desk;
pub(crate) mod history;
pub(crate) mod proxy;
pub(crate) mod server;
pub(crate) mod verdict;
