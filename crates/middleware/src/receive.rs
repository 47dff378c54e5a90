//! Reads answers from a server's bytes, and checks that they belong to their requests.

use knee_proto::{Decoded, MetaVerb, Response, ResponseError};
use knee_reactor::{ConnId, Io};

use crate::form::{Form, debugs_key_of};
use crate::opaque::Answer;
use crate::proxy::Proxy;
use crate::server::{DELETION, Expected, State, TRIAL};

/// An incomplete answer is looked at again after this many bytes, so that a slow server does not time out.
const PROGRESS_BYTES: usize = 64 * 1024;

/// Reasons to close a server's connection: its further answers could reach the wrong clients.
const UNASKED: &str = "it sent what no request had asked for";
const UNFIT: &str = "it sent an answer that does not fit its request";
const REFUSED_VALUE: &str = "it refused a request with a value, and may read the value as commands";

impl Proxy {
    /// Takes a server's answers; returns the number of bytes used.
    pub(crate) fn take_answers(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        lane: u32,
        server: usize,
        input: &[u8],
    ) -> usize {
        let mut used = 0;
        let mut answered = 0;
        while used < input.len() {
            let upstream = &mut self.lanes[lane as usize].upstreams[server];
            if upstream.conn != Some(conn) {
                return input.len();
            }
            let Some(&expected) = upstream.expected.front() else {
                self.mistrust(io, lane, server, UNASKED);
                return input.len();
            };
            upstream.since = io.now();
            // An answer without a flight: only its form can be checked.
            let awaited = expected.awaited();
            let request = awaited.map_or(&b""[..], |id| self.flights[id].request_of(expected.part));
            let asked = awaited.and_then(|_| expected.form.asked(request));
            let expect = expected.form.expect();
            match upstream.decoder.decode_asked(&input[used..], expect, asked) {
                Decoded::Complete { consumed, item } if awaited.is_none() => {
                    if !expected.form.fits(&item.status) && expected.flight != TRIAL {
                        self.mistrust(io, lane, server, UNFIT);
                        return input.len();
                    }
                    upstream.expected.pop_front();
                    used += consumed;
                    answered += if expected.flight == TRIAL { 0 } else { consumed };
                    match expected.flight {
                        TRIAL => self.stands(io, lane, server, &item),
                        DELETION => self.take_deletion(io, server, &item.status),
                        _ => {}
                    }
                }
                Decoded::Complete { consumed, item } => {
                    let Some(answer) = belonging(expected, request, item) else {
                        self.mistrust(io, lane, server, UNFIT);
                        return input.len();
                    };
                    upstream.expected.pop_front();
                    used += consumed;
                    answered += consumed;
                    self.take_answer(io, expected, server, &answer);
                    if expected.form.may_desynchronise(&item.status) {
                        self.mistrust(io, lane, server, REFUSED_VALUE);
                        return input.len();
                    }
                }
                Decoded::Incomplete { wanted, .. } => {
                    io.want(conn, wanted.min(input.len() - used + PROGRESS_BYTES));
                    break;
                }
                Decoded::Invalid { error: error @ ResponseError::TooLong, .. } => {
                    // Another server would give the same answer, and a further attempt, too.
                    upstream.expected.pop_front();
                    if let TRIAL | DELETION = expected.flight {
                        self.lose(io, lane, server, error.to_string());
                        return input.len();
                    }
                    if let Some(id) = awaited {
                        let name = &self.servers[server].name;
                        let text = format!("SERVER_ERROR server {name}: {error}\r\n");
                        self.count_error(server);
                        if self.flights[id].round_writes() {
                            self.miss(id, server);
                        }
                        self.fail(io, id, text.as_bytes());
                    }
                    self.replace(io, lane, server, &error.to_string());
                    return input.len();
                }
                Decoded::Invalid { error, .. } => {
                    self.mistrust(io, lane, server, &error.to_string());
                    return input.len();
                }
            }
        }
        if answered > 0 {
            if let Some(recorder) = self.recorder() {
                recorder.gauges.servers[server].bytes += answered as u64;
            }
            self.servers[server].answered();
            let upstream = &mut self.lanes[lane as usize].upstreams[server];
            if upstream.state == State::Slow && upstream.conn == Some(conn) {
                upstream.state = State::Up;
            }
        }
        used
    }
}

/// The answer, if it belongs to its request.
#[inline]
fn belonging<'a>(expected: Expected, request: &[u8], item: Response<'a>) -> Option<Answer<'a>> {
    if !expected.form.fits(&item.status) {
        return None;
    }
    match expected.form {
        Form::Meta(MetaVerb::Debug) => debugs_key_of(request, &item).then(|| Answer::plain(item)),
        Form::Meta(_) => Answer::numbered(item, expected.number),
        _ => Some(Answer::plain(item)),
    }
}
