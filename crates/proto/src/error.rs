//! Why a request was refused, and the words memcached has for it.

/// A request that broke the protocol, with the answer memcached 1.6.18 gives to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolError {
    /// What was wrong.
    pub kind: ErrorKind,
    /// The request said `noreply` where memcached had already understood it: nothing is answered.
    pub noreply: bool,
}

impl ProtocolError {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        ProtocolError { kind, noreply: false }
    }

    /// The bytes to send back, line end included. Empty when memcached says nothing: after a
    /// `noreply` it understood, and before it closes on an endless line.
    pub fn answer(&self) -> &'static [u8] {
        if self.noreply { b"" } else { self.kind.answer() }
    }

    /// Whether the connection must be closed after the answer, because the stream cannot be
    /// followed any further.
    pub fn is_fatal(&self) -> bool {
        matches!(self.kind, ErrorKind::LineTooLong | ErrorKind::Http)
    }
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.kind {
            ErrorKind::LineTooLong => "command line too long",
            ErrorKind::Http => "HTTP request",
            kind => std::str::from_utf8(kind.answer()).unwrap_or_default().trim_end(),
        })
    }
}

impl std::error::Error for ProtocolError {}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident => $answer:literal,)*) => {
        /// What was wrong with a request: one variant for each answer memcached has.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ErrorKind { $($(#[$doc])* $name,)* }

        impl ErrorKind {
            fn answer(self) -> &'static [u8] {
                match self { $(ErrorKind::$name => $answer,)* }
            }
        }
    };
}

kinds! {
    /// Unknown verb, or one with too few or too many words behind it.
    Unknown => b"ERROR\r\n",
    /// A key too long, a number that is none, a negative length.
    BadLine => b"CLIENT_ERROR bad command line format\r\n",
    /// `delete` with a second word that is neither `0` nor `noreply`.
    DeleteUsage => b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
    /// `gat`, `touch`, `flush_all` with an expiry time that is no 32-bit number.
    InvalidExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
    /// `incr`, `decr` with a delta that is no unsigned 64-bit number.
    InvalidDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
    /// The value does not end where its length says.
    BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
    /// The value is longer than [`Limits::value_bytes_max`](crate::Limits::value_bytes_max).
    TooLarge => b"SERVER_ERROR object too large for cache\r\n",
    /// No line end within [`Limits::line_bytes_max`](crate::Limits::line_bytes_max): memcached
    /// closes without a word.
    LineTooLong => b"",
    /// The beginning of an HTTP request: the connection closes without an answer, as memcached does.
    Http => b"",
    /// `mg` with more than 17 flags.
    MetaGetTooManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
    /// `ms`, `md`, `ma` with too many flags.
    MetaTooManyFlags => b"CLIENT_ERROR options flags too long\r\n",
    /// `mg`, `ms` with the same flag twice, or one that is no ASCII character.
    MetaDuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
    /// `mg`, `ms` with a flag that does not exist.
    MetaInvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
    /// `md`, `ma` with anything wrong in the flags.
    MetaInvalidOrDuplicateFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
    /// A key that the flag `b` calls base64 and that is none.
    MetaKeyEncoding => b"CLIENT_ERROR error decoding key\r\n",
    /// A flag whose number is none.
    MetaBadToken => b"CLIENT_ERROR bad token in command line format\r\n",
    /// The flag `M` with other than one character.
    MetaModeLength => b"CLIENT_ERROR incorrect length for M token\r\n",
    /// The flag `J` whose number is none.
    MetaInitial => b"CLIENT_ERROR invalid numeric initial value\r\n",
    /// The flag `D` whose number is none.
    MetaDelta => b"CLIENT_ERROR invalid numeric delta value\r\n",
    /// An opaque of more than 31 bytes.
    MetaOpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
    /// `ms` with a mode that does not exist.
    MetaSetMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
    /// `ma` with a mode that does not exist.
    MetaArithMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
}
