//! What a flight has begun at the near cache: pure, no sockets.

use std::time::Instant;

use knee_proto::{Response, encode};

use crate::near::{Near, Sight};

/// What the near cache has to do at the end of a flight.
#[derive(Debug, Default)]
pub(crate) enum Trail {
    #[default]
    None,
    /// A read of one key: keep its value.
    Read(Sight),
    /// A read of several keys: keep the values, and add those that the cache had.
    Reads(Box<Reads>),
    /// Writes that end, by their places.
    Write(u32),
    Writes(Vec<u32>),
    Flush,
}

/// The keys of a multi-get.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// All keys, without separators, and for each its end and its holder.
    pub(crate) names: Vec<u8>,
    pub(crate) keys: Vec<(usize, Holder)>,
    /// The values that the cache had, in the form of the answer.
    pub(crate) values: Vec<u8>,
    pub(crate) hits: u32,
}

#[derive(Debug)]
pub(crate) enum Holder {
    /// The cache: the value ends at this byte of `values`.
    Cache(usize),
    /// A server. The marks before the read; `None` if its value cannot be kept.
    Server(Option<Sight>),
}

impl Reads {
    /// The reply with the values of the cache and those of the servers, in the order of the keys.
    pub(crate) fn join(&self, answer: &Response<'_>, begun: Instant, near: &mut Near) -> Vec<u8> {
        let mut reply = Vec::with_capacity(self.values.len() + answer.raw.len());
        let mut answered = answer.values().peekable();
        let (mut name, mut value) = (0, 0);
        for (end, holder) in &self.keys {
            let key = &self.names[std::mem::replace(&mut name, *end)..*end];
            match holder {
                Holder::Cache(end) => {
                    let start = std::mem::replace(&mut value, *end);
                    reply.extend_from_slice(&self.values[start..*end]);
                }
                Holder::Server(sight) => {
                    let Some(found) = answered.next_if(|found| found.key == key) else { continue };
                    reply.extend_from_slice(found.raw);
                    if let Some(sight) = sight {
                        near.keep(&found, *sight, begun);
                    }
                }
            }
        }
        reply.extend_from_slice(encode::END);
        reply
    }
}
