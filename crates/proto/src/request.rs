//! Requests, borrowed from the bytes they were decoded from.

use crate::meta::Meta;
use crate::response_decoder::Expect;
use crate::token::Tokens;

/// One request. Slices point into the decoder's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get(Get<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Store<'a>),
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// No answer wanted.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Arith {
        /// Which of the two.
        verb: ArithVerb,
        /// The key.
        key: &'a [u8],
        /// By how much.
        delta: u64,
        /// No answer wanted.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// See [`Store::exptime`].
        exptime: i64,
        /// No answer wanted.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// As an expiry time: 0 or less is now, see [`Store::exptime`].
        delay: i64,
        /// No answer wanted.
        noreply: bool,
    },
    /// `stats`.
    Stats {
        /// The rest of the line, trimmed of spaces; empty for the general statistics.
        args: &'a [u8],
    },
    /// `version`.
    Version,
    /// `verbosity`.
    Verbosity {
        /// How talkative the server shall be.
        level: u32,
        /// No answer wanted.
        noreply: bool,
    },
    /// `cache_memlimit`.
    CacheMemlimit {
        /// The store's memory limit, in MiB.
        megabytes: u32,
        /// No answer wanted.
        noreply: bool,
    },
    /// `shutdown`. memcached answers [`SHUTDOWN_DISABLED`](crate::encode::SHUTDOWN_DISABLED) unless
    /// started with `--enable-shutdown`.
    Shutdown {
        /// The rest of the line: empty or `graceful`.
        mode: &'a [u8],
    },
    /// `quit`: close without an answer.
    Quit,
    /// `mg`.
    MetaGet(Meta<'a>),
    /// `ms`.
    MetaSet(Meta<'a>),
    /// `md`.
    MetaDelete(Meta<'a>),
    /// `ma`.
    MetaArith(Meta<'a>),
    /// `me`.
    MetaDebug(Meta<'a>),
    /// `mn`: answered by `MN` once everything before it is.
    MetaNoop,
}

impl Request<'_> {
    /// The same request without `noreply` or `q`: one that is always answered.
    pub fn answered(mut self) -> Self {
        match &mut self {
            Request::Store(store) => store.noreply = false,
            Request::Delete { noreply, .. }
            | Request::Arith { noreply, .. }
            | Request::Touch { noreply, .. }
            | Request::FlushAll { noreply, .. }
            | Request::Verbosity { noreply, .. }
            | Request::CacheMemlimit { noreply, .. } => *noreply = false,
            Request::MetaGet(meta)
            | Request::MetaSet(meta)
            | Request::MetaDelete(meta)
            | Request::MetaArith(meta) => meta.options = meta.options.answered(),
            _ => {}
        }
        self
    }

    /// Whether the client asked not to be answered, by `noreply` or by a meta command's `q`.
    /// What is still answered then: see [`ProtocolError::answer`](crate::ProtocolError::answer) and
    /// [`quiet_suppresses`](crate::quiet_suppresses).
    pub fn is_quiet(&self) -> bool {
        match self {
            Request::Store(store) => store.noreply,
            Request::Delete { noreply, .. }
            | Request::Arith { noreply, .. }
            | Request::Touch { noreply, .. }
            | Request::FlushAll { noreply, .. }
            | Request::Verbosity { noreply, .. }
            | Request::CacheMemlimit { noreply, .. } => *noreply,
            Request::MetaGet(meta)
            | Request::MetaSet(meta)
            | Request::MetaDelete(meta)
            | Request::MetaArith(meta) => meta.quiet(),
            _ => false,
        }
    }

    /// The shape of the answer when the request is not quiet; none for `quit`.
    pub fn expect(&self) -> Option<Expect> {
        match self {
            Request::Get(_) => Some(Expect::Retrieval),
            Request::Stats { .. } => Some(Expect::Stats),
            Request::Quit => None,
            Request::MetaGet(_)
            | Request::MetaSet(_)
            | Request::MetaDelete(_)
            | Request::MetaArith(_)
            | Request::MetaDebug(_)
            | Request::MetaNoop => Some(Expect::Meta),
            _ => Some(Expect::Line),
        }
    }
}

/// Which retrieval command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetVerb {
    /// `get`
    Get,
    /// `gets`: with cas tokens.
    Gets,
    /// `gat`: get and touch.
    Gat,
    /// `gats`: get and touch, with cas tokens.
    Gats,
}

impl GetVerb {
    /// Whether the answer carries cas tokens.
    pub fn with_cas(self) -> bool {
        matches!(self, GetVerb::Gets | GetVerb::Gats)
    }

    /// Whether the request carries an expiry time.
    pub fn with_exptime(self) -> bool {
        matches!(self, GetVerb::Gat | GetVerb::Gats)
    }
}

/// A retrieval of any number of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Get<'a> {
    /// Which command.
    pub verb: GetVerb,
    /// New expiry time, 0 for `get` and `gets`; see [`Store::exptime`].
    pub exptime: i64,
    /// How many keys; 0 only for a `gat` or `gats` without any, which memcached answers with `END`.
    pub key_count: usize,
    pub(crate) keys: &'a [u8],
    /// Whether each key has exactly one space before it, and nothing follows the last.
    pub(crate) spaced_once: bool,
}

impl<'a> Get<'a> {
    /// The keys, in order, repetitions included.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        Tokens::new(self.keys)
    }

    /// The keys as they are, with one space between two of them; `None` where they have more.
    pub(crate) fn spaced_keys(&self) -> Option<&'a [u8]> {
        if self.spaced_once { self.keys.strip_prefix(b" ") } else { None }
    }
}

/// Which storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVerb {
    /// `set`
    Set,
    /// `add`: only where there is none.
    Add,
    /// `replace`: only where there is one.
    Replace,
    /// `append`: behind the value that is there.
    Append,
    /// `prepend`: before the value that is there.
    Prepend,
    /// `cas`: only where the token still holds.
    Cas,
}

/// A storage request with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which command.
    pub verb: StoreVerb,
    /// The key.
    pub key: &'a [u8],
    /// The client's own number, kept beside the value.
    pub flags: u32,
    /// Expiry: 0 never, negative at once, up to 30 days (2,592,000) relative in seconds, above that
    /// seconds of the Unix epoch. Always within `i32`, as memcached reads it.
    pub exptime: i64,
    /// The token to hold, 0 except for `cas`.
    pub cas: u64,
    /// The value, without its line end.
    pub value: &'a [u8],
    /// No answer wanted.
    pub noreply: bool,
}

/// Which arithmetic command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithVerb {
    /// `incr`: wraps at 2^64.
    Incr,
    /// `decr`: stops at 0.
    Decr,
}
