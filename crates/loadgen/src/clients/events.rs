//! The handler of one thread's clients on the event loop.

use std::sync::atomic::Ordering;
use std::time::Instant;

use knee_proto::Decoded;
use knee_reactor::{Close, ConnId, Handler, Io, Origin};
use knee_telemetry::Moment;

use super::{ARRIVAL, Clients, DRAIN_OVER, END, Phase, RECONNECT, SECOND, START, THOUGHT};
use crate::complaints::SHOWN_BYTES_MAX;
use crate::error::Error;
use crate::run::Pace;
use crate::traffic::Traffic;

impl<T: Traffic> Clients<T> {
    /// Continues the handshake of a new connection. Returns the length of the input that it took.
    fn greet(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let client = self.owners[conn.index()] as usize;
        let (mut start, mut out) = (0, Vec::new());
        loop {
            let (decoder, requests) =
                (&mut self.connections[client].decoder, &mut self.requests[client]);
            let greeted = self.traffic.greet(decoder, requests, &input[start..], &mut out);
            io.write(conn, &std::mem::take(&mut out));
            match greeted {
                Ok(None) => return start,
                Ok(Some((consumed, false))) => start += consumed,
                Ok(Some((consumed, true))) => {
                    self.opened(io, conn);
                    return start + consumed;
                }
                Err(why) => {
                    self.complain(io, client, &why);
                    io.close(conn);
                    return input.len();
                }
            }
        }
    }

    /// Requests may be sent on a new connection.
    fn opened(&mut self, io: &mut Io, conn: ConnId) {
        let client = self.owners[conn.index()] as usize;
        let connection = &mut self.connections[client];
        connection.id = Some(conn);
        self.missing -= u64::from(std::mem::take(&mut connection.is_missing));
        if let Some(recorder) = &mut self.recorder {
            recorder.connections += 1;
            recorder.gauges.reconnects += u64::from(self.phase != Phase::Waiting);
        }
        match (self.phase, self.run.plan.pace) {
            (Phase::Waiting, _) => {
                self.opened += 1;
                self.run.count_open(connection.server);
                if self.opened == self.connections.len() {
                    // If there is no receiver, the run has failed already.
                    let _ = self.run.ready.send(Ok(()));
                }
            }
            (Phase::Running, Pace::Closed(_)) => {
                let now = Instant::now();
                for _ in 0..std::mem::take(&mut connection.stranded) {
                    self.send(io, client, client, now);
                }
            }
            (_, Pace::Open(_)) => {
                let server = connection.server;
                self.note_room(client, Instant::now());
                self.send_due(io, server);
            }
            (_, Pace::Closed(_)) => {}
        }
    }
}

impl<T: Traffic> Handler for Clients<T> {
    fn on_start(&mut self, io: &mut Io) {
        for client in 0..self.connections.len() {
            self.connect(io, client);
        }
    }

    fn on_open(&mut self, io: &mut Io, conn: ConnId, _origin: Origin) {
        self.greet(io, conn, &[]);
    }

    fn on_wake(&mut self, io: &mut Io) {
        if let (Phase::Waiting, Some(start)) = (self.phase, self.run.start.get()) {
            self.start = *start;
            io.timer(*start, START);
        }
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let now = Instant::now();
        let client = self.owners[conn.index()] as usize;
        let mut start =
            if self.connections[client].id.is_none() { self.greet(io, conn, input) } else { 0 };
        if self.connections[client].id.is_none() {
            return start;
        }
        while start < input.len() {
            let connection = &mut self.connections[client];
            let Some(front) = connection.in_flight.front() else {
                let shown = &input[start..input.len().min(start + SHOWN_BYTES_MAX)];
                let why = format!("it sent without a request: {}", shown.escape_ascii());
                self.complain(io, client, &why);
                io.close(conn);
                return input.len();
            };
            match self.traffic.decode(&mut connection.decoder, front.op, &input[start..]) {
                Decoded::Complete { consumed, item } => {
                    start += consumed;
                    self.answered(client, &item, consumed, now);
                    if let (Phase::Running, Pace::Closed(think)) = (self.phase, self.run.plan.pace)
                    {
                        let think = think.next(&mut self.connections[client].think_random);
                        if let Some(recorder) = &mut self.recorder
                            && !think.is_zero()
                        {
                            recorder.gauges.thought(think.as_nanos() as u64);
                        }
                        // The time of verification belongs to no response time.
                        let from = if self.run.plan.verify { Instant::now() } else { now };
                        self.send_after(io, client, from, think);
                    }
                }
                Decoded::Incomplete { consumed, wanted } => {
                    start += consumed;
                    io.want(conn, wanted);
                    break;
                }
                Decoded::Invalid { error, .. } => {
                    let shown = &input[start..input.len().min(start + SHOWN_BYTES_MAX)];
                    self.complain(io, client, &format!("{error}: {}", shown.escape_ascii()));
                    io.close(conn);
                    return input.len();
                }
            }
        }
        if let Pace::Open(_) = self.run.plan.pace {
            let server = self.connections[client].server;
            let was_full = self.destinations[server].room_since.is_none();
            self.note_room(client, now);
            if was_full {
                self.send_due(io, server);
            }
        }
        self.finish_when_drained(io);
        start
    }

    fn on_end(&mut self, io: &mut Io, conn: ConnId) {
        let client = self.owners[conn.index()] as usize;
        self.complain(io, client, "the server closed it");
        io.close(conn);
    }

    fn on_close(&mut self, io: &mut Io, conn: ConnId, _origin: Origin, why: Close) {
        if self.phase == Phase::Done {
            return;
        }
        let client = self.owners[conn.index()] as usize;
        match why {
            // The cause was reported when this side closed the connection.
            Close::Local => {}
            Close::Refused(error) | Close::Failed(error) => {
                self.complain(io, client, &error.to_string());
            }
            Close::Idle | Close::Overflow | Close::Still => {
                self.complain(io, client, "it was closed");
            }
        }
        let failed = self.connections[client].in_flight.len();
        self.fail_in_flight(client);
        let was_open = self.connections[client].id.take().is_some();
        if was_open && let Some(recorder) = &mut self.recorder {
            recorder.connections -= 1;
            recorder.gauges.losses += 1;
        }
        if failed > 0 || !was_open {
            self.is_cut(client);
        }
        if let Pace::Closed(_) = self.run.plan.pace {
            self.connections[client].stranded += failed;
        }
        self.connect_later(io, client);
        self.finish_when_drained(io);
    }

    fn on_timer(&mut self, io: &mut Io, key: u64) {
        let which = (key & u64::from(u32::MAX)) as usize;
        match (key & !u64::from(u32::MAX), self.phase) {
            (START, Phase::Waiting) => self.begin(io),
            (SECOND, Phase::Running | Phase::Draining) => {
                let now = Moment::now();
                self.gauge();
                if let Some(recorder) = &mut self.recorder {
                    recorder.cut(now);
                }
                io.timer(now.next_second(), SECOND);
            }
            (END, Phase::Running) => self.drain(io, self.end),
            (DRAIN_OVER, Phase::Draining) => self.give_up_waiting(io),
            (RECONNECT, _) if self.is_wanted(which) => self.connect(io, which),
            (THOUGHT, Phase::Running) => self.thought(io, which),
            (ARRIVAL, Phase::Running | Phase::Draining) => self.send_due(io, which),
            _ => {}
        }
    }

    fn on_shutdown(&mut self, io: &mut Io) {
        let now = Instant::now();
        match self.phase {
            Phase::Waiting => {
                self.run.interrupted.store(true, Ordering::Relaxed);
                if self.opened < self.connections.len() {
                    // The run waits for the connections.
                    let _ = self.run.ready.send(Err(Error::Interrupted));
                }
                io.stop();
            }
            Phase::Running => {
                // After `end` this is no interruption: another thread has finished, and ends all threads.
                if now < self.end {
                    self.run.interrupted.store(true, Ordering::Relaxed);
                }
                self.drain(io, now.min(self.end));
            }
            Phase::Draining | Phase::Done => {}
        }
    }
}
