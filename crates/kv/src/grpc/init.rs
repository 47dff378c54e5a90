//! `Init`: loads an edge list of the server into the store.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream::unfold;
use knee_kv_store::calendar::now;
use knee_kv_store::{Store, WriteError};
use knee_rpc::kv::InitResponse;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tonic::Status;

use super::beneath::open_beneath;
use super::blocking::blocking;
use super::refusal::{check_key, damaged, unwritable};
use crate::graph::{COMMIT_EDGES, LoadError, LoadOptions, MARK_PREFIX, Progress, load};

/// A lock, so that a single load runs at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Loads(Arc<Mutex<()>>);

/// A running load, as its stream sees it.
struct Loading {
    progress: watch::Receiver<Option<Progress>>,
    /// `None` after its outcome was sent. A stopped load has no outcome.
    load: Option<JoinHandle<Result<Option<Progress>, LoadError>>>,
}

impl Loads {
    /// Loads a file of `directory`, until it is done, the server ends or the client leaves.
    pub(super) async fn begin(
        &self,
        store: Store,
        directory: &Path,
        file: String,
        ending: watch::Receiver<bool>,
    ) -> Result<impl Stream<Item = Result<InitResponse, Status>> + Send + use<>, Status> {
        let Ok(guard) = Arc::clone(&self.0).try_lock_owned() else {
            return Err(Status::resource_exhausted(
                "another load is running, and one runs at a time: try again later",
            ));
        };
        check_key(format!("{MARK_PREFIX}{file}").as_bytes())?;
        let (directory, name) = (directory.to_owned(), file.clone());
        let list = blocking(move || open_beneath(&directory, &name)).await??;
        let (reports, progress) = watch::channel(None);
        let load = tokio::task::spawn_blocking(move || {
            // Hold the lock to the end of the load, even if the client leaves.
            let _guard = guard;
            let stops = || reports.is_closed() || *ending.borrow();
            let options = LoadOptions { name: &file, commit_edges: COMMIT_EDGES, now };
            let mut stopped = false;
            let loaded = load(&store, list, &options, |progress| {
                reports.send_replace(Some(*progress));
                stopped = stops();
                if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            match loaded {
                Ok(_) if stopped => Ok(None),
                loaded => loaded.map(Some),
            }
        });
        Ok(unfold(Loading { progress, load: Some(load) }, Loading::next))
    }
}

impl Loading {
    async fn next(mut self) -> Option<(Result<InitResponse, Status>, Loading)> {
        self.load.as_ref()?;
        while self.progress.changed().await.is_ok() {
            let progress = *self.progress.borrow_and_update();
            if let Some(progress) = progress {
                return Some((Ok(response(&progress, false)), self));
            }
        }
        let outcome = match self.load.take()?.await {
            Ok(Ok(Some(progress))) => Ok(response(&progress, true)),
            Ok(Ok(None)) => {
                Err(Status::unavailable("the server ends: the same call continues the load later"))
            }
            Ok(Err(error)) => Err(unloaded(&error)),
            Err(_) => Err(Status::internal("the load failed in the server")),
        };
        Some((outcome, self))
    }
}

fn response(progress: &Progress, done: bool) -> InitResponse {
    let Progress { position, resumed, elapsed } = progress;
    InitResponse {
        lines: position.lines,
        edges: position.edges,
        bytes: position.bytes,
        resumed_edges: resumed.edges,
        edges_per_s: progress.edges_per_s(),
        seconds: elapsed.as_secs_f64(),
        done,
    }
}

fn unloaded(error: &LoadError) -> Status {
    match error {
        LoadError::Write(WriteError::Log(why)) => unwritable(why),
        LoadError::Write(WriteError::Damage(damage)) => damaged(damage),
        LoadError::Line(_) => Status::invalid_argument(error.to_string()),
        LoadError::TooLarge(_) => {
            Status::invalid_argument(format!("{error} by the server's --value-bytes-max"))
        }
        LoadError::Concurrent | LoadError::Cleared => Status::aborted(error.to_string()),
        LoadError::Io(_) | LoadError::Changed(_) | LoadError::Mark | LoadError::Write(_) => {
            Status::failed_precondition(error.to_string())
        }
    }
}
