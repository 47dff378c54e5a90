//! The life of a thread: connect and register, wait for the start, run, wait for the last answers.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use knee_random::Random;
use knee_telemetry::{Load, Moment, Recorder};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;

use super::super::call::{Standing, connect, register};
use super::super::talk::Talk;
use super::super::{Everybody, Identity, Workload};
use super::{Speaker, Thread};
use crate::backoff::Backoff;
use crate::error::{Error, Unusable};
use crate::kv::grpc::Told;
use crate::open_loop;
use crate::run::{Pace, Run};

/// Streams of what clients draw, apart from those of when they ask.
const TALK_STREAMS: u64 = 1 << 61;

/// Runs the clients of thread number `number`.
///
/// # Errors
/// When the system refuses something.
pub(crate) fn run(
    run: Arc<Run>,
    workload: Workload,
    everybody: Arc<Everybody>,
    recorder: Recorder<Load>,
    number: usize,
    told: watch::Receiver<Told>,
) -> Result<(), Error> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.map_err(Error::System)?.block_on(live(run, workload, everybody, recorder, number, told))
}

async fn live(
    run: Arc<Run>,
    workload: Workload,
    everybody: Arc<Everybody>,
    mut recorder: Recorder<Load>,
    number: usize,
    mut told: watch::Receiver<Told>,
) -> Result<(), Error> {
    let mut ends = told.clone();
    // Who tells lives longer than who is told.
    let ends = async { drop(ends.wait_for(|told| told.ends).await) };
    tokio::pin!(ends);
    let met = tokio::select! {
        met = meet(&run, workload, &everybody, number) => met,
        () = &mut ends => {
            run.interrupted.store(true, Ordering::Relaxed);
            Err(Error::Interrupted)
        }
    };
    let (met, speakers) = match met {
        Ok(speakers) => (Ok(()), speakers),
        Err(error) => (Err(error), Vec::new()),
    };
    let stands = met.is_ok();
    // Without a receiver the run is being given up already.
    let _ = run.standing.send(met);
    if !stands {
        return Ok(());
    }
    recorder.connections = speakers.len() as u64;
    tokio::select! {
        _ = told.wait_for(|told| told.starts) => {}
        () = &mut ends => {
            run.interrupted.store(true, Ordering::Relaxed);
            return Ok(());
        }
    }
    // It was set before that was told; and by then everybody is there.
    let start = run.start.get().copied().unwrap_or_else(Instant::now);
    let everybody = everybody.lock().clone();
    let thread = Thread::new(run, speakers, everybody, recorder, number, start);
    let thread = Rc::new(thread.map_err(Error::System)?);
    let ringing = Rc::clone(&thread);
    spawn_local(async move { ringing.alarms.ring().await });
    tokio::select! {
        () = thread.alarms.until(start) => {}
        () = &mut ends => {
            thread.run.interrupted.store(true, Ordering::Relaxed);
            return Ok(());
        }
    }
    let end = start + thread.run.plan.length;
    thread.begin();
    let cutting = Rc::clone(&thread);
    spawn_local(async move { cutting.cut_every_second().await });
    tokio::select! {
        () = thread.alarms.until(end) => {}
        () = ends => thread.run.interrupted.store(true, Ordering::Relaxed),
    }
    thread.drain(Instant::now().min(end)).await;
    thread.finish();
    Ok(())
}

/// Connects a client to its server, where it is known, or registered.
async fn introduce(
    address: SocketAddr,
    server: usize,
    number: u64,
    everybody: &Everybody,
) -> Result<(Standing, Identity), Unusable> {
    let mut standing = connect(address).await?;
    let identity = match everybody.earlier(number) {
        Some(identity) => {
            everybody.known_at(server, &mut standing).await?;
            identity
        }
        None => register(&mut standing).await?,
    };
    Ok((standing, identity))
}

/// Connects and registers all clients of a thread.
async fn meet(
    run: &Arc<Run>,
    workload: Workload,
    everybody: &Arc<Everybody>,
    number: usize,
) -> Result<Vec<Speaker>, Error> {
    let plan = &run.plan;
    let opening: Vec<_> = plan
        .clients_of(number)
        .map(|number| {
            let server = open_loop::server_of(number, plan.servers.len());
            let address = plan.servers[server];
            let (run, everybody) = (Arc::clone(run), Arc::clone(everybody));
            let opened = tokio::spawn(async move {
                let introduced = introduce(address, server, number, &everybody).await;
                if introduced.is_ok() {
                    run.stands(server);
                }
                introduced
            });
            (number, server, address, opened)
        })
        .collect();
    let mut speakers = Vec::with_capacity(opening.len());
    for (number, server, address, opened) in opening {
        let opened = opened.await;
        let opened = opened.unwrap_or_else(|error| Err(Unusable::Unconnected(error.to_string())));
        let (standing, identity) = opened.map_err(|why| Error::Connect { server: address, why })?;
        everybody.lock().push(identity.client);
        let random = Random::stream(plan.seed, TALK_STREAMS | number);
        speakers.push(Speaker {
            server,
            address,
            talk: RefCell::new(Talk::new(workload, identity, random)),
            standing: RefCell::new(Some(standing)),
            backoff: Backoff::new(Instant::now()),
            in_flight: Cell::default(),
        });
    }
    Ok(speakers)
}

impl Thread {
    fn begin(self: &Rc<Self>) {
        self.record(|recorder| recorder.begin(Moment::now()));
        match self.run.plan.pace {
            Pace::Closed(think) => {
                for speaker in 0..self.speakers.len() {
                    spawn_local(Rc::clone(self).ask_in_turn(speaker, think));
                }
            }
            Pace::Open(_) => {
                for speaker in 0..self.speakers.len() {
                    self.has_room(speaker, self.start);
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
        self.runs.set(false);
        for destination in &mut *self.destinations.borrow_mut() {
            destination.arrivals.stop_at(now.saturating_duration_since(self.start));
        }
        if self.is_drained() {
            return;
        }
        tokio::select! {
            () = self.drained.notified() => {}
            () = self.alarms.until(now + self.run.plan.drain) => self.give_up(),
        }
    }

    /// What has no answer by now is an error.
    fn give_up(&self) {
        let now = Instant::now();
        let left = std::mem::take(&mut *self.in_flight.borrow_mut());
        self.run.unanswered.fetch_add(left.len() as u64, Ordering::Relaxed);
        left.values().for_each(|asked| self.record_answer(asked, now, None));
    }

    fn finish(&self) {
        for speaker in 0..self.speakers.len() {
            // While nothing is asked of it, nobody notices.
            self.loses(speaker);
        }
        let mut destinations = self.destinations.borrow_mut();
        let unsent: u64 = destinations.iter_mut().map(|server| server.arrivals.abandon()).sum();
        self.run.unsent.fetch_add(unsent, Ordering::Relaxed);
        self.run.timed_sends.fetch_add(self.timed_sends.get(), Ordering::Relaxed);
        self.run.own_late_sends.fetch_add(self.own_late_sends.get(), Ordering::Relaxed);
        if let Some(mut recorder) = self.recorder.take() {
            recorder.gauges.in_flight = self.in_flight.borrow().len() as u64;
            recorder.finish(Moment::now());
        }
    }
}
