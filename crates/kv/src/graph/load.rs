//! An edge list into a store, in commits that say how far they go.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use knee_proto::encode;

use super::edges::{Edge, EdgeReader, LineError, Position, ReadEdgesError};
use crate::engine::{Expiry, Second, Version};
use crate::versioned::{
    Action, Condition, Damage, Patience, Room, Store, Unwritable, Write, WriteError,
};

/// Edges of a commit, where nothing else is asked for.
///
/// A million edges of a list that is grouped by user took 353 ms of processor time in commits of
/// 2^10, 154 of 2^14, 127 of 2^16, 122 of 2^18 and 135 of 2^20, each commit synced (the lists of
/// `crates/bench/benches/graph.rs`, medians of nine interleaved runs on two shared cores). A list in no order
/// gains from more, 603 ms of 2^16 against 241 of 2^18: every commit adds a record to nearly every
/// user.
pub const COMMIT_EDGES: usize = 1 << 16;
/// How the key begins that says how far a list was loaded; its name follows. No user's key does.
pub const MARK_PREFIX: &str = "load:";

/// How a list is loaded.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions<'a> {
    /// What the list is called: a load of this name goes on where the last one ended.
    pub name: &'a str,
    /// Edges of a commit, at least 1, and of memory: 200 bytes each at most.
    pub commit_edges: usize,
    /// What says the time: a load may take hours.
    pub now: fn() -> Second,
}

/// How far a load is. All of it is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is loaded of the list.
    pub position: Position,
    /// What of it earlier loads did.
    pub resumed: Position,
    /// Time that this one took so far.
    pub elapsed: Duration,
}

impl Progress {
    /// Edges that this load puts into the store in a second.
    #[must_use]
    pub fn edges_per_s(&self) -> f64 {
        self.per_s(self.position.edges - self.resumed.edges)
    }

    /// Bytes of the list that this load takes in a second.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.per_s(self.position.bytes - self.resumed.bytes)
    }

    fn per_s(&self, count: u64) -> f64 {
        // Of no time at all no rate is told.
        if self.elapsed.is_zero() { 0.0 } else { count as f64 / self.elapsed.as_secs_f64() }
    }
}

/// Why a load did not come to its end. What was loaded before is there, and another load goes on
/// behind it.
#[derive(Debug)]
pub enum LoadError {
    /// The list cannot be read.
    Io(io::Error),
    /// A line of it is wrong.
    Line(LineError),
    /// It does not begin with what was loaded under its name before.
    Changed(Position),
    /// Another load of this name is going on.
    Concurrent,
    /// The key that says how far it was loaded was taken away meanwhile, perhaps with all others.
    Cleared,
    /// The key that says how far this name's list was loaded holds something else.
    Mark,
    /// A user has more followers than a value holds.
    TooLarge(u64),
    /// The store does not take it.
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
                write!(f, "another load of this name is going on: wait until it is over")
            }
            LoadError::Cleared => write!(
                f,
                "the key that says how far the list was loaded has been taken away meanwhile, by a \
                 flush of everything or alone: another load begins from its first line"
            ),
            LoadError::Mark => write!(
                f,
                "the key {MARK_PREFIX} and the list's name holds something else: take another name"
            ),
            LoadError::TooLarge(user) => write!(
                f,
                "the followers of user {user} do not fit the largest value: allow larger ones"
            ),
            LoadError::Write(WriteError::Damage(damage)) => damage.fmt(f),
            LoadError::Write(WriteError::Log(why)) => {
                write!(f, "the store takes nothing more: {why}")
            }
            LoadError::Write(error) => write!(f, "the store refuses: {error:?}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// A list that cannot be read any more once it is to stop: what earlier loads did is read again
/// first, which takes its time.
#[derive(Debug)]
pub struct Stoppable<R, S> {
    list: R,
    stops: S,
}

impl<R: Read, S: Fn() -> bool> Stoppable<R, S> {
    /// The list, and what says whether to stop.
    pub fn new(list: R, stops: S) -> Stoppable<R, S> {
        Stoppable { list, stops }
    }
}

impl<R: Read, S: Fn() -> bool> Read for Stoppable<R, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.stops)() {
            return Err(io::Error::other("it is to stop"));
        }
        self.list.read(buffer)
    }
}

/// Appends the followers of a list to their users' values, and tells after every commit how far
/// that is, once it is safe; `told` may end it there.
///
/// Each commit notes how far in the list it goes, so that a load that was cut off at any point can
/// be done again and neither loses nor doubles an edge. It reads what was loaded before once more,
/// to see that the list is the same.
///
/// # Errors
/// See [`LoadError`].
pub fn load(
    store: &Store,
    list: impl Read,
    options: &LoadOptions<'_>,
    mut told: impl FnMut(&Progress) -> ControlFlow<()>,
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
            if told(&progress).is_break() || next.is_none() {
                return Ok(progress);
            }
        }
    }
}

/// Where edges go.
#[derive(Debug)]
struct Target<'a> {
    store: &'a Store,
    now: fn() -> Second,
    mark_key: String,
    /// How far the store says that the list is loaded.
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

    /// Appends edges, up to this position of the list, and waits until they are safe.
    fn commit(&mut self, edges: &mut [Edge], position: Position) -> Result<(), LoadError> {
        // Stable, and no work where they are in order: a user's followers stay in theirs.
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
        // A commit's version is the largest of its keys' where versions are by the key.
        self.mark = self.read_mark()?;
        match self.mark {
            Some((_, there)) if there == position => Ok(()),
            Some(_) => Err(LoadError::Concurrent),
            None => Err(LoadError::Cleared),
        }
    }
}
