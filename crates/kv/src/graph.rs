//! Follower graphs: text edge lists into a store, and synthetic lists.
//!
//! A list has a line for each edge, `user<TAB or blanks>follower`, as the Twitter graph of Kwak et
//! al. ("What is Twitter, a social network or a news media?", WWW 2010) has it. In the store,
//! the key is the user in decimal. The value is the followers in the order of the list, each in decimal with a line
//! feed behind it. [`EdgeReader`] reads a list, [`load`] puts it into a store,
//! [`SyntheticGraph`] makes one.

mod edges;
mod load;
mod synthetic;

pub use edges::{Edge, EdgeReader, LINE_BYTES_MAX, LineError, Position, ReadEdgesError};
pub use load::{COMMIT_EDGES, LoadError, LoadOptions, MARK_PREFIX, Progress, load};
pub use synthetic::{Impossible, SyntheticGraph};
