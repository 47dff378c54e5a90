//! Messages in PostgreSQL, through stored functions.
//!
//! # Layout
//!
//! * `sql/`, `migrate`: the schema and its functions, and their installation.
//! * `options`: options of the database. `address`: the database's address and user. `tls`: encryption.
//! * `pool`, `statements`: connections, and their prepared statements.
//! * `calls`: requests as calls of functions. `outlasting`: calls that survive their client. `combine`: combines
//!   waiting requests into one call.
//! * `floors`: the numbers at which removes begin.
//! * `keeper`: leases that end, retention, deleted queues.
//! * `notifier`: arrivals, here and at other servers.
//! * `shared`: state that requests and background jobs share.
//! * `failure`: errors.

mod address;
mod calls;
mod combine;
mod failure;
mod floors;
mod keeper;
mod migrate;
mod notifier;
mod options;
mod outlasting;
mod pool;
mod shared;
mod statements;
mod tls;

use std::sync::Arc;

use tokio::sync::broadcast;
use tokio::task::JoinSet;

use self::address::Address;
use self::combine::Combiner;
use self::floors::Floors;
use self::notifier::Notifier;
pub use self::options::Options;
use self::pool::Pool;
use self::shared::Shared;
use crate::database::{Arrival, Database, Failure, Stages};
use crate::operation::{Answer, Request};
use crate::upkeep::Report;

/// Number of connections for background jobs: one to end leases, and one for the other jobs.
const UPKEEP_CONNECTIONS: usize = 2;
/// Number of connections that notify other servers.
const NOTIFYING_CONNECTIONS: usize = 1;

/// Installs the schema in an empty database; returns whether it was missing.
///
/// # Errors
/// When the database has another schema, cannot be reached or cannot be altered.
pub async fn migrate(options: &Options) -> Result<bool, Failure> {
    migrate::migrate(&Address::read(options)?).await
}

/// A database in PostgreSQL. Its background jobs end when it is dropped.
#[derive(Debug)]
pub struct Postgres {
    shared: Arc<Shared>,
    combiner: Option<Arc<Combiner>>,
    _jobs: JoinSet<()>,
}

impl Postgres {
    /// Opens a database that has the schema.
    ///
    /// # Errors
    /// When the database or the schema is missing, or the database refuses the user.
    pub async fn open(options: &Options) -> Result<Postgres, Failure> {
        let address = Address::read(options)?;
        migrate::check(&address).await?;
        let floors = Arc::new(Floors::default());
        let pool = |connections| {
            let (wait, idle_max) = (options.connection_wait, options.idle_max);
            Pool::new(address.clone(), connections, wait, idle_max, Arc::clone(&floors))
        };
        let shared = Arc::new(Shared {
            pool: pool(options.connections),
            upkeep: pool(UPKEEP_CONNECTIONS),
            floors: Arc::clone(&floors),
            notifier: Arc::new(Notifier::new()),
            report: Arc::new(Report::new(options.log.clone())),
        });
        let mut jobs = JoinSet::new();
        let (notifier, report) = (&shared.notifier, &shared.report);
        jobs.spawn(notifier::notify(
            Arc::clone(notifier),
            pool(NOTIFYING_CONNECTIONS),
            Arc::clone(report),
        ));
        jobs.spawn(notifier::listen(Arc::clone(notifier), address, Arc::clone(report)));
        jobs.spawn(keeper::end_leases(Arc::clone(&shared)));
        jobs.spawn(keeper::keep(Arc::clone(&shared)));
        let combiner = (options.combine_max > 1)
            .then(|| Arc::new(Combiner::new(Arc::clone(&shared), options.combine_max)));
        Ok(Postgres { shared, combiner, _jobs: jobs })
    }
}

impl Database for Postgres {
    async fn call(&self, request: Request, stages: &mut Stages) -> Result<Answer, Failure> {
        match &self.combiner {
            Some(combiner) if combine::can_combine(&request) => {
                combiner.call(request, stages).await
            }
            _ => self.shared.call(request, stages).await,
        }
    }

    fn arrivals(&self) -> broadcast::Receiver<Option<Arrival>> {
        self.shared.notifier.subscribe()
    }
}
