//! The life of a thread: connect, wait for the start, run, wait for the last answers.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use knee_telemetry::{Load, Moment, Recorder};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::calls::Calls;
use super::thread::{Link, Member, Thread};
use crate::error::{Error, Unusable};
use crate::open_loop;
use crate::run::{CONNECT_TIMEOUT, Pace, Run};

/// The events that all threads wait for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Orders {
    /// Whether the run's start is known.
    pub(super) start: bool,
    /// Whether the run is to end at once.
    pub(super) end: bool,
}

/// Runs the clients of thread number `number`.
///
/// # Errors
/// When the system refuses something.
pub(super) fn run<C: Calls>(
    run: Arc<Run>,
    calls: Arc<C>,
    recorder: Recorder<Load>,
    number: usize,
    orders: watch::Receiver<Orders>,
) -> Result<(), Error> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.map_err(Error::System)?.block_on(live(run, calls, recorder, number, orders))
}

async fn live<C: Calls>(
    run: Arc<Run>,
    calls: Arc<C>,
    recorder: Recorder<Load>,
    number: usize,
    mut orders: watch::Receiver<Orders>,
) -> Result<(), Error> {
    let mut end = orders.clone();
    // The sender outlives the threads.
    let end = async { drop(end.wait_for(|orders| orders.end).await) };
    tokio::pin!(end);
    let met = tokio::select! {
        met = meet(&run, &calls, number) => met,
        () = &mut end => Err(interrupted(&run)),
    };
    let members = match met {
        Ok(members) => members,
        Err(error) => {
            // If there is no receiver, the run has failed already.
            let _ = run.ready.send(Err(error));
            return Ok(());
        }
    };
    let thread = Thread::new(Arc::clone(&run), calls, members, recorder, number);
    let thread = Rc::new(thread.map_err(Error::System)?);
    let ringing = Rc::clone(&thread);
    spawn_local(async move { ringing.alarms.ring().await });
    let _ = run.ready.send(Ok(()));
    let started = async {
        drop(orders.wait_for(|orders| orders.start).await);
        // The start is set before the order is sent.
        let start = run.start.get().copied().unwrap_or_else(Instant::now);
        thread.alarms.until(start).await;
        start
    };
    let start = tokio::select! {
        start = started => start,
        () = &mut end => {
            interrupted(&run);
            return Ok(());
        }
    };
    thread.begin(start);
    let cutting = Rc::clone(&thread);
    spawn_local(async move { cutting.cut_every_second().await });
    let due = start + run.plan.length;
    tokio::select! {
        () = thread.alarms.until(due) => {}
        () = end => drop(interrupted(&run)),
    }
    thread.drain(Instant::now().min(due)).await;
    thread.finish();
    Ok(())
}

fn interrupted(run: &Run) -> Error {
    run.interrupted.store(true, Ordering::Relaxed);
    Error::Interrupted
}

/// Connects all clients of a thread at the same time, and makes their first calls.
async fn meet<C: Calls>(
    run: &Arc<Run>,
    calls: &Arc<C>,
    number: usize,
) -> Result<Vec<Member<C>>, Error> {
    let plan = &run.plan;
    let opening: Vec<_> = plan
        .clients_of(number)
        .map(|number| {
            let server = open_loop::server_of(number, plan.servers.len());
            let address = plan.servers[server];
            let (run, calls) = (Arc::clone(run), Arc::clone(calls));
            let met = spawn_local(async move {
                let introduced = async {
                    let mut link = Link::<C>::open(address).await?;
                    let client = calls.introduce(server, number, &mut link.stub).await?;
                    Ok((link, client))
                };
                let introduced = timeout(CONNECT_TIMEOUT, introduced).await;
                let introduced = introduced.unwrap_or(Err(Unusable::Silent(CONNECT_TIMEOUT)));
                if introduced.is_ok() {
                    run.count_open(server);
                }
                introduced
            });
            (server, address, met)
        })
        .collect();
    let mut members = Vec::with_capacity(opening.len());
    for (server, address, met) in opening {
        let met = met.await.unwrap_or_else(|error| Err(Unusable::Unconnected(error.to_string())));
        let (link, client) = met.map_err(|why| Error::Connect { server: address, why })?;
        members.push(Member::new(server, address, link, client));
    }
    Ok(members)
}

impl<C: Calls> Thread<C> {
    fn begin(self: &Rc<Self>, start: Instant) {
        self.record(|recorder| recorder.begin(Moment::now()));
        self.start.set(start);
        self.runs.set(true);
        match self.run.plan.pace {
            Pace::Closed(think) => {
                for client in 0..self.members.len() {
                    spawn_local(Rc::clone(self).ask_in_turn(client, think));
                }
            }
            Pace::Open(_) => {
                for client in 0..self.members.len() {
                    self.note_room(client, start);
                }
                for server in 0..self.run.plan.servers.len() {
                    spawn_local(Rc::clone(self).ask_on_schedule(server));
                }
            }
        }
    }

    async fn cut_every_second(&self) {
        let mut now = Moment::now();
        loop {
            self.alarms.until(now.next_second()).await;
            now = Moment::now();
            self.gauge();
            self.record(|recorder| recorder.cut(now));
        }
    }

    /// Ends the schedule at `now`. Requests that are due already are still sent. Waits for answers, at most for the
    /// drain time.
    async fn drain(&self, now: Instant) {
        self.runs.set(false);
        for destination in &mut *self.destinations.borrow_mut() {
            destination.arrivals.stop_at(now.saturating_duration_since(self.start.get()));
        }
        if self.is_drained() {
            return;
        }
        tokio::select! {
            () = self.drained.notified() => {}
            () = self.alarms.until(now + self.run.plan.drain) => self.give_up(),
        }
    }

    /// Counts requests without an answer as errors.
    fn give_up(&self) {
        let now = Instant::now();
        let left = std::mem::take(&mut *self.in_flight.borrow_mut());
        self.run.unanswered.fetch_add(left.len() as u64, Ordering::Relaxed);
        self.record(|recorder| recorder.gauges.unanswered += left.len() as u64);
        left.values().for_each(|sent| self.record_failure(sent, now));
    }

    fn finish(&self) {
        for client in 0..self.members.len() {
            // Without requests, the loss of a connection is noticed only here.
            self.loses(client);
        }
        let mut destinations = self.destinations.borrow_mut();
        let unsent: u64 = destinations.iter_mut().map(|server| server.arrivals.abandon()).sum();
        self.run.unsent.fetch_add(unsent, Ordering::Relaxed);
        self.run.timed_sends.fetch_add(self.timed_sends.get(), Ordering::Relaxed);
        self.run.own_late_sends.fetch_add(self.own_late_sends.get(), Ordering::Relaxed);
        self.gauge();
        if let Some(recorder) = self.recorder.take() {
            recorder.finish(Moment::now());
        }
    }
}
