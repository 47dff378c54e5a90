//! The versioned store: against a model, and in what it promises.

mod clearing;
mod commits;
mod disk;
mod forgotten;
mod full;
mod graph;
mod harm;
mod history;
mod lists;
mod model;
mod recovery;
mod snapshots;
mod space;
mod store;
mod torture;
