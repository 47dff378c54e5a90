//! Conditional writes over several servers: each server sends its token, the first server decides, the others follow.

use knee_reactor::Io;

use super::set;
use crate::cas::{self, Standing};
use crate::flight::Round;
use crate::gather::{self, Gathered};
use crate::opaque::Answer;
use crate::proxy::Proxy;
use crate::verdict::Severity;

impl Proxy {
    /// Handles an answer to a conditional write.
    pub(super) fn advance_cas(&mut self, io: &mut Io, id: u32, server: usize, answer: &Answer<'_>) {
        let response = &answer.response;
        let flight = &mut self.flights[id];
        match &flight.round {
            Round::Asking if flight.missing > 0 => {}
            Round::Asking if flight.verdict.severity == Severity::Error => {
                self.settle_error(io, id);
            }
            Round::Asking => self.decide_cas(io, id),
            Round::Deciding(_) if Severity::of(&response.status) == Severity::Success => {
                self.follow_cas(io, id);
            }
            Round::Deciding(_) => self.relay(io, id, answer),
            Round::Following => {
                if Severity::of(&response.status) == Severity::Success {
                    flight.needed = flight.needed.saturating_sub(1);
                } else {
                    let mut text = Vec::new();
                    let said = response.raw.trim_ascii_end();
                    let why = [b"it said ", said].concat();
                    self.say_diverged(server, "did not store", &why, &mut text);
                    let flight = &mut self.flights[id];
                    if flight.verdict.lose() {
                        set(&mut flight.reply, &text);
                    }
                }
                self.settle_cas(io, id);
            }
        }
    }

    /// After the tokens of all servers: asks the first server, which decides.
    pub(super) fn decide_cas(&mut self, io: &mut Io, id: u32) {
        let (servers, all) = (self.servers.len(), self.all());
        let flight = &mut self.flights[id];
        let condition = flight.condition;
        let absent = all & !flight.members;
        let gone = match cas::standing(condition.held, absent, flight.answers()) {
            Standing::Holds(tokens) => {
                let first = flight.members.trailing_zeros() as usize;
                let token = tokens.first().copied().unwrap_or_default();
                flight.missing = 1;
                flight.clear_parts(servers);
                flight.round = Round::Deciding(tokens);
                let lane = flight.lane.unwrap_or_default();
                if !self.lanes[lane as usize].is_up(first) {
                    return self.refuse_down(io, id, first);
                }
                let request = std::mem::take(&mut self.flights[id].request);
                self.ask(io, id, first, first, |out| condition.with_token(&request, token, out));
                self.flights[id].request = request;
                return;
            }
            Standing::Unknown(words) => return self.fail(io, id, &words),
            Standing::Changed => false,
            Standing::Gone => true,
        };
        let mut reply = std::mem::take(&mut flight.reply);
        reply.clear();
        let form = flight.route.form;
        condition.refuse(form, &flight.request, &flight.opaque, gone, &mut reply);
        let severity = if gone { Severity::Missing } else { Severity::Exists };
        self.settle_merged(io, id, Gathered { hits: 0, severity }, reply);
    }

    /// After the first server has stored the value: asks the other servers.
    fn follow_cas(&mut self, io: &mut Io, id: u32) {
        let flight = &mut self.flights[id];
        let Round::Deciding(tokens) = std::mem::replace(&mut flight.round, Round::Following) else {
            return;
        };
        flight.needed = flight.needed.saturating_sub(1);
        let (request, condition) = (std::mem::take(&mut flight.request), flight.condition);
        let (lane, members) = (flight.lane.unwrap_or_default() as usize, flight.members);
        let followers = (0..self.servers.len()).filter(|server| members >> server & 1 == 1);
        for (server, token) in followers.zip(tokens).skip(1) {
            if self.lanes[lane].is_up(server) {
                self.flights[id].missing += 1;
                self.ask(io, id, server, server, |out| condition.with_token(&request, token, out));
            } else {
                self.flights[id].lost |= 1 << server;
            }
        }
        self.delete_instead(io, id, self.all() & !members | self.flights[id].lost, &request);
        self.flights[id].request = request;
        self.settle_cas(io, id);
    }

    pub(super) fn settle_cas(&mut self, io: &mut Io, id: u32) {
        let all = self.all();
        let flight = &mut self.flights[id];
        if flight.missing > 0 {
            return;
        }
        if flight.verdict.severity == Severity::Error {
            return self.settle_error(io, id);
        }
        if flight.needed > 0 {
            let (server, mut text) = (flight.lost.trailing_zeros() as usize, Vec::new());
            self.say_diverged(server, "may not have stored", b"it went down", &mut text);
            return self.refuse(io, id, &text);
        }
        let absent = all & !flight.answered();
        let mut reply = std::mem::take(&mut flight.reply);
        reply.clear();
        let frames: Vec<&[u8]> = flight.answers().collect();
        let merged = if flight.route.form.expect() == knee_proto::Expect::Meta {
            gather::meta(&frames, absent, &mut reply)
        } else {
            reply.extend_from_slice(frames.first().copied().unwrap_or_default());
            Gathered { hits: 0, severity: Severity::Success }
        };
        self.settle_merged(io, id, merged, reply);
    }
}
