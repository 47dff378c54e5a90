//! A request waits for a worker, then goes to the database.

use std::sync::Arc;
use std::time::Instant;

use tonic::Status;

use super::meter::{Call, Doing, Meter};
use super::refusal::{overloaded, unanswered};
use crate::database::{Database, Failure};
use crate::operation::{Answer, Request};
use crate::slots::{Slot, Slots};

/// The workers of a middleware and their database.
#[derive(Debug)]
pub(super) struct Asking<D> {
    pub(super) database: Arc<D>,
    pub(super) workers: Arc<Slots>,
    pub(super) meter: Arc<Meter>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Unasked {
    /// Too many requests wait for a worker.
    Refused(Status),
    Failed(Failure),
}

impl From<Unasked> for Status {
    fn from(unasked: Unasked) -> Status {
        match unasked {
            Unasked::Refused(status) => status,
            Unasked::Failed(failure) => unanswered(failure),
        }
    }
}

impl<D: Database> Asking<D> {
    /// Waits for a worker and asks the database, for a call that has just arrived.
    pub(super) async fn ask(&self, call: &mut Call, request: Request) -> Result<Answer, Status> {
        let since = call.received;
        Ok(self.ask_since(call, since, request).await?)
    }

    /// The same for a call whose wait for a worker began at `since`.
    pub(super) async fn ask_since(
        &self,
        call: &mut Call,
        since: Instant,
        request: Request,
    ) -> Result<Answer, Unasked> {
        let worker = self.worker().await?;
        self.ask_by(worker, call, since, request).await
    }

    /// Asks the database, for a call that already has a worker.
    pub(super) async fn ask_by(
        &self,
        worker: Slot,
        call: &mut Call,
        since: Instant,
        request: Request,
    ) -> Result<Answer, Unasked> {
        let dequeued = worker.since();
        let _working = self.meter.does_from(dequeued, Doing::Working);
        call.dequeued(since, dequeued);
        let outcome = self.database.call(request, call.stages()).await;
        call.was_answered();
        outcome.map_err(Unasked::Failed)
    }

    pub(super) async fn worker(&self) -> Result<Slot, Unasked> {
        if let Some(worker) = self.workers.try_take() {
            return Ok(worker);
        }
        let queueing = self.meter.does(Doing::Queueing);
        let worker =
            self.workers.take().await.map_err(|full| Unasked::Refused(overloaded(full)))?;
        queueing.until(worker.since());
        Ok(worker)
    }
}
