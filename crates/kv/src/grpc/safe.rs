//! Answers wait here until what they tell of is on the disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use tonic::Status;

use super::refusal::unwritable;
use crate::versioned::{Store, Unwritable};

/// One thread that syncs for all who wait, so that nobody blocks a thread of the runtime: whoever
/// comes while the disk is busy is served by the next turn.
#[derive(Debug, Clone)]
pub(super) struct Safe {
    store: Store,
    /// Nothing tells the thread to end.
    waiting: Sender<Option<Waiting>>,
    /// The last commit that is known to be safe.
    synced: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Waiting {
    sequence: u64,
    answer: oneshot::Sender<Result<(), Unwritable>>,
}

impl Safe {
    /// Starts the thread; it ends with [`Safe::end`].
    pub(super) fn new(store: Store) -> io::Result<(Safe, JoinHandle<()>)> {
        let (waiting, waiters) = channel();
        let synced = Arc::new(AtomicU64::new(0));
        let safe = Safe { store: store.clone(), waiting, synced: Arc::clone(&synced) };
        let run = move || serve(&store, &waiters, &synced);
        let thread = std::thread::Builder::new().name("sync".to_owned()).spawn(run)?;
        Ok((safe, thread))
    }

    /// Ends the thread. Who still waits is told that the server ends.
    pub(super) fn end(&self) {
        // It has ended if nobody listens.
        let _ = self.waiting.send(None);
    }

    /// Waits until a commit is as safe as the store was asked to make it.
    pub(super) async fn wait(&self, sequence: u64) -> Result<(), Status> {
        if self.synced.load(Ordering::Acquire) >= sequence {
            return Ok(());
        }
        let gone = || Status::unavailable("the server ends");
        let (answer, answered) = oneshot::channel();
        self.waiting.send(Some(Waiting { sequence, answer })).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?.map_err(|why| unwritable(&why))
    }

    /// Waits for everything that was committed so far: for answers that tell of what is not there, or
    /// of more than one commit.
    pub(super) async fn wait_for_all(&self) -> Result<(), Status> {
        // A local: the snapshot must not be kept while this waits.
        let last = self.store.snapshot().sequence();
        self.wait(last).await
    }
}

fn serve(store: &Store, waiters: &Receiver<Option<Waiting>>, synced: &AtomicU64) {
    let mut ends = false;
    while !ends && let Ok(Some(first)) = waiters.recv() {
        let mut turn = vec![first];
        turn.extend(waiters.try_iter().map_while(|waiting| {
            ends = waiting.is_none();
            waiting
        }));
        let last = turn.iter().map(|waiting| waiting.sequence).max().unwrap_or(0);
        let outcome = store.sync(last);
        if outcome.is_ok() {
            synced.fetch_max(last, Ordering::Release);
        }
        for Waiting { sequence, answer } in turn {
            // Where the disk failed, some of them may have been safe before.
            let safe = if outcome.is_ok() { Ok(()) } else { store.sync(sequence) };
            // Who does not wait any more is not told.
            let _ = answer.send(safe);
        }
    }
}
