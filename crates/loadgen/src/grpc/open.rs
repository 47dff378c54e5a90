//! The open loop: requests go out when they are due, or as soon as a connection has room.

use std::rc::Rc;
use std::time::Instant;

use knee_telemetry::elapsed_ns;
use tokio::task::spawn_local;

use super::calls::Calls;
use super::thread::{Again, Outcome, Thread};

impl<C: Calls> Thread<C> {
    /// Sends the due requests of one server, and lost writes again.
    pub(super) async fn ask_on_schedule(self: Rc<Self>, server: usize) {
        while let Some(due) = self.wanted(server).await {
            let via = self.choose(server);
            let mut later = None;
            if via.is_none_or(|via| self.members[via].in_flight.get() > 0) {
                later = self.open_wanted(server);
            }
            let Some(via) = via else {
                // The next answer makes room, or the next connection that is opened again.
                match later {
                    None => self.freed[server].notified().await,
                    Some(later) => tokio::select! {
                        () = self.freed[server].notified() => {}
                        () = self.alarms.until(later) => {}
                    },
                }
                continue;
            };
            if let Some(Again { client, request }) = self.next_again(server) {
                self.ask_via(via, client, request, Instant::now());
                continue;
            }
            let (client, room_since) = {
                let destination = &mut self.destinations.borrow_mut()[server];
                let Some((_, client)) = destination.arrivals.pop() else { return };
                (client as usize, destination.room_since.unwrap_or(due))
            };
            let request = self.next(client);
            let now = Instant::now();
            self.sent_late(elapsed_ns(due, now), elapsed_ns(due.max(room_since), now));
            self.ask_via(via, client, request, due);
        }
    }

    fn ask_via(self: &Rc<Self>, via: usize, client: usize, request: C::Request, due: Instant) {
        let Some(call) = self.call(via, client, request, due) else { return };
        let thread = Rc::clone(self);
        spawn_local(async move {
            let outcome = thread.finish_call(call).await;
            if let Outcome::Lost(Some(again)) = outcome {
                let server = thread.members[via].server;
                thread.again.borrow_mut()[server].push_back(again);
                thread.freed[server].notify_one();
            }
            thread.is_answered(via);
        });
    }

    fn next_due(&self, server: usize) -> Option<Instant> {
        let next = self.destinations.borrow()[server].arrivals.next_due();
        next.map(|due| self.start.get() + due)
    }

    /// Waits until a request is due, or a write has to be sent again. Returns the due time, for a repeated write the
    /// current time, and `None` after the last request.
    async fn wanted(&self, server: usize) -> Option<Instant> {
        loop {
            if self.count_again(server) > 0 {
                return Some(Instant::now());
            }
            let freed = self.freed[server].notified();
            let Some(due) = self.next_due(server) else {
                if !self.runs.get() {
                    return None;
                }
                freed.await;
                continue;
            };
            tokio::select! {
                biased;
                () = self.alarms.until(due) => {}
                () = freed => continue,
            }
            // The end of the run may have dropped this request during the wait.
            if self.next_due(server) == Some(due) {
                return Some(due);
            }
        }
    }

    /// The number of writes to be sent again; 0 after the end.
    fn count_again(&self, server: usize) -> usize {
        if self.runs.get() { self.again.borrow()[server].len() } else { 0 }
    }

    fn next_again(&self, server: usize) -> Option<Again<C>> {
        self.again.borrow_mut()[server].pop_front().filter(|_| self.runs.get())
    }

    /// The connection for the next request to a server. Notices connections that were lost while idle.
    fn choose(&self, server: usize) -> Option<usize> {
        loop {
            let via = self.choose_maybe_lost(server)?;
            if !self.leaves_lost(via) {
                return Some(via);
            }
        }
    }

    fn choose_maybe_lost(&self, server: usize) -> Option<usize> {
        let pipeline = self.run.plan.pipeline;
        let room = |via: u32, below: usize| {
            let member = &self.members[via as usize];
            member.in_flight.get() < below && member.is_open()
        };
        let destination = &mut self.destinations.borrow_mut()[server];
        let via = destination.choice.take(|via| room(via, 1), |via| room(via, pipeline));
        if via.is_none() {
            destination.room_since = None;
        }
        via.map(|via| via as usize)
    }

    /// A call on a connection has its answer, or has failed.
    fn is_answered(&self, via: usize) {
        let member = &self.members[via];
        if self.leaves_lost(via) {
            // A waiting request may need the connection opened again.
            self.freed[member.server].notify_one();
        } else if member.is_open() {
            self.note_room(via, Instant::now());
        }
    }

    /// A connection has room for a request, or has been opened again.
    pub(super) fn note_room(&self, via: usize, now: Instant) {
        let member = &self.members[via];
        let destination = &mut self.destinations.borrow_mut()[member.server];
        if member.in_flight.get() == 0 {
            destination.choice.add_idle(via as u32);
        }
        if destination.room_since.is_none() {
            destination.room_since = Some(now);
            self.freed[member.server].notify_one();
        }
    }

    /// Whether a connection was lost. A lost connection is opened again only when a request needs it.
    fn leaves_lost(&self, via: usize) -> bool {
        let is_lost = self.loses(via);
        if is_lost {
            let server = self.members[via].server;
            self.destinations.borrow_mut()[server].lost.push_back(via as u32);
        }
        is_lost
    }

    /// Opens lost connections for requests that are due. Returns when more connections may be needed.
    fn open_wanted(self: &Rc<Self>, server: usize) -> Option<Instant> {
        let start = self.start.get();
        let now = Instant::now().saturating_duration_since(start);
        let again = self.count_again(server);
        let (wanted, later) = self.destinations.borrow_mut()[server].open_again(now, again);
        for via in wanted {
            let thread = Rc::clone(self);
            spawn_local(async move { thread.open_again(via as usize).await });
        }
        later.map(|later| start + later)
    }

    async fn open_again(&self, via: usize) {
        self.reconnect(via).await;
        let member = &self.members[via];
        self.destinations.borrow_mut()[member.server].opening -= 1;
        if member.is_open() {
            self.note_room(via, Instant::now());
        }
    }
}
