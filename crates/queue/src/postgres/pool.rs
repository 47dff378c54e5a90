//! A pool of connections, granted in the order of the requests.
//!
//! This is not a library's pool: it combines waiting requests (see `combine`), and a lost connection voids the floors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use super::address::{Address, DURABLE};
use super::failure;
use super::floors::Floors;
use super::statements::Statements;
use crate::database::Failure;
use crate::slots::{Slot, Slots};

/// Connections, open or to be opened.
#[derive(Debug)]
pub(super) struct Pool {
    address: Address,
    slots: Arc<Slots>,
    /// How long a request waits for a slot.
    wait: Duration,
    /// A stack: superfluous connections at its bottom grow old and are closed.
    idle: Mutex<Vec<Idle>>,
    floors: Arc<Floors>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    statements: Statements,
    /// The task that sends and receives.
    task: AbortHandle,
    /// Whether the task's abort was requested; the abort takes effect later.
    is_given_up: AtomicBool,
}

impl Connection {
    fn is_open(&self) -> bool {
        !self.client.is_closed() && !self.is_given_up.load(Ordering::Relaxed)
    }
}

/// Voids the floors when a connection is gone.
#[derive(Debug)]
struct Forgets(Arc<Floors>);

impl Drop for Forgets {
    fn drop(&mut self) {
        self.0.forget();
    }
}

impl Pool {
    pub(super) fn new(
        address: Address,
        connections: usize,
        wait: Duration,
        idle_max: Option<Duration>,
        floors: Arc<Floors>,
    ) -> Arc<Pool> {
        let pool = Arc::new(Pool {
            address,
            slots: Slots::new(connections, usize::MAX),
            wait,
            idle: Mutex::default(),
            floors,
        });
        if let Some(idle_max) = idle_max {
            tokio::spawn(close_idle(Arc::downgrade(&pool), idle_max));
        }
        pool
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// When no connection becomes free in time, or none can be opened.
    pub(super) async fn take(self: &Arc<Pool>) -> Result<Held, Failure> {
        let Ok(Ok(slot)) = timeout(self.wait, self.slots.take()).await else {
            return Err(Failure::TooLate(format!(
                "no connection to the database was free within {:?}: try again later, or raise --connections",
                self.wait
            )));
        };
        let pool = Arc::clone(self);
        if let Some(connection) = self.reuse() {
            let since = slot.since();
            return Ok(Held { connection: Some(connection), since, pool, _slot: slot });
        }
        // Use a task: if the request is dropped, the next one gets the connection.
        let opened = tokio::spawn(async move {
            let connection = Some(pool.open().await?);
            Ok(Held { connection, since: Instant::now(), pool, _slot: slot })
        });
        opened.await.unwrap_or_else(|ended| {
            Err(Failure::Unavailable(format!("no connection to the database was opened: {ended}")))
        })
    }

    fn reuse(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(Idle { connection, .. }) = idle.pop() {
            if connection.is_open() {
                return Some(connection);
            }
        }
        None
    }

    async fn open(&self) -> Result<Connection, Failure> {
        let (client, connection) = self.address.connect().await?;
        let forgets = Forgets(Arc::clone(&self.floors));
        let task = tokio::spawn(async move {
            let _forgets = forgets;
            // The calls report its errors.
            let _ = connection.await;
        });
        let task = task.abort_handle();
        let prepared = self.address.in_time(async {
            tokio::try_join!(client.batch_execute(DURABLE), Statements::prepare(&client))
                .map_err(|error| failure::opening(&error))
        });
        // Otherwise the task would never stop waiting for the answers.
        let ((), statements) = prepared.await.inspect_err(|_| task.abort())?;
        Ok(Connection { client, statements, task, is_given_up: AtomicBool::new(false) })
    }
}

/// A connection and its slot.
#[derive(Debug)]
pub(super) struct Held {
    /// `Some` until the drop.
    connection: Option<Connection>,
    since: Instant,
    pool: Arc<Pool>,
    _slot: Slot,
}

impl Held {
    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("it is there until the drop")
    }

    /// When the connection became busy.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn statements(&self) -> &Statements {
        &self.connection().statements
    }

    /// Calls a function, within the time limit for an answer. Closes an unusable connection.
    pub(super) async fn rows(
        &self,
        function: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Result<Vec<Row>, Error>, Elapsed> {
        let Connection { client, task, is_given_up, .. } = self.connection();
        let called = timeout(self.pool.address.answer_max(), client.query(function, values)).await;
        // The connection closes itself, but the next request might get it before that.
        if called.as_ref().map_or(true, |rows| rows.as_ref().is_err_and(failure::ends_connection)) {
            is_given_up.store(true, Ordering::Relaxed);
            task.abort();
        }
        called
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take().filter(Connection::is_open) else {
            return;
        };
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(Idle { connection, since: Instant::now() });
    }
}

/// Closes connections that were unused for `idle_max`, but keeps at least one idle connection.
async fn close_idle(pool: Weak<Pool>, idle_max: Duration) {
    loop {
        sleep(idle_max / 2).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let old = idle.iter().take_while(|idle| idle.since.elapsed() >= idle_max).count();
        let kept = usize::from(old == idle.len());
        idle.drain(..old - kept.min(old));
    }
}
