//! Requests, borrowed from the bytes they were decoded from.

use crate::meta::{Meta, MetaOptions};
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
        /// Whether `noreply` suppresses the answer.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Arith {
        /// The command.
        verb: ArithVerb,
        /// The key.
        key: &'a [u8],
        /// The difference.
        delta: u64,
        /// Whether `noreply` suppresses the answer.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// See [`Store::exptime`].
        exptime: i64,
        /// Whether `noreply` suppresses the answer.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// As an expiry time: 0 or less is now, see [`Store::exptime`].
        delay: i64,
        /// Whether `noreply` suppresses the answer.
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
        /// The new level of log output.
        level: u32,
        /// Whether `noreply` suppresses the answer.
        noreply: bool,
    },
    /// `cache_memlimit`.
    CacheMemlimit {
        /// The store's memory limit, in MiB.
        megabytes: u32,
        /// Whether `noreply` suppresses the answer.
        noreply: bool,
    },
    /// `shutdown`. memcached answers [`SHUTDOWN_DISABLED`](crate::encode::SHUTDOWN_DISABLED), unless it was started
    /// with `--enable-shutdown`.
    Shutdown {
        /// The rest of the line: empty or `graceful`.
        mode: &'a [u8],
    },
    /// `quit`: the server closes the connection without an answer.
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
    /// `mn`: the server answers `MN` after all earlier answers.
    MetaNoop,
}

impl Request<'_> {
    /// The same request without `noreply` or `q`, so that it always gets an answer.
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

    /// Whether the request has `noreply` or a meta command's `q`. For the answers that are sent nevertheless, see
    /// [`ProtocolError::answer`](crate::ProtocolError::answer) and [`quiet_suppresses`](crate::quiet_suppresses).
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

    /// The form of the answer if the request is not quiet; `None` for `quit`.
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

/// The key of a storage request with too large a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleKey {
    sent: Box<[u8]>,
    base64: bool,
}

impl StaleKey {
    pub(crate) fn new(sent: &[u8], base64: bool) -> Self {
        StaleKey { sent: sent.into(), base64 }
    }

    /// The key as sent.
    pub fn as_sent(&self) -> &[u8] {
        &self.sent
    }

    /// The key in plain bytes.
    pub fn bytes(&self) -> Vec<u8> {
        if !self.base64 {
            return self.sent.to_vec();
        }
        let mut bytes = Vec::new();
        crate::base64::decode(&self.sent, |byte| bytes.push(byte));
        bytes
    }

    /// The request that deletes the old value. A base64 key stays encoded: decoded, it may hold blanks and line ends.
    pub fn deletion(&self) -> Request<'_> {
        let key = &self.sent;
        if !self.base64 {
            return Request::Delete { key, noreply: false };
        }
        let (mut options, flags) = (MetaOptions::NONE, &b"b"[..]);
        options.mark(b'b');
        Request::MetaDelete(Meta { key, value: b"", options, flags })
    }
}

/// A retrieval command.
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
    /// The command.
    pub verb: GetVerb,
    /// New expiry time, 0 for `get` and `gets`; see [`Store::exptime`].
    pub exptime: i64,
    /// The number of keys. It is 0 only for a `gat` or `gats` without keys, which memcached answers with `END`.
    pub key_count: usize,
    pub(crate) keys: &'a [u8],
    /// Whether each key has exactly one space before it, and no space follows the last key.
    pub(crate) spaced_once: bool,
}

impl<'a> Get<'a> {
    /// `get` of `key_count` keys, at least one. `keys` has exactly one space before each key.
    pub fn spaced(keys: &'a [u8], key_count: usize) -> Get<'a> {
        Get { verb: GetVerb::Get, exptime: 0, key_count, keys, spaced_once: true }
    }

    /// The keys, in order, repetitions included.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        Tokens::new(self.keys)
    }

    /// The keys as sent, if they are separated by single spaces.
    pub(crate) fn spaced_keys(&self) -> Option<&'a [u8]> {
        if self.spaced_once { self.keys.strip_prefix(b" ") } else { None }
    }
}

/// A storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVerb {
    /// `set`
    Set,
    /// `add`: only if the key is absent.
    Add,
    /// `replace`: only if the key is present.
    Replace,
    /// `append`: after the present value.
    Append,
    /// `prepend`: before the present value.
    Prepend,
    /// `cas`: only if the cas token is current.
    Cas,
}

/// A storage request with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// The command.
    pub verb: StoreVerb,
    /// The key.
    pub key: &'a [u8],
    /// The client's number that is stored with the value.
    pub flags: u32,
    /// Expiry time. 0: never; negative: at once; up to 30 days (2,592,000): seconds from now. Larger times are seconds
    /// of the Unix epoch. Always within `i32`, as memcached reads it.
    pub exptime: i64,
    /// The expected cas token; 0 except for `cas`.
    pub cas: u64,
    /// The value, without its line end.
    pub value: &'a [u8],
    /// Whether `noreply` suppresses the answer.
    pub noreply: bool,
}

/// An arithmetic command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithVerb {
    /// `incr`: wraps at 2^64.
    Incr,
    /// `decr`: stops at 0.
    Decr,
}
