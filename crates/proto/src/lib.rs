//! Sans-IO codec of the memcached text protocol, classic and meta.
//!
//! The crate does no I/O. It decodes bytes into requests and responses, which borrow from these bytes. It appends
//! encoded requests and responses to buffers. The store decodes requests and encodes responses. The middleware decodes
//! both, and relays raw responses. The load generator encodes requests and decodes responses.
//!
//! The reference is memcached 1.6.18: the decoder accepts the same requests, and refuses the others with the same error
//! lines. `tests/memcached/` compares the two. The decoder refuses two kinds of lines that later versions refuse, too:
//! lines with a NUL, and lengths of values beyond 32 bits.
//!
//! The major components are:
//!
//! * [`RequestDecoder`]: bytes to [`Request`], within [`Limits`].
//!
//! * [`ResponseDecoder`]: bytes to [`Response`]. Responses do not name their request, so the caller says
//!   what to [`Expect`].
//!
//! * [`Decoded`]: the outcome of a call to a decoder, with an example of the caller's loop. A decoder keeps a few words
//!   of state. So it scans input once even if the input arrives in many pieces.
//!
//! * [`ProtocolError`]: why a request was refused, and the exact answer to it.
//!
//! * [`Meta`], [`quiet_suppresses`]: the meta commands' flags, and the answers that `q` suppresses.
//!
//! * [`encode`]: requests and responses to bytes.
//!
//! The private modules `token`, `number` and `base64` read words, numbers and binary keys exactly as memcached does.
//!
//! The crate does not decode commands that administrators send to a single server: `slabs`, `lru`, `lru_crawler`,
//! `watch`, `extstore`. Their answer is `ERROR`. The binary protocol, which memcached deprecated, is absent: its first
//! byte ends the connection.

pub mod encode;

mod base64;
mod decoded;
mod error;
mod limits;
mod meta;
mod meta_flags;
mod number;
mod request;
mod request_decoder;
mod response;
mod response_decoder;
mod token;

pub use decoded::Decoded;
pub use error::{ErrorKind, ProtocolError};
pub use limits::Limits;
pub use meta::{Meta, MetaOptions, MetaVerb, quiet_suppresses};
pub use meta_flags::{MetaFlag, MetaFlags};
pub use request::{ArithVerb, Get, GetVerb, Request, StaleKey, Store, StoreVerb};
pub use request_decoder::RequestDecoder;
pub use response::{Response, Status, Value, Values};
pub use response_decoder::{Asked, Expect, ResponseDecoder, ResponseError};

/// Whether a base64 key decodes to `key`.
pub fn is_base64_of(encoded: &[u8], key: &[u8]) -> bool {
    let mut decoded = Vec::new();
    base64::decode(encoded, |byte| decoded.push(byte)) && decoded == key
}
