//! The versioned store: compared with a model, and its guarantees.

#![allow(clippy::unwrap_used)]

mod backup;
mod clearing;
mod commits;
mod damage;
mod descriptors;
mod disk;
mod engine;
mod forgotten;
mod full;
mod full_disk;
mod grouping;
mod harm;
mod history;
mod lists;
mod model;
mod recovery;
mod snapshots;
mod space;
mod store;
mod torture;
