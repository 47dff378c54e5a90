//! Sans-IO codec of the memcached text protocol, classic and meta.
//!
//! The crate touches no socket. It is handed bytes and hands back requests and responses that borrow
//! from them, and it appends requests and responses to buffers. The store decodes requests and
//! encodes responses; the middleware decodes both and relays their raw bytes; the load generator
//! encodes requests and decodes responses.
//!
//! The measure of right and wrong is memcached 1.6.18: what it accepts is accepted, and what it
//! refuses is refused with its words. `tests/memcached/` compares the two.
//!
//! The major components are:
//!
//! * [`RequestDecoder`]: bytes to [`Request`], within [`Limits`].
//!
//! * [`ResponseDecoder`]: bytes to [`Response`]. Responses do not name their request, so the caller says
//!   what to [`Expect`].
//!
//! * [`Decoded`]: what a call to either came to, and how the caller's loop looks. Both decoders keep
//!   only a few words of state, so that input arriving in many pieces is looked at once.
//!
//! * [`ProtocolError`]: why a request was refused, and the exact answer to it.
//!
//! * [`Meta`], [`quiet_suppresses`]: the meta commands' flags, and what `q` leaves unsent.
//!
//! * [`encode`]: requests and responses to bytes.
//!
//! The private modules `token`, `number` and `base64` read words, numbers and binary keys the way
//! memcached's C does.
//!
//! Not decoded, and so answered with `ERROR`, are the commands of an administrator who talks to one
//! server: `slabs`, `lru`, `lru_crawler`, `watch`, `extstore`. The binary protocol, which memcached
//! deprecated, is absent.

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
pub use request::{ArithVerb, Get, GetVerb, Request, Store, StoreVerb};
pub use request_decoder::RequestDecoder;
pub use response::{Response, Status, Value, Values};
pub use response_decoder::{Asked, Expect, ResponseDecoder, ResponseError};

/// Whether a key in base64 stands for these bytes.
pub fn is_base64_of(encoded: &[u8], key: &[u8]) -> bool {
    let mut decoded = Vec::new();
    base64::decode(encoded, |byte| decoded.push(byte)) && decoded == key
}
