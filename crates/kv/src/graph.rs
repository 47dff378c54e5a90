//! Follower graphs: text edge lists into a store, and synthetic lists.
//!
//! A list has a line `user<TAB or blanks>follower` for each edge. This is the format of the Twitter graph of Kwak et
//! al. ("What is Twitter, a social network or a news media?", WWW 2010). In the store, the key is the user in
//! decimal.
//! The value has the followers in the order of the list, each in decimal with a line feed. [`EdgeReader`] reads a
//! list, [`load`] puts a list into a store, and [`SyntheticGraph`] makes one.

mod edges;
mod load;
mod synthetic;

pub use edges::{Edge, EdgeReader, LINE_BYTES_MAX, LineError, Position, ReadEdgesError};
pub use load::{COMMIT_EDGES, LoadError, LoadOptions, MARK_PREFIX, Progress, load};
pub use synthetic::{Impossible, SyntheticGraph};
