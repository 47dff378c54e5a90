//! Load over the memcached protocol: threads with the event loop.

use std::sync::Arc;

use knee_reactor::{Config, Group, Waker};
use knee_telemetry::{Load, LoadGauges, Moment, Reporter};

use crate::clients::Clients;
use crate::error::Error;
use crate::run::{Driver, Driving, Run, end_with};
use crate::traffic::Traffic;

/// Drives clients of the memcached protocol on the event loop.
pub(crate) struct OnReactor<T>(pub(crate) T);

struct Reacting {
    group: Group,
    wakers: Vec<Waker>,
}

impl<T: Traffic> Driver for OnReactor<T> {
    fn start(
        self,
        run: &Arc<Run>,
        reporter: &mut Reporter<Load>,
        parent: Option<u32>,
    ) -> Result<Box<dyn Driving>, Error> {
        let traffic = Arc::new(self.0);
        let config = Config {
            input_bytes_max: traffic.response_bytes_max() + Config::default().read_bytes,
            // After the drain time each thread ends by itself.
            shutdown_grace: run.plan.drain + Config::default().shutdown_grace,
            ..Config::default()
        };
        let now = Moment::now();
        let mut wakers = Vec::new();
        let group = Group::start("load", run.plan.threads, &config, None, |thread, all| {
            wakers = all.to_vec();
            let recorder = reporter.recorder(format!("load-{thread}"), LoadGauges::default(), now);
            let numbers = run.plan.clients_of(thread);
            Clients::new(Arc::clone(run), Arc::clone(&traffic), recorder, numbers)
        })
        .map_err(Error::System)?;
        let shutdown = group.shutdown();
        end_with(parent, move || shutdown.begin())?;
        Ok(Box::new(Reacting { group, wakers }))
    }
}

impl Driving for Reacting {
    fn start_is_known(&self) {
        for waker in &self.wakers {
            waker.wake();
        }
    }

    fn end(&self) {
        self.group.shutdown().begin();
    }

    fn join(self: Box<Self>) -> Result<(), Error> {
        self.group.join().map_err(Error::System)
    }
}
