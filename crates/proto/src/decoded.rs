//! The outcome of one call of a decoder.

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
///         Decoded::Complete { consumed, item: _request } => start += consumed, // … serve it
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
    /// The item at the front is incomplete.
    Incomplete {
        /// Bytes to drop. They belong to a refused value, never to an item.
        consumed: usize,
        /// The number of bytes, after the dropped ones, from which on another call can have another outcome. It always
        /// exceeds the number of these bytes now. An earlier call does no harm.
        wanted: usize,
    },
    /// One item; `input[..consumed]` are exactly its bytes.
    Complete {
        /// Length of the item in bytes.
        consumed: usize,
        /// The item, borrowed from the input.
        item: T,
    },
    /// The input broke the protocol. The decoder continues after the consumed bytes.
    Invalid {
        /// Bytes to drop.
        consumed: usize,
        /// The error.
        error: E,
    },
}
