//! The closed loop: a client sends a request, waits for the answer, thinks, and sends the next request.

use std::rc::Rc;
use std::time::{Duration, Instant};

use knee_telemetry::elapsed_ns;

use super::calls::Calls;
use super::thread::{Outcome, Thread};
use crate::schedule::{self, Think};

impl<C: Calls> Thread<C> {
    /// Sends a client's requests, one after the other.
    pub(super) async fn ask_in_turn(self: Rc<Self>, client: usize, think: Think) {
        let number = self.first + client as u64;
        let mut random = schedule::thinking(self.run.plan.seed, number);
        let mut request = self.next(client);
        let mut due = self.start.get().max(Instant::now());
        let mut thought = self.run.plan.begins_after(number) + think.remainder(&mut random);
        loop {
            if !thought.is_zero() {
                due += thought;
                self.alarms.until(due).await;
                let late_ns = elapsed_ns(due, Instant::now());
                self.sent_late(late_ns, late_ns);
            }
            // The end may come while the connection is opened again.
            if !self.runs.get() || !self.ensure_open(client).await || !self.runs.get() {
                return;
            }
            let Some(call) = self.call(client, client, request, due) else { return };
            if let Outcome::Lost(again) = self.finish_call(call).await {
                // The client sends as soon as the connection is open again, without a think time.
                if !self.ensure_open(client).await {
                    return;
                }
                request = again.map_or_else(|| self.next(client), |again| again.request);
                (due, thought) = (Instant::now(), Duration::ZERO);
                continue;
            }
            due = Instant::now();
            // Making a large request takes long; that time is part of the think time, not of the response time.
            request = self.next(client);
            thought = think.next(&mut random);
            if thought.is_zero() {
                due = Instant::now();
            } else {
                self.record(|recorder| recorder.gauges.thought(thought.as_nanos() as u64));
            }
        }
    }

    /// Opens a client's connection again if it was lost. Returns whether the connection is open.
    async fn ensure_open(&self, client: usize) -> bool {
        if self.loses(client) {
            self.reconnect(client).await;
        }
        self.members[client].is_open()
    }
}
