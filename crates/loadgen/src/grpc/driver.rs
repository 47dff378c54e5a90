//! The threads of a load over gRPC.

use std::sync::Arc;
use std::thread::JoinHandle;

use knee_telemetry::{Load, LoadGauges, Moment, Reporter};
use tokio::sync::watch;

use super::calls::Calls;
use super::life::{self, Orders};
use crate::error::Error;
use crate::run::{Driver, Driving, Run, end_with};

/// Drives clients that make calls, with one runtime for each thread.
#[derive(Debug)]
pub(crate) struct OverGrpc<C>(pub(crate) C);

struct Threads {
    orders: watch::Sender<Orders>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
}

impl<C: Calls> Driver for OverGrpc<C> {
    fn start(
        self,
        run: &Arc<Run>,
        reporter: &mut Reporter<Load>,
        parent: Option<u32>,
    ) -> Result<Box<dyn Driving>, Error> {
        let calls = Arc::new(self.0);
        let (orders, ordered) = watch::channel(Orders::default());
        let now = Moment::now();
        let mut threads = Vec::new();
        for number in 0..run.plan.threads {
            let name = format!("load-{number}");
            let recorder = reporter.recorder(name.as_str(), LoadGauges::default(), now);
            let (run, calls, orders) = (Arc::clone(run), Arc::clone(&calls), ordered.clone());
            let thread = std::thread::Builder::new()
                .name(name)
                .spawn(move || life::run(run, calls, recorder, number, orders))
                .map_err(Error::System)?;
            threads.push(thread);
        }
        let end = orders.clone();
        end_with(parent, move || end.send_modify(|orders| orders.end = true))?;
        Ok(Box::new(Threads { orders, threads }))
    }
}

impl Driving for Threads {
    fn start_is_known(&self) {
        self.orders.send_modify(|orders| orders.start = true);
    }

    fn end(&self) {
        self.orders.send_modify(|orders| orders.end = true);
    }

    fn join(self: Box<Self>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(ended) => outcome = outcome.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    }
}
