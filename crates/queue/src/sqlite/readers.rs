//! Reads that run during writes, over their own connections.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rusqlite::Connection;
use tokio::sync::Semaphore;
use tokio::task;

use super::failure::failure;
use super::file::connect;
use super::reads;
use crate::database::{Failure, Stages};
use crate::operation::{Answer, Request};

/// Largest number of reads at a time.
const READERS: usize = 4;

/// Read-only connections.
#[derive(Debug)]
pub(super) struct Readers {
    /// Each permit allows a connection of `idle`.
    turns: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn open(file: &Path) -> Result<Readers, Failure> {
        let mut idle = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let connection = connect(Some(file))?;
            connection.pragma_update(None, "query_only", true).map_err(failure)?;
            idle.push(connection);
        }
        Ok(Readers { turns: Arc::new(Semaphore::new(READERS)), idle: Arc::new(Mutex::new(idle)) })
    }

    pub(super) async fn call(
        &self,
        request: Request,
        stages: &mut Stages,
    ) -> Result<Answer, Failure> {
        let (answer, connected) = self
            .with(move |connection| {
                let connected = Instant::now();
                // All queries of the answer read one snapshot.
                let answer = connection
                    .unchecked_transaction()
                    .map_err(failure)
                    .and_then(|transaction| reads::answer(&transaction, &request));
                (answer, connected)
            })
            .await?;
        stages.connected = Some(connected);
        stages.answered = Some(Instant::now());
        answer
    }

    async fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let broken = || Failure::Broken("a read of SQLite ended without an answer".to_owned());
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| broken())?;
        let idle = Arc::clone(&self.idle);
        task::spawn_blocking(move || {
            let taken = || idle.lock().unwrap_or_else(PoisonError::into_inner);
            let connection = taken().pop()?;
            let done = act(&connection);
            taken().push(connection);
            // Release the permit only now, even if the client has left.
            drop(turn);
            Some(done)
        })
        .await
        .ok()
        .flatten()
        .ok_or_else(broken)
    }
}
