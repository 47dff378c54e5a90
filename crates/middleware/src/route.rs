//! The servers and the handling of each kind of request: pure, no sockets.
//!
//! | request | servers | merged by |
//! |---|---|---|
//! | `get` of one key, `mg`, `me`, `version` | one, in turn | relayed |
//! | `get` of several keys | one, in turn; or split over all | relayed; or in the order of the keys |
//! | `stats` | the first that is up | relayed |
//! | storage, `delete`, arithmetic, `touch`, `flush_all`, … | all | [`Verdict`](crate::verdict::Verdict) |
//! | `gets`, `gat`, `mg` that touches or asks for a token, … | all | [`gather`](crate::gather) |
//! | `cas`, meta commands with `C` | all, in three rounds | [`cas`](crate::cas) |
//! | `mn`, `shutdown`, `quit` | none | |
//!
//! With a single server, all but the last row is relayed unchanged.

use knee_proto::{Get, GetVerb, Meta, MetaVerb, Request, StoreVerb, encode};
use knee_telemetry::Op;

use crate::form::Form;

/// Which servers answer a request, and how their answers are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The next server in turn that is in; after a failure, the server after that.
    Any,
    /// The first server that is up.
    First,
    /// The keys are split over all servers that are up.
    Shards,
    /// All servers; the most severe answer is relayed.
    All,
    /// All servers; their answers are merged into one.
    Gather,
    /// All servers, if the client's token holds on each.
    Cas,
}

/// The answers that the client does not want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The client wants all answers.
    None,
    /// `noreply`: the client wants no answer.
    Noreply,
    /// `q`: the client wants no nominal answer of this command.
    Quiet(MetaVerb),
}

/// The handling of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) op: Op,
    pub(crate) kind: Kind,
    /// Whether the request changes data: then every server that is in takes part, and no server is asked twice.
    pub(crate) changes: bool,
    pub(crate) silence: Silence,
    /// Number of keys.
    pub(crate) items: u32,
    /// Whether hits are counted.
    pub(crate) retrieves: bool,
    pub(crate) form: Form,
}

impl Route {
    /// For a request that the middleware answers itself, after the answers to the client's earlier requests.
    pub(crate) const NOWHERE: Route = Route {
        op: Op::Other,
        kind: Kind::First,
        changes: false,
        silence: Silence::None,
        items: 0,
        retrieves: false,
        form: Form::Version,
    };

    /// For a removal that the middleware starts, without a request from a client.
    pub(crate) const FORGET: Route = Route {
        kind: Kind::All,
        changes: true,
        silence: Silence::Noreply,
        form: Form::Delete,
        ..Route::NOWHERE
    };
}

/// The next step for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Ask servers.
    Forward(Route),
    /// The middleware knows the answer.
    Answer(&'static [u8]),
    /// `quit`.
    Close,
}

/// The statistics that are forwarded: their answers end with `END`, or are `RESET`, and show no keys of clients.
const STATS: [&[u8]; 7] = [b"", b"settings", b"items", b"slabs", b"sizes", b"conns", b"reset"];
pub(crate) fn plan(request: &Request<'_>, servers: usize, sharded: bool) -> Plan {
    let replicated = servers > 1;
    let line = |op, form, kind, changes, items| Route {
        op,
        kind,
        changes,
        silence: if request.is_quiet() { Silence::Noreply } else { Silence::None },
        items,
        retrieves: false,
        form,
    };
    let write = |op, form, items| line(op, form, Kind::All, true, items);
    let route = match request {
        Request::Get(Get { key_count: 0, .. }) => return Plan::Answer(encode::END),
        Request::Get(get) => retrieval(get, replicated, sharded),
        Request::Store(store) => match (store.verb, replicated) {
            (StoreVerb::Cas, true) => line(Op::Set, Form::Cas, Kind::Cas, true, 1),
            (StoreVerb::Cas, false) => write(Op::Set, Form::Cas, 1),
            _ => write(Op::Set, Form::Store, 1),
        },
        Request::Delete { .. } => write(Op::Delete, Form::Delete, 1),
        Request::Arith { .. } => write(Op::Other, Form::Arith, 1),
        Request::Touch { .. } => write(Op::Other, Form::Touch, 1),
        Request::FlushAll { .. } | Request::Verbosity { .. } => write(Op::Other, Form::Done, 0),
        Request::CacheMemlimit { .. } => write(Op::Other, Form::Memlimit, 0),
        Request::Stats { args } if args.starts_with(b"cachedump ") => {
            return Plan::Answer(encode::END);
        }
        Request::Stats { args } if !STATS.contains(args) => return Plan::Answer(b"ERROR\r\n"),
        Request::Stats { .. } => line(Op::Other, Form::Stats, Kind::First, false, 0),
        Request::Version => line(Op::Other, Form::Version, Kind::Any, false, 0),
        Request::MetaGet(request) => meta_get(request, replicated),
        Request::MetaSet(request) => meta_write(MetaVerb::Set, request, replicated),
        Request::MetaDelete(request) => meta_write(MetaVerb::Delete, request, replicated),
        Request::MetaArith(request) => meta_write(MetaVerb::Arith, request, replicated),
        Request::MetaDebug(_) => line(Op::Other, Form::Meta(MetaVerb::Debug), Kind::Any, false, 1),
        Request::MetaNoop => return Plan::Answer(encode::META_NOOP),
        Request::Shutdown { .. } => return Plan::Answer(encode::SHUTDOWN_DISABLED),
        Request::Quit => return Plan::Close,
    };
    Plan::Forward(route)
}

fn retrieval(get: &Get<'_>, replicated: bool, sharded: bool) -> Route {
    let multiple = get.key_count > 1;
    Route {
        op: if multiple { Op::Multiget } else { Op::Get },
        kind: match get.verb {
            _ if !replicated => Kind::Any,
            GetVerb::Get if sharded && multiple => Kind::Shards,
            GetVerb::Get => Kind::Any,
            GetVerb::Gets | GetVerb::Gat | GetVerb::Gats => Kind::Gather,
        },
        changes: get.verb.with_exptime(),
        silence: Silence::None,
        items: u32::try_from(get.key_count).unwrap_or(u32::MAX),
        retrieves: true,
        form: Form::Retrieval(get.verb),
    }
}

fn meta_get(request: &Meta<'_>, replicated: bool) -> Route {
    // Vivify, recache and touch must reach every server.
    let changes = [b'N', b'R', b'T'].iter().any(|&letter| request.has(letter));
    Route {
        op: Op::Get,
        kind: if replicated && (changes || request.has(b'c')) { Kind::Gather } else { Kind::Any },
        changes,
        silence: silence(MetaVerb::Get, request),
        items: 1,
        retrieves: true,
        form: Form::Meta(MetaVerb::Get),
    }
}

fn meta_write(verb: MetaVerb, request: &Meta<'_>, replicated: bool) -> Route {
    Route {
        op: match verb {
            MetaVerb::Set => Op::Set,
            MetaVerb::Delete => Op::Delete,
            MetaVerb::Arith | MetaVerb::Get | MetaVerb::Debug => Op::Other,
        },
        kind: match () {
            () if replicated && request.has(b'C') => Kind::Cas,
            () if replicated && request.has(b'c') => Kind::Gather,
            () => Kind::All,
        },
        changes: true,
        silence: silence(verb, request),
        items: 1,
        retrieves: false,
        form: Form::Meta(verb),
    }
}

fn silence(verb: MetaVerb, request: &Meta<'_>) -> Silence {
    if request.quiet() { Silence::Quiet(verb) } else { Silence::None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use knee_proto::{Decoded, Limits, RequestDecoder};

    fn plan_of(line: &str, servers: usize, sharded: bool) -> Plan {
        match RequestDecoder::new(Limits::default()).decode(line.as_bytes()) {
            Decoded::Complete { item, .. } => plan(&item, servers, sharded),
            other => panic!("{line:?} is no request: {other:?}"),
        }
    }

    #[test]
    fn request_goes_to_the_servers_of_its_kind() {
        use Kind::{All, Any, Cas, First, Gather, Shards};
        // (request, in front of one server, of three, of three with sharding, changes)
        let rows = [
            ("get a\r\n", Any, Any, Any, false),
            ("get a b\r\n", Any, Any, Shards, false),
            // Tokens differ from server to server.
            ("gets a\r\n", Any, Gather, Gather, false),
            ("mg a v c\r\n", Any, Gather, Gather, false),
            // A touch must reach every server.
            ("gat 10 a\r\n", Any, Gather, Gather, true),
            ("mg a v T10\r\n", Any, Gather, Gather, true),
            ("mg a N10\r\n", Any, Gather, Gather, true),
            ("mg a v\r\n", Any, Any, Any, false),
            ("set a 0 0 1\r\nx\r\n", All, All, All, true),
            ("cas a 0 0 1 7\r\nx\r\n", All, Cas, Cas, true),
            ("ms a 1 C7\r\nx\r\n", All, Cas, Cas, true),
            ("ms a 1 c\r\nx\r\n", All, Gather, Gather, true),
            ("md a C7\r\n", All, Cas, Cas, true),
            ("delete a\r\n", All, All, All, true),
            ("incr a 1\r\n", All, All, All, true),
            ("touch a 1\r\n", All, All, All, true),
            ("flush_all\r\n", All, All, All, true),
            ("verbosity 1\r\n", All, All, All, true),
            ("stats\r\n", First, First, First, false),
            ("version\r\n", Any, Any, Any, false),
            ("me a\r\n", Any, Any, Any, false),
        ];
        for (line, one, three, sharded, changes) in rows {
            for (servers, shards, kind) in [(1, true, one), (3, false, three), (3, true, sharded)] {
                match plan_of(line, servers, shards) {
                    Plan::Forward(route) => {
                        assert_eq!(route.kind, kind, "{line:?} over {servers}");
                        assert_eq!(route.changes, changes, "{line:?}");
                    }
                    other => panic!("{line:?}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn some_requests_need_no_server() {
        assert_eq!(plan_of("mn\r\n", 3, false), Plan::Answer(b"MN\r\n"));
        assert_eq!(plan_of("quit\r\n", 3, false), Plan::Close);
        // A client must not end a server that other clients use.
        assert_eq!(
            plan_of("shutdown\r\n", 1, false),
            Plan::Answer(b"ERROR: shutdown not enabled\r\n")
        );
        for args in ["sizes_enable", "sizes_disable", "cachedump", "detail dump", "noreply", "re"] {
            let stats = format!("stats {args}\r\n");
            assert_eq!(plan_of(&stats, 1, false), Plan::Answer(b"ERROR\r\n"), "{args}");
        }
        assert_eq!(plan_of("stats cachedump 1 1\r\n", 1, false), Plan::Answer(b"END\r\n"));
    }
}
