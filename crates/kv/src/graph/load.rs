//! Loads an edge list into a store, in commits that each record their position in the list.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use knee_kv_cache::engine::{Expiry, Second, Version};
use knee_kv_store::{
    Action, Condition, Damage, Patience, Room, Store, Unwritable, Write, WriteError,
};
use knee_proto::encode;

use super::edges::{Edge, EdgeReader, LineError, Position, ReadEdgesError};

/// Number of edges of a commit by default.
///
/// A million edges grouped by user took 353 ms of processor time in commits of 2^10 edges, and 154 ms with 2^14. With
/// 2^16, 2^18 and 2^20 edges, they took 127, 122 and 135 ms. Each commit was synced. (Synthetic graph of 30,000 users,
/// medians of nine interleaved runs on two shared cores.) An unordered list gains from larger commits: 603 ms with 2^16,
/// 241 ms with 2^18. Each commit adds a record to nearly every user.
pub const COMMIT_EDGES: usize = 1 << 16;
/// The prefix of the key with the position of a loaded list; the list's name follows. No user's key has it.
pub const MARK_PREFIX: &str = "load:";

/// The options of a load.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions<'a> {
    /// The name of the list: a load resumes where the last load of this name ended.
    pub name: &'a str,
    /// Number of edges of a commit, at least 1. Each takes at most 200 bytes of memory.
    pub commit_edges: usize,
    /// The clock, called for each commit: a load may take hours.
    pub now: fn() -> Second,
}

/// The progress of a load, all of it synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The loaded part of the list.
    pub position: Position,
    /// The part that earlier loads had loaded.
    pub resumed: Position,
    /// The time of this load so far.
    pub elapsed: Duration,
}

impl Progress {
    /// Edges that this load puts into the store in a second.
    pub fn edges_per_s(&self) -> f64 {
        self.per_s(self.position.edges - self.resumed.edges)
    }

    /// Bytes of the list that this load reads in a second.
    pub fn bytes_per_s(&self) -> f64 {
        self.per_s(self.position.bytes - self.resumed.bytes)
    }

    fn per_s(&self, count: u64) -> f64 {
        // Without time there is no rate.
        if self.elapsed.is_zero() { 0.0 } else { count as f64 / self.elapsed.as_secs_f64() }
    }
}

/// Why a load ended early. The loaded part stays; another load resumes after it.
#[derive(Debug)]
pub enum LoadError {
    /// The list cannot be read.
    Io(io::Error),
    /// A line of the list is wrong.
    Line(LineError),
    /// The list's beginning differs from the part loaded earlier under this name.
    Changed(Position),
    /// Another load of this name is running.
    Concurrent,
    /// The key with the list's position was deleted during the load, alone or by a flush.
    Cleared,
    /// The key for the list's position has another value.
    Mark,
    /// A user has more followers than a value holds.
    TooLarge(u64),
    /// The store refused a write.
    Write(WriteError),
}

impl From<ReadEdgesError> for LoadError {
    fn from(error: ReadEdgesError) -> LoadError {
        match error {
            ReadEdgesError::Io(error) => LoadError::Io(error),
            ReadEdgesError::Line(error) => LoadError::Line(error),
        }
    }
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> LoadError {
        LoadError::Io(error)
    }
}

impl From<Unwritable> for LoadError {
    fn from(error: Unwritable) -> LoadError {
        LoadError::Write(WriteError::Log(error))
    }
}

impl From<Damage> for LoadError {
    fn from(damage: Damage) -> LoadError {
        LoadError::Write(WriteError::Damage(damage))
    }
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Io(error) => write!(f, "the list cannot be read: {error}"),
            LoadError::Line(error) => error.fmt(f),
            LoadError::Changed(Position { bytes, lines, .. }) => write!(
                f,
                "the first {lines} lines ({bytes} bytes) are not those that were loaded under \
                 this name before: give another list another name"
            ),
            LoadError::Concurrent => {
                write!(f, "another load of this name is running: wait for its end")
            }
            LoadError::Cleared => write!(
                f,
                "the key with the list's position was deleted during the load, alone or by a flush: \
                 another load begins from the first line"
            ),
            LoadError::Mark => write!(
                f,
                "the key of {MARK_PREFIX} and the list's name has another use: take another name"
            ),
            LoadError::TooLarge(user) => write!(
                f,
                "the followers of user {user} do not fit the largest value: allow larger ones"
            ),
            LoadError::Write(WriteError::Damage(damage)) => damage.fmt(f),
            LoadError::Write(WriteError::Log(why)) => {
                write!(f, "the store refuses writes: {why}")
            }
            LoadError::Write(error) => write!(f, "the store refuses: {error:?}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Appends the followers of a list to their users' values. Calls `report` after every synced commit; `report` may
/// end the load.
///
/// Each commit records its position in the list. So a load that was cut off at any point can be repeated, and neither
/// loses nor doubles an edge. The repeated load reads the loaded part again, to check that the list is the same.
///
/// # Errors
/// See [`LoadError`].
pub fn load(
    store: &Store,
    list: impl Read,
    options: &LoadOptions<'_>,
    mut report: impl FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Progress, LoadError> {
    let begun = Instant::now();
    let mut target = Target::new(store, options)?;
    let resumed = target.mark.map_or_else(Position::default, |(_, position)| position);
    let mut list = EdgeReader::resume(list, resumed)?.ok_or(LoadError::Changed(resumed))?;
    let mut edges = Vec::with_capacity(options.commit_edges);
    let mut position = resumed;
    loop {
        let next = list.next_edge()?;
        edges.extend(next);
        if next.is_none() || edges.len() >= options.commit_edges {
            let reached = list.position();
            if reached != position {
                target.commit(&mut edges, reached)?;
                edges.clear();
                position = reached;
            }
            let progress = Progress { position, resumed, elapsed: begun.elapsed() };
            if report(&progress).is_break() || next.is_none() {
                return Ok(progress);
            }
        }
    }
}

/// The destination of a load.
#[derive(Debug)]
struct Target<'a> {
    store: &'a Store,
    now: fn() -> Second,
    mark_key: String,
    /// The version and value of the key with the list's position.
    mark: Option<(Version, Position)>,
    /// Keys and values of a commit.
    text: Vec<u8>,
}

impl<'a> Target<'a> {
    fn new(store: &'a Store, options: &LoadOptions<'_>) -> Result<Target<'a>, LoadError> {
        let mark_key = format!("{MARK_PREFIX}{}", options.name);
        let mut target = Target { store, now: options.now, mark_key, mark: None, text: Vec::new() };
        target.mark = target.read_mark()?;
        Ok(target)
    }

    fn read_mark(&self) -> Result<Option<(Version, Position)>, LoadError> {
        let mut text = Vec::new();
        let shown = self.store.read(self.mark_key.as_bytes(), (self.now)(), |piece| {
            text.extend_from_slice(piece);
            true
        })?;
        self.store.sync(shown.sequence)?;
        let Some(shown) = shown.found else { return Ok(None) };
        let position = serde_json::from_slice(&text).map_err(|_| LoadError::Mark)?;
        Ok(Some((shown.version, position)))
    }

    /// Appends edges up to this position of the list, and syncs the commit.
    fn commit(&mut self, edges: &mut [Edge], position: Position) -> Result<(), LoadError> {
        // A stable sort keeps the order of a user's followers, and takes linear time if the edges are sorted.
        edges.sort_by_key(|edge| edge.user);
        self.text.clear();
        let mut parts = Vec::new();
        for group in edges.chunk_by(|one, next| one.user == next.user) {
            let key = self.text.len();
            encode::number(group[0].user, &mut self.text);
            let value = self.text.len();
            for edge in group {
                encode::number(edge.follower, &mut self.text);
                self.text.push(b'\n');
            }
            parts.push((key..value, value..self.text.len()));
        }
        let mark = serde_json::to_vec(&position).map_err(|_| LoadError::Mark)?;
        let mut writes: Vec<_> = parts
            .into_iter()
            .map(|(key, value)| Write {
                key: &self.text[key],
                condition: Condition::Always,
                action: Action::Append(&self.text[value]),
            })
            .collect();
        writes.push(Write {
            key: self.mark_key.as_bytes(),
            condition: self
                .mark
                .map_or(Condition::Absent, |(version, _)| Condition::Version(version)),
            action: Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &mark },
        });
        let last = writes.len() - 1;
        let mut patience = Patience::default();
        let written = loop {
            let written = self.store.write(&writes, None, (self.now)());
            let is_full = written.as_ref().is_err_and(WriteError::is_full);
            if !is_full || !self.store.wait_for_room(Room::of(&writes), &mut patience) {
                break written;
            }
        };
        let committed = written.map_err(|error| match error {
            WriteError::Condition { index, version: None, .. } if index == last => {
                LoadError::Cleared
            }
            WriteError::Condition { index, .. } if index == last => LoadError::Concurrent,
            WriteError::TooLarge { index, .. } if index < last => {
                let groups = edges.chunk_by(|one, next| one.user == next.user);
                LoadError::TooLarge(groups.map(|group| group[0].user).nth(index).unwrap_or(0))
            }
            other => LoadError::Write(other),
        })?;
        self.store.sync(committed.sequence)?;
        // In a sequential store, a commit's version is the largest of its keys.
        self.mark = self.read_mark()?;
        match self.mark {
            Some((_, there)) if there == position => Ok(()),
            Some(_) => Err(LoadError::Concurrent),
            None => Err(LoadError::Cleared),
        }
    }
}
