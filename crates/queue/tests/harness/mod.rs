//! What tests of databases share.

pub(crate) mod desk;
