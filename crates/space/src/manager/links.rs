//! How connections to machines open, ask, and are lost.

use std::time::{Duration, Instant};

use knee_nbd::{
    Command, Dial, Dialed, EIO, ENOSPC, EPERM, Errno, Offer, REPLY_BYTES, Reply, Request,
};
use knee_reactor::{ConnId, Io};
use knee_telemetry::ServerCounts;

use super::flight::Part;
use super::machine::{LANES, Lane};
use super::{CHECK, Manager, Peer, RETRY};
use crate::layout::Span;

/// Longest pause between two looks for late answers.
const CHECK_MAX: Duration = Duration::from_millis(250);
/// Requests with more data are long.
const LONG_BYTES: u32 = 32 << 10;

impl Manager {
    /// Connects to a machine, unless it may still execute what earlier connections have sent.
    pub(super) fn connect(&mut self, io: &mut Io, machine: usize) {
        let state = &mut self.machines[machine];
        if self.space.health.lingers(machine) {
            io.timer(io.now() + state.pause(), RETRY + machine as u64);
            return;
        }
        let address = state.address;
        for lane in 0..LANES {
            match io.connect(address, 0) {
                Ok(conn) => {
                    self.set_peer(conn, Peer::Machine { machine, lane });
                    let dial = Some((Dial::default(), io.now()));
                    self.machines[machine].lanes[lane] = Lane { conn: Some(conn), dial };
                }
                Err(error) => return self.lose(io, machine, &error.to_string()),
            }
        }
    }

    /// Takes a machine's input. Returns the length of what was understood.
    pub(super) fn hear(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        machine: usize,
        lane: usize,
        input: &[u8],
    ) -> usize {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let heard = match &mut self.machines[machine].lanes[lane] {
                Lane { dial: Some((dial, _)), .. } => {
                    let mut out = Vec::new();
                    let dialed = dial.take(rest, &mut out);
                    io.write(conn, &out);
                    match dialed {
                        Ok(Dialed::Incomplete) => return at,
                        Ok(Dialed::Next(consumed)) => Ok(consumed),
                        Ok(Dialed::Done(consumed, offer)) => {
                            self.dialed(machine, lane, &offer).map(|()| consumed)
                        }
                        Err(why) => Err(why.to_owned()),
                    }
                }
                Lane { dial: None, .. } => match self.hear_reply(io, conn, rest) {
                    Ok(0) => return at,
                    heard => heard,
                },
            };
            match heard {
                Ok(consumed) => at += consumed,
                Err(why) => {
                    self.lose(io, machine, &why);
                    return input.len();
                }
            }
        }
    }

    /// Uses a machine once all of its connections are open, if its export fits.
    fn dialed(&mut self, machine: usize, lane: usize, offer: &Offer) -> Result<(), String> {
        let needed = self.space.layout.bytes_of(machine);
        if !self.space.export.read_only {
            if let Some(missing) = offer.missing() {
                return Err(format!("it does not offer {missing}"));
            }
            if offer.is_read_only() {
                return Err("it is read-only, and the manager is not".to_owned());
            }
        }
        if offer.bytes < needed {
            return Err(format!("it has {} bytes, less than its {needed}", offer.bytes));
        }
        let state = &mut self.machines[machine];
        state.lanes[lane].dial = None;
        if state.lanes.iter().all(|lane| lane.conn.is_some() && lane.dial.is_none()) {
            state.rises();
            self.space.health.enter(machine);
            self.count(machine, |counts| counts.up = true);
            self.was_tried(machine);
        }
        Ok(())
    }

    /// Takes a reply. Returns its length; 0 if it is incomplete.
    fn hear_reply(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> Result<usize, String> {
        let reply = match Reply::decode(input) {
            Ok(Some(reply)) => reply,
            Ok(None) => return Ok(0),
            Err(malformed) => return Err(malformed.0.to_owned()),
        };
        let part = self.parts.get(reply.cookie).filter(|part| part.conn == conn);
        let Some(part) = part else { return Err("a reply fits no request".to_owned()) };
        let machine = part.machine;
        let data = if reply.error == 0 { part.reads as usize } else { 0 };
        let whole = REPLY_BYTES + data;
        if input.len() < whole {
            io.want(conn, whole);
            return Ok(0);
        }
        if reply.error != 0 {
            self.count(machine, |counts| counts.errors += 1);
        }
        self.part_ends(io, reply.cookie, passed_on(reply.error), &input[REPLY_BYTES..whole]);
        Ok(whole)
    }

    /// Sends a part of a request.
    pub(super) fn send(
        &mut self,
        io: &mut Io,
        flight: u64,
        request: &Request,
        span: Span,
        data: &[u8],
    ) {
        let Span { machine, offset, at, length } = span;
        let Request { command, flags, .. } = *request;
        let has_data = matches!(command, Command::Read | Command::Write);
        let lane = usize::from(has_data && length > LONG_BYTES);
        let Some(conn) = self.machines[machine].lanes[lane].conn else { return };
        let part = Part {
            flight,
            conn,
            machine,
            at,
            reads: if command == Command::Read { length } else { 0 },
            changes: command.changes(),
            sent: io.now(),
        };
        let cookie = self.parts.insert(part);
        // The loss of a connection ends its parts, so a closed one needs no care.
        if let Some(out) = io.output(conn) {
            Request { flags, command, cookie, offset, length }.encode(out);
            out.extend_from_slice(data);
        }
        self.count(machine, |counts| {
            counts.requests += 1;
            counts.bytes += if has_data { u64::from(length) } else { 0 };
        });
    }

    /// Closes all connections to a machine. What it has not answered fails, and it is tried again later.
    ///
    /// The machine may still execute changes that it has not answered. Then the connection lingers: its output ends, and
    /// no thread uses the machine before it has closed its end. So no late change overtakes a later request.
    pub(super) fn lose(&mut self, io: &mut Io, machine: usize, why: &str) {
        let state = &mut self.machines[machine];
        let used = std::mem::take(&mut state.is_up);
        let lanes = std::mem::take(&mut state.lanes);
        let open: Vec<ConnId> = lanes.iter().filter_map(|lane| lane.conn).collect();
        for conn in &open {
            let changes = self.parts.iter().any(|(_, part)| part.conn == *conn && part.changes);
            if !io.is_open(*conn) {
                continue;
            }
            if changes && io.end_output(*conn) {
                self.set_peer(*conn, Peer::Lingering(machine));
                self.space.health.linger(machine);
            } else {
                self.set_peer(*conn, Peer::None);
                io.close(*conn);
            }
        }
        let lost = self.parts.iter().filter(|(_, part)| part.machine == machine);
        let lost: Vec<u64> = lost.map(|(number, _)| number).collect();
        self.count(machine, |counts| {
            counts.up = false;
            counts.ejected += u64::from(used);
            counts.errors += lost.len() as u64;
        });
        for number in lost {
            self.part_ends(io, number, EIO, &[]);
        }
        self.space.health.leave(machine, used, why);
        self.was_tried(machine);
        let pause = self.machines[machine].pause();
        io.timer(io.now() + pause, RETRY + machine as u64);
    }

    /// Loses machines whose answers are late.
    pub(super) fn check(&mut self, io: &mut Io) {
        let (now, timeout) = (io.now(), self.space.timeout);
        let late = |since: Instant| now >= since + timeout;
        let asked = self.parts.iter().map(|(_, part)| (part.machine, part.sent));
        let dialed = self.machines.iter().enumerate().flat_map(|(number, machine)| {
            let dials = machine.lanes.iter().filter_map(|lane| lane.dial.as_ref());
            dials.map(move |(_, since)| (number, *since))
        });
        let mut lost: Vec<usize> = asked
            .chain(dialed)
            .filter_map(|(machine, since)| late(since).then_some(machine))
            .collect();
        lost.sort_unstable();
        lost.dedup();
        for machine in lost {
            let why = format!("no answer within {} ms", timeout.as_millis());
            self.lose(io, machine, &why);
        }
        io.timer(now + (timeout / 4).min(CHECK_MAX), CHECK);
    }

    /// Notes that a machine was tried; reports it after the last one.
    fn was_tried(&mut self, machine: usize) {
        self.machines[machine].was_tried = true;
        if self.machines.iter().all(|machine| machine.was_tried)
            && let Some(tried) = self.tried.take()
        {
            // The program may be ending.
            let _ = tried.send(());
        }
    }

    pub(super) fn count(&mut self, machine: usize, count: impl FnOnce(&mut ServerCounts)) {
        if let Some(recorder) = &mut self.recorder {
            count(&mut recorder.gauges.servers[machine]);
        }
    }
}

/// The error that a client gets for a machine's error.
fn passed_on(error: Errno) -> Errno {
    match error {
        0 | EPERM | ENOSPC => error,
        _ => EIO,
    }
}
