//! What one call of a decoder came to.

/// The outcome of one call of [`RequestDecoder::decode`](crate::RequestDecoder::decode) or
/// [`ResponseDecoder::decode`](crate::ResponseDecoder::decode).
///
/// The caller keeps the bytes and owns the loop:
///
/// ```
/// # use knee_proto::{Decoded, Limits, RequestDecoder};
/// # let mut decoder = RequestDecoder::new(Limits::default());
/// # let buffer = b"get a\r\nget b\r\nget";
/// let mut start = 0;
/// loop {
///     match decoder.decode(&buffer[start..]) {
///         Decoded::Complete { consumed, item: _request } => start += consumed, // … act on it
///         Decoded::Invalid { consumed, error } => {
///             start += consumed; // … write error.answer(), close when error.is_fatal()
/// #           assert!(!error.is_fatal());
///         }
///         Decoded::Incomplete { consumed, wanted: _ } => {
///             start += consumed; // … keep the rest, read until `wanted` bytes are there
///             break;
///         }
///     }
/// }
/// # assert_eq!(&buffer[start..], b"get");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<T, E> {
    /// No whole item yet.
    Incomplete {
        /// Bytes to drop: they belong to a value that is being thrown away, never to an item.
        consumed: usize,
        /// How many bytes must stand behind the dropped ones before another call can come to
        /// anything else; always more than do now. Calling earlier does no harm.
        wanted: usize,
    },
    /// One item; `input[..consumed]` are exactly its bytes on the wire.
    Complete {
        /// Length of the item on the wire.
        consumed: usize,
        /// The item, borrowed from the input.
        item: T,
    },
    /// The input broke the protocol; what follows `consumed` is decoded afresh.
    Invalid {
        /// Bytes to drop.
        consumed: usize,
        /// What was wrong.
        error: E,
    },
}
