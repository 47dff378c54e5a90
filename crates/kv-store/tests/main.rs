//! The versioned store: against a model, and in what it promises.

#![allow(clippy::unwrap_used)]

mod backup;
mod clearing;
mod commits;
mod descriptors;
mod disk;
mod engine;
mod forgotten;
mod full;
mod full_disk;
mod harm;
mod history;
mod lists;
mod model;
mod recovery;
mod snapshots;
mod space;
mod store;
mod torture;
