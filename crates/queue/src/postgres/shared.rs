//! State that requests and background jobs share.

use std::sync::Arc;
use std::time::Instant;

use super::calls::{self, Done};
use super::failure;
use super::floors::Floors;
use super::notifier::Notifier;
use super::outlasting::Outlasting;
use super::pool::Pool;
use crate::database::{Failure, Stages};
use crate::operation::{Answer, Request};
use crate::upkeep::Report;

/// The connections to a database, and their shared state.
#[derive(Debug)]
pub(super) struct Shared {
    /// For requests.
    pub(super) pool: Arc<Pool>,
    /// For background jobs, which take no connection from requests.
    pub(super) upkeep: Arc<Pool>,
    pub(super) floors: Arc<Floors>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) report: Arc<Report>,
}

impl Shared {
    /// Answers a request over its own connection.
    pub(super) async fn call(
        self: &Arc<Shared>,
        request: Request,
        stages: &mut Stages,
    ) -> Result<Answer, Failure> {
        let request = Arc::new(request);
        let answer = self.call_once(&request, stages).await;
        // An idle connection may have been lost. Repeat a read.
        if request.only_reads() && matches!(answer, Err(Failure::Unknown(_))) {
            return self.call_once(&request, stages).await.map_err(failure::done_nothing);
        }
        answer
    }

    async fn call_once(
        self: &Arc<Shared>,
        request: &Arc<Request>,
        stages: &mut Stages,
    ) -> Result<Answer, Failure> {
        let held = self.pool.take().await?;
        stages.connected = Some(held.since());
        let (shared, asked) = (Arc::clone(self), Arc::clone(request));
        // The client may leave, but the database completes the call. So the call keeps its connection to the end, and
        // announces its arrivals.
        let call = async move {
            let done = calls::answer(&held, &shared.floors, &asked).await;
            let answer = shared.announced(done);
            let answered = Instant::now();
            drop(held);
            (answer, answered)
        };
        let (answer, answered) = Outlasting::new(call).await;
        stages.answered = Some(answered);
        answer
    }

    /// Announces the arrivals of a call; returns its answer.
    pub(super) fn announced(&self, done: Result<Done, Failure>) -> Result<Answer, Failure> {
        let Done { answer, arrivals } = done?;
        self.notifier.arrived(&arrivals);
        Ok(answer)
    }
}
