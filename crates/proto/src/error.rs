//! Why a request was refused, and memcached's answer to it.

/// A request that broke the protocol, with the answer of memcached 1.6.18.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolError {
    /// The kind of error.
    pub kind: ErrorKind,
    /// Whether memcached had read a `noreply` before it detected the error. Then it sends no answer.
    pub noreply: bool,
}

impl ProtocolError {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        ProtocolError { kind, noreply: false }
    }

    /// The answer, with its line end. Empty if memcached sends no answer: after `noreply`, and before it closes because
    /// of an endless line or HTTP.
    pub fn answer(&self) -> &'static [u8] {
        if self.noreply { b"" } else { self.kind.answer() }
    }

    /// Whether the connection must be closed after the answer, because the rest of the stream cannot be decoded.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::LineTooLong
                | ErrorKind::RetrievalTooLong
                | ErrorKind::Nul
                | ErrorKind::LengthTooLarge
                | ErrorKind::Http
                | ErrorKind::Binary
        )
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
        /// Kinds of errors in requests: one variant for each answer of memcached.
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
    /// An unknown verb, or too few or too many words after a verb.
    Unknown => b"ERROR\r\n",
    /// A key that is too long, a malformed number, or a negative length.
    BadLine => b"CLIENT_ERROR bad command line format\r\n",
    /// `delete` with wrong words after the key.
    DeleteUsage => b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
    /// `gat`, `touch` or `flush_all` with a malformed expiry time.
    InvalidExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
    /// `incr` or `decr` with a delta that is not an unsigned 64-bit number.
    InvalidDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
    /// A value without a line end after its length.
    BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
    /// The value is longer than [`Limits::value_bytes_max`](crate::Limits::value_bytes_max).
    TooLarge => b"SERVER_ERROR object too large for cache\r\n",
    /// No line end within [`Limits::line_bytes_max`](crate::Limits::line_bytes_max). memcached closes the connection
    /// without an answer.
    LineTooLong => b"",
    /// No line end of a `get` or `gets` within
    /// [`Limits::retrieval_line_bytes_max`](crate::Limits::retrieval_line_bytes_max).
    RetrievalTooLong => b"CLIENT_ERROR line too long\r\n",
    /// A line with a NUL. memcached 1.6.18 would read `get a\0b` as `get a`, and answer with another key's value. Its
    /// value would be read as commands, so the connection is closed.
    Nul => b"CLIENT_ERROR bad command line format\r\n",
    /// A length of a value that memcached cannot store in an `int`. Version 1.6.18 cuts it to 32 bits, later versions
    /// read the value as commands. The connection is closed instead.
    LengthTooLarge => b"CLIENT_ERROR bad command line format\r\n",
    /// The beginning of a request of the binary protocol. The connection is closed, so that the client does not wait.
    Binary => b"",
    /// The beginning of an HTTP request. memcached closes the connection without an answer.
    Http => b"",
    /// `mg` with more than 17 flags.
    MetaGetTooManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
    /// `ms`, `md`, `ma` with too many flags.
    MetaTooManyFlags => b"CLIENT_ERROR options flags too long\r\n",
    /// `mg` or `ms` with a repeated flag, or a flag that is not an ASCII character.
    MetaDuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
    /// `mg` or `ms` with an unknown flag.
    MetaInvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
    /// `md` or `ma` with any error in the flags.
    MetaInvalidOrDuplicateFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
    /// A key with the flag `b` that is not base64.
    MetaKeyEncoding => b"CLIENT_ERROR error decoding key\r\n",
    /// The flag `C`, `N`, `R` or `T` with a malformed number.
    MetaBadToken => b"CLIENT_ERROR bad token in command line format\r\n",
    /// The flag `M` with more or less than one character.
    MetaModeLength => b"CLIENT_ERROR incorrect length for M token\r\n",
    /// The flag `J` with a malformed number.
    MetaInitial => b"CLIENT_ERROR invalid numeric initial value\r\n",
    /// The flag `D` with a malformed number.
    MetaDelta => b"CLIENT_ERROR invalid numeric delta value\r\n",
    /// An opaque of more than 31 bytes.
    MetaOpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
    /// `ms` with an unknown mode.
    MetaSetMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
    /// `ma` with an unknown mode.
    MetaArithMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
}
