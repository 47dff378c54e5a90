//! A minimal store that answers the tests' requests by the decoder's outcomes.

use std::collections::HashMap;

use knee_proto::{
    Decoded, Limits, Meta, MetaVerb, Request, RequestDecoder, Status, Store, StoreVerb, encode,
    quiet_suppresses,
};

/// A store without counters, and without expiry except for values that are stored as expired.
pub(crate) struct Model {
    decoder: RequestDecoder,
    items: HashMap<Vec<u8>, (u32, Vec<u8>)>,
    /// Whether a server would have closed the connection.
    pub(crate) closed: bool,
}

impl Model {
    pub(crate) fn new() -> Self {
        let decoder = RequestDecoder::new(Limits::default());
        Model { decoder, items: HashMap::new(), closed: false }
    }

    /// The answers to `input`, until it ends or the connection is closed.
    pub(crate) fn ask(&mut self, input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut start = 0;
        while !self.closed {
            match self.decoder.decode(&input[start..]) {
                Decoded::Incomplete { consumed, wanted } => {
                    start += consumed;
                    if input.len() - start < wanted {
                        break;
                    }
                }
                Decoded::Complete { consumed, item } => {
                    start += consumed;
                    self.answer(item, &mut out);
                }
                Decoded::Invalid { consumed, error } => {
                    start += consumed;
                    out.extend_from_slice(error.answer());
                    self.closed = error.is_fatal();
                    if let Some(key) = self.decoder.take_stale_key() {
                        self.items.remove(&key.bytes());
                    }
                }
            }
        }
        out
    }

    fn answer(&mut self, request: Request<'_>, out: &mut Vec<u8>) {
        if matches!(request, Request::Quit) {
            self.closed = true;
            return;
        }
        let start = out.len();
        self.answer_aloud(&request, out);
        let is_meta = request.expect() == Some(knee_proto::Expect::Meta);
        if request.is_quiet() && !is_meta {
            out.truncate(start);
        }
    }

    fn answer_aloud(&mut self, request: &Request<'_>, out: &mut Vec<u8>) {
        match request {
            Request::Get(get) => {
                for key in get.keys() {
                    if let Some((flags, value)) = self.items.get(key) {
                        let cas = get.verb.with_cas().then_some(0);
                        encode::value(key, *flags, value, cas, out);
                    }
                }
                out.extend_from_slice(encode::END);
            }
            Request::Store(store) => out.extend_from_slice(self.store(store)),
            Request::Delete { key, .. } => out.extend_from_slice(match self.items.remove(*key) {
                Some(_) => encode::DELETED,
                None => encode::NOT_FOUND,
            }),
            Request::Arith { .. } | Request::Touch { .. } => {
                out.extend_from_slice(encode::NOT_FOUND);
            }
            Request::FlushAll { .. }
            | Request::Verbosity { .. }
            | Request::CacheMemlimit { .. } => out.extend_from_slice(encode::OK),
            Request::Version => encode::version_line("1.6.18", out),
            Request::Shutdown { .. } => out.extend_from_slice(encode::SHUTDOWN_DISABLED),
            Request::MetaNoop => out.extend_from_slice(encode::META_NOOP),
            Request::MetaGet(meta) => self.meta_get(meta, out),
            Request::MetaSet(meta) => {
                let key = meta.key_bytes(&mut Vec::new()).to_vec();
                self.items.insert(key, (meta.options.client_flags, meta.value.to_vec()));
                meta_line(MetaVerb::Set, meta, Status::MetaDone, encode::META_DONE, out);
            }
            Request::MetaDelete(meta) => {
                let code = encode::META_NOT_FOUND;
                meta_line(MetaVerb::Delete, meta, Status::MetaNotFound, code, out);
            }
            Request::MetaArith(meta) => {
                let code = encode::META_NOT_FOUND;
                meta_line(MetaVerb::Arith, meta, Status::MetaNotFound, code, out);
            }
            Request::MetaDebug(_) => {
                out.extend_from_slice(encode::META_MISS);
                encode::line_end(out);
            }
            Request::Stats { .. } | Request::Quit => unreachable!("no test sends it here"),
        }
    }

    fn store(&mut self, store: &Store<'_>) -> &'static [u8] {
        match store.verb {
            StoreVerb::Set if store.exptime < 0 => {
                self.items.remove(store.key);
                encode::STORED
            }
            StoreVerb::Set => {
                self.items.insert(store.key.to_vec(), (store.flags, store.value.to_vec()));
                encode::STORED
            }
            StoreVerb::Cas => encode::NOT_FOUND,
            _ => encode::NOT_STORED,
        }
    }

    fn meta_get(&self, meta: &Meta<'_>, out: &mut Vec<u8>) {
        match self.items.get(meta.key_bytes(&mut Vec::new())) {
            Some((_, value)) if meta.has(b'v') => {
                encode::meta_value_header(value.len(), out);
                encode::line_end(out);
                out.extend_from_slice(value);
                encode::line_end(out);
            }
            Some(_) => meta_line(MetaVerb::Get, meta, Status::MetaDone, encode::META_DONE, out),
            None => meta_line(MetaVerb::Get, meta, Status::MetaMiss, encode::META_MISS, out),
        }
    }
}

/// Appends a meta response with the flags that memcached repeats, unless `q` suppresses it.
fn meta_line(verb: MetaVerb, meta: &Meta<'_>, status: Status<'_>, code: &[u8], out: &mut Vec<u8>) {
    if meta.quiet() && quiet_suppresses(verb, status) {
        return;
    }
    out.extend_from_slice(code);
    for flag in meta.flags() {
        match flag.letter {
            b'k' => encode::meta_key(meta.key_bytes(&mut Vec::new()), meta.has(b'b'), out),
            b'O' => encode::meta_flag(b'O', flag.argument, out),
            _ => {}
        }
    }
    encode::line_end(out);
}
