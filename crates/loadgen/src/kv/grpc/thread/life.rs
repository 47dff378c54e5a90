//! The life of a thread: connect, wait for the start, run, wait for the last answers.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use knee_telemetry::{Load, Moment, Recorder};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;

use super::super::Told;
use super::super::link::{Standing, connect};
use super::{IDLE_LOSS, Phase, Thread};
use crate::error::{Error, Unusable};
use crate::kv::workload::Workload;
use crate::run::{Pace, Run};

/// Runs the clients of thread number `number`. `process` tells this process's writes from others';
/// without it they have no ids.
///
/// # Errors
/// When the system refuses something.
pub(crate) fn run(
    run: Arc<Run>,
    workload: Arc<Workload>,
    recorder: Recorder<Load>,
    number: usize,
    process: Option<u64>,
    told: watch::Receiver<Told>,
) -> Result<(), Error> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.map_err(Error::System)?.block_on(async {
        let thread = Thread::new(run, workload, recorder, number, process);
        let thread = Rc::new(thread.map_err(Error::System)?);
        let ringing = Rc::clone(&thread);
        spawn_local(async move { ringing.alarms.ring().await });
        live(&thread, told).await;
        Ok(())
    })
}

async fn live(thread: &Rc<Thread>, mut told: watch::Receiver<Told>) {
    let standing = &thread.run.standing;
    let mut ends = told.clone();
    // Who tells lives longer than who is told.
    let ends = async { drop(ends.wait_for(|told| told.ends).await) };
    tokio::pin!(ends);
    let connected = tokio::select! {
        connected = thread.connect() => connected,
        () = &mut ends => {
            thread.run.interrupted.store(true, Ordering::Relaxed);
            Err(Error::Interrupted)
        }
    };
    let stands = connected.is_ok();
    // Without a receiver the run is being given up already.
    let _ = standing.send(connected);
    if !stands {
        return;
    }
    let started = async {
        drop(told.wait_for(|told| told.starts).await);
        // It was set before that was told.
        let start = thread.run.start.get().copied().unwrap_or_else(Instant::now);
        thread.alarms.until(start).await;
        start
    };
    let start = tokio::select! {
        start = started => start,
        () = &mut ends => {
            thread.run.interrupted.store(true, Ordering::Relaxed);
            return;
        }
    };
    let end = start + thread.run.plan.length;
    thread.begin(start);
    let cutting = Rc::clone(thread);
    spawn_local(async move { cutting.cut_every_second().await });
    tokio::select! {
        () = thread.alarms.until(end) => {}
        () = ends => thread.run.interrupted.store(true, Ordering::Relaxed),
    }
    thread.drain(Instant::now().min(end)).await;
    thread.finish();
}

impl Thread {
    /// Opens all connections.
    async fn connect(&self) -> Result<(), Error> {
        let opening = self.links.iter().map(|link| {
            let (run, server, address) = (Arc::clone(&self.run), link.server, link.address);
            tokio::spawn(async move {
                let connected = connect(address).await;
                if connected.is_ok() {
                    run.stands(server);
                }
                connected
            })
        });
        let opening: Vec<_> = opening.collect();
        for (link, opened) in self.links.iter().zip(opening) {
            let opened = opened.await;
            let opened =
                opened.unwrap_or_else(|error| Err(Unusable::Unconnected(error.to_string())));
            let stands = opened.map_err(|why| Error::Connect { server: link.address, why })?;
            *link.standing.borrow_mut() = Some(stands);
            link.backoff.tried(Instant::now());
            self.record(|recorder| recorder.connections += 1);
        }
        Ok(())
    }

    fn begin(self: &Rc<Self>, start: Instant) {
        self.record(|recorder| recorder.begin(Moment::now()));
        self.phase.set(Phase::Running);
        self.start.set(start);
        match self.run.plan.pace {
            Pace::Closed(think) => {
                for client in 0..self.links.len() {
                    spawn_local(Rc::clone(self).ask_in_turn(client, think));
                }
            }
            Pace::Open(_) => {
                for client in 0..self.links.len() {
                    self.has_room(client, start);
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
            self.record(|recorder| {
                recorder.gauges.in_flight = self.in_flight.borrow().len() as u64;
                recorder.cut(now);
            });
        }
    }

    /// From `now` on nothing becomes due; what is due already is still sent, and answers are waited
    /// for, but not for ever.
    async fn drain(&self, now: Instant) {
        self.phase.set(Phase::Draining);
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

    fn give_up(&self) {
        let now = Instant::now();
        let left = std::mem::take(&mut *self.in_flight.borrow_mut());
        self.run.unanswered.fetch_add(left.len() as u64, Ordering::Relaxed);
        for sent in left.values() {
            self.failed(sent, now);
        }
        let unsent: u64 =
            self.destinations.borrow_mut().iter_mut().map(|server| server.arrivals.abandon()).sum();
        self.run.unsent.fetch_add(unsent, Ordering::Relaxed);
    }

    fn finish(&self) {
        for link in &self.links {
            // While nothing is asked of it, nobody notices.
            let is_lost = link.standing.borrow_mut().as_mut().is_some_and(Standing::is_lost);
            if is_lost {
                self.lost(link, IDLE_LOSS);
            }
        }
        self.run.timed_sends.fetch_add(self.timed_sends.get(), Ordering::Relaxed);
        self.run.own_late_sends.fetch_add(self.own_late_sends.get(), Ordering::Relaxed);
        if let Some(mut recorder) = self.recorder.take() {
            recorder.gauges.in_flight = self.in_flight.borrow().len() as u64;
            recorder.finish(Moment::now());
        }
    }
}
