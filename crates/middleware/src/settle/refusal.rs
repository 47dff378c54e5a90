//! Ends flights with an error line of the middleware: a server is down, not understood, or diverged.

use knee_reactor::Io;

use super::set;
use crate::flight::Outcome;
use crate::proxy::Proxy;
use crate::route::{Kind, Silence};

impl Proxy {
    /// Ends a flight with an error line at once.
    pub(crate) fn refuse(&mut self, io: &mut Io, id: u32, text: &[u8]) {
        set(&mut self.flights[id].reply, text);
        self.settle_error(io, id);
    }

    /// Fails a flight, because the answer of one server is unusable. The error waits for the answers of the other
    /// servers.
    pub(crate) fn fail(&mut self, io: &mut Io, id: u32, text: &[u8]) {
        let flight = &mut self.flights[id];
        set(&mut flight.reply, text);
        flight.verdict.lose();
        // Later answers change neither the reply nor its silence.
        flight.outcome.silent = flight.route.silence == Silence::Noreply;
        match flight.route.kind {
            Kind::Any | Kind::First => self.settle_error(io, id),
            _ => {
                flight.missing = flight.missing.saturating_sub(1);
                if flight.missing == 0 {
                    self.settle_error(io, id);
                }
            }
        }
    }

    pub(crate) fn refuse_down(&mut self, io: &mut Io, id: u32, server: usize) {
        let mut text = Vec::new();
        self.say_down(server, &mut text);
        self.refuse(io, id, &text);
    }

    pub(crate) fn refuse_all_down(&mut self, io: &mut Io, id: u32) {
        let mut text = Vec::new();
        self.say_all_down(&mut text);
        self.refuse(io, id, &text);
    }

    pub(super) fn say_down(&self, server: usize, text: &mut Vec<u8>) {
        let server = &self.servers[server];
        text.clear();
        text.extend_from_slice(
            format!("SERVER_ERROR server {} is down: {}\r\n", server.name, server.trouble)
                .as_bytes(),
        );
    }

    pub(super) fn say_all_down(&self, text: &mut Vec<u8>) {
        if self.servers.len() == 1 {
            return self.say_down(0, text);
        }
        let each: Vec<String> = (self.servers.iter())
            .map(|server| format!("{} ({})", server.name, server.trouble))
            .collect();
        text.clear();
        text.extend_from_slice(
            format!("SERVER_ERROR no server is up: {}\r\n", each.join(", ")).as_bytes(),
        );
    }

    pub(super) fn say_diverged(&self, server: usize, did: &str, why: &[u8], text: &mut Vec<u8>) {
        text.clear();
        text.extend_from_slice(b"SERVER_ERROR replicas diverged: server ");
        text.extend_from_slice(self.servers[server].name.as_bytes());
        text.extend_from_slice(format!(" {did} what others did: ").as_bytes());
        text.extend_from_slice(why);
        text.extend_from_slice(b"\r\n");
    }

    pub(crate) fn count_error(&mut self, server: usize) {
        if let Some(recorder) = self.recorder() {
            recorder.gauges.servers[server].errors += 1;
        }
    }

    /// Ends a flight with an error line of the middleware as its reply.
    pub(super) fn settle_error(&mut self, io: &mut Io, id: u32) {
        let silent = self.flights[id].route.silence == Silence::Noreply;
        self.settle_answered(io, id, Outcome { hits: 0, error: true, silent });
    }
}
