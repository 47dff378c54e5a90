//! Holds answers back until the commits that they reflect are synced.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use knee_kv_store::{Store, Unwritable};
use knee_server::Shards;
use knee_telemetry::Store as Recorded;
use tokio::sync::oneshot;
use tonic::Status;

use super::refusal::unwritable;

/// A thread that syncs for all calls, so that no call blocks a thread of the runtime. Calls that arrive during a sync
/// share the next one.
#[derive(Debug, Clone)]
pub(super) struct Safe {
    store: Store,
    /// `None` ends the thread.
    waiting: Sender<Option<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    sequence: u64,
    answer: oneshot::Sender<Result<(), Unwritable>>,
}

impl Safe {
    /// Starts the thread; it ends with [`Safe::end`].
    pub(super) fn new(
        store: Store,
        shards: Arc<Shards<Recorded>>,
    ) -> io::Result<(Safe, JoinHandle<()>)> {
        let (waiting, waiters) = channel();
        let safe = Safe { store: store.clone(), waiting };
        let run = move || {
            shards.thread_begins();
            serve(&store, &waiters);
            shards.thread_ends();
        };
        let thread = std::thread::Builder::new().name("sync".to_owned()).spawn(run)?;
        Ok((safe, thread))
    }

    /// Ends the thread; calls that still wait fail.
    pub(super) fn end(&self) {
        // Sending fails if the thread has ended.
        let _ = self.waiting.send(None);
    }

    /// Waits until a commit is as durable as configured. Most reads need not wait.
    pub(super) async fn wait(&self, sequence: u64) -> Result<(), Status> {
        if self.store.synced() >= sequence {
            return Ok(());
        }
        let gone = || Status::unavailable("the server ends");
        let (answer, answered) = oneshot::channel();
        self.waiting.send(Some(Waiting { sequence, answer })).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?.map_err(|why| unwritable(&why))
    }

    /// Waits for all commits so far, for answers that depend on more than one.
    pub(super) async fn wait_for_all(&self) -> Result<(), Status> {
        self.wait(self.store.last()).await
    }
}

fn serve(store: &Store, waiters: &Receiver<Option<Waiting>>) {
    let mut ends = false;
    while !ends && let Ok(Some(first)) = waiters.recv() {
        let mut group = vec![first];
        group.extend(waiters.try_iter().map_while(|waiting| {
            ends = waiting.is_none();
            waiting
        }));
        // Usually the first sync has the commits of all.
        for Waiting { sequence, answer } in group {
            // Sending fails if the call was cancelled.
            let _ = answer.send(store.sync(sequence));
        }
    }
}
