//! The return of a server: the middleware deletes the keys that the server has missed.

use knee_proto::Status;
use knee_reactor::Io;
use knee_telemetry::tell;

use crate::deletion;
use crate::health::Step;
use crate::proxy::Proxy;
use crate::server::{DELETION, Expected};

/// The lane whose connection gets the deletions.
pub(crate) const DELETING_LANE: u32 = 0;

impl Proxy {
    /// Takes the next step of a server's return, if this thread can.
    pub(crate) fn continue_return(&mut self, io: &mut Io, server: usize) {
        if !self.servers[server].complete || self.health.is_in(server) {
            return;
        }
        match self.health.step(server, self.thread, !self.lanes.is_empty()) {
            Step::Wait | Step::In(None) => {}
            Step::In(Some(count)) => {
                let name = &self.servers[server].name;
                let message =
                    format_args!("server {name} is in again; missed keys deleted there: {count}");
                tell("knee-proxy", message);
            }
            Step::Delete(batch) => {
                if batch.iter().any(|request| request == deletion::FLUSH) {
                    let name = &self.servers[server].name;
                    let cause = "it missed flush_all, or more keys than --missed-mb holds";
                    tell("knee-proxy", format_args!("server {name} is flushed: {cause}"));
                }
                self.servers[server].deleting = batch.len();
                self.servers[server].deletes = true;
                for request in &batch {
                    let form = deletion::form(request);
                    let expected = Expected { flight: DELETION, part: 0, form, number: 0 };
                    self.send(io, DELETING_LANE, server, expected, |out| {
                        out.extend_from_slice(request)
                    });
                }
            }
        }
    }

    pub(crate) fn take_deletion(&mut self, io: &mut Io, server: usize, status: &Status<'_>) {
        let state = &mut self.servers[server];
        state.deletes &= deletion::is_done(status);
        state.deleting = state.deleting.saturating_sub(1);
        if state.deleting > 0 {
            return;
        }
        if state.deletes {
            state.refuses = false;
            self.health.deleted(server);
            self.continue_return(io, server);
        } else {
            if !std::mem::replace(&mut state.refuses, true) {
                let name = &state.name;
                let cause = "it refuses to delete what it missed; free space or memory there";
                tell("knee-proxy", format_args!("server {name} stays out: {cause}"));
            }
            // The next tick tries again.
            self.health.give_back(server, self.thread);
        }
    }

    /// Notes that a server may lack a flight's write. The client must not have its answer yet.
    pub(crate) fn miss(&mut self, id: u32, server: usize) {
        let flight = &self.flights[id];
        for request in deletion::deletions(flight.route.form, &flight.request) {
            self.health.miss(server, request);
        }
    }

    /// Sends deletions in place of a write to `servers`, or notes the deletions for later.
    pub(crate) fn delete_instead(&mut self, io: &mut Io, id: u32, servers: u64, request: &[u8]) {
        let flight = &self.flights[id];
        let Some(lane) = flight.lane else { return };
        let deletions = deletion::deletions(flight.route.form, request);
        for server in (0..self.servers.len()).filter(|server| servers >> server & 1 == 1) {
            // The client must not wait for a server that hangs.
            let waits = !self.lanes[lane as usize].is_up(server) || self.health.lingers(server);
            for deletion in &deletions {
                if waits {
                    self.health.miss(server, deletion.clone());
                    continue;
                }
                let flight = &mut self.flights[id];
                flight.clearing |= 1 << server;
                flight.missing += 1;
                let form = deletion::form(deletion);
                let expected = Expected { flight: id, part: server as u16, form, number: 0 };
                self.send(io, lane, server, expected, |out| out.extend_from_slice(deletion));
            }
        }
    }
}
