//! The versioned store: against a model, and in what it promises.

mod commits;
mod disk;
mod harm;
mod history;
mod lists;
mod model;
mod snapshots;
mod space;
mod store;
