//! Messages in PostgreSQL, through functions that are stored there.
//!
//! # Layout
//!
//! * `sql/`, `migrate`: the schema and its functions, and how they come there.
//! * `address`: where, and as whom. `tls`: how it is encrypted.
//! * `pool`, `statements`: connections, and what they have prepared.
//! * `calls`: requests as calls of functions. `outlasting`: calls to their end. `combine`: what waits for a
//!   connection, put together.
//! * `floors`: where a remove begins.
//! * `keeper`: leases that end, retention, deleted queues.
//! * `listen`: arrivals. `outbox`: those that other servers have yet to be told of. `watching`: of which queues they
//!   are told.
//! * `failure`: errors.

mod address;
mod calls;
mod combine;
mod failure;
mod floors;
mod keeper;
mod listen;
mod migrate;
mod outbox;
mod outlasting;
mod pool;
mod statements;
mod tls;
mod watching;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::broadcast;
use tokio::task::JoinError;
use tokio::time::{MissedTickBehavior, interval, timeout};

pub use self::address::database_name;
use self::calls::{Done, Told, change};
use self::combine::Combiner;
use self::floors::Floors;
use self::listen::Listener;
use self::outbox::Relay;
use self::outlasting::Outlasting;
use self::pool::Pool;
use self::watching::Watching;
use crate::database::{Arrival, Database, Failure, Stages, WATCHED};
use crate::operation::{Answer, QueueId, Request};
use crate::trouble::{Job, Trouble};

/// One for leases that end, one for what else is kept, and one for telling other servers.
const UPKEEP_CONNECTIONS: usize = 3;
/// For those who begin to wait.
const WATCHING_CONNECTIONS: usize = 1;

/// How long after others could not be told it is tried again.
const TELL_AGAIN: Duration = Duration::from_millis(250);
/// Whoever ends may take so long to tell others without saying what is waited for.
const TELLING: Duration = Duration::from_secs(1);

/// How messages are kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// `postgresql://USER@HOST:PORT/DATABASE`, or as `host=... user=...`; without a password. TLS
    /// is as its `sslmode`, `sslrootcert`, `sslcert` and `sslkey` say, which are libpq's.
    pub address: String,
    /// What has the password; otherwise it is in `PGPASSWORD`, or in the file that `PGPASSFILE` names
    /// or `~/.pgpass`.
    pub password_file: Option<PathBuf>,
    /// Connections for requests, at least 1. Beside them there are up to three for upkeep and, while
    /// somebody waits for a message, one that listens and one for who begins to.
    pub connections: usize,
    /// How long others are waited for to leave a connection; opening one takes its own time, or nobody who does not
    /// want to wait that long would ever have one.
    pub connection_wait: Duration,
    /// How long a call may take, after which PostgreSQL undoes it. Where it does not even answer within
    /// twice that, the connection is closed.
    pub call_max: Duration,
    /// How long those who are sending to a queue are waited for by who begins to wait there: the pauses between looks
    /// at them, and not the looks, which a database that is slow holds up like those who are sending. What takes them
    /// longer may not be told: he looks again in half the time for which a queue is watched.
    pub sending_max: Duration,
    /// For how long a connection is kept that nobody uses; one is in any case.
    pub idle_max: Option<Duration>,
    /// Requests that wait for a connection and are made one call, at most; with 1, each is its own.
    pub combine_max: usize,
    /// Told what nobody is who asks: that what has to be done anyway fails, once for each reason, and that it
    /// works again. There are no passwords in it. It may take its time, on a thread of its own.
    pub tell: fn(&str),
}

/// Installs the schema, or what is missing of it, and answers what that was.
///
/// # Errors
/// When it is of a later program or another one, and when the database cannot be reached or altered.
pub async fn migrate(options: &Options) -> Result<Vec<String>, Failure> {
    migrate::migrate(&address::address(options)?).await
}

/// A database in PostgreSQL. Its tasks end when it is dropped.
#[derive(Debug)]
pub struct Postgres {
    inner: Arc<Inner>,
    combiner: Option<Arc<Combiner>>,
}

/// What the tasks share.
#[derive(Debug)]
struct Inner {
    /// For requests.
    pool: Arc<Pool>,
    /// For what nobody asks for, so that it takes no connection from those who ask.
    upkeep: Arc<Pool>,
    watching: Watching,
    floors: Arc<Floors>,
    listener: Listener,
    trouble: Arc<Trouble>,
}

impl Postgres {
    /// Looks whether the database is there and has the schema.
    ///
    /// # Errors
    /// When it is not, or has not; when it refuses its user.
    pub async fn open(options: &Options) -> Result<Postgres, Failure> {
        let address = address::address(options)?;
        migrate::check(&address).await?;
        let floors = Arc::new(Floors::default());
        let pool = |connections, wait| {
            let floors = Arc::clone(&floors);
            Pool::new(address.clone(), connections, wait, options.idle_max, floors)
        };
        let wait = options.connection_wait;
        let (requests, upkeep) = (pool(options.connections, wait), pool(UPKEEP_CONNECTIONS, wait));
        // Whoever waits for a message has a limit of his own.
        let watching = pool(WATCHING_CONNECTIONS, Duration::MAX);
        let watching = Watching::new(watching, options.sending_max);
        let (listener, relay) = Listener::new(address);
        let trouble = Arc::new(Trouble::new(options.tell)?);
        let untold = Untold { relay, trouble: Arc::clone(&trouble) };
        let others = tell_others(Arc::clone(&upkeep), untold);
        let pool = requests;
        let inner = Arc::new(Inner { pool, upkeep, watching, floors, listener, trouble });
        tokio::spawn(keeper::end_leases(Arc::downgrade(&inner)));
        tokio::spawn(keeper::keep(Arc::downgrade(&inner)));
        tokio::spawn(others);
        let combiner = (options.combine_max > 1)
            .then(|| Arc::new(Combiner::new(Arc::clone(&inner), options.combine_max)));
        Ok(Postgres { inner, combiner })
    }
}

impl Database for Postgres {
    async fn call(&self, request: Request, stages: &mut Stages) -> Result<Answer, Failure> {
        if let Some(combiner) = &self.combiner
            && combine::can_combine(&request)
        {
            return combiner.call(request, stages).await;
        }
        self.inner.call(request, stages).await
    }

    async fn arrivals(&self) -> Result<broadcast::Receiver<Arrival>, Failure> {
        self.inner.listener.arrivals().await
    }

    async fn watch(&self, queue: QueueId) -> Result<(), Failure> {
        if self.inner.listener.watches(queue) {
            return Ok(());
        }
        watching::watched(&self.inner, queue).await
    }

    async fn is_told(&self) {
        let mut told = pin!(self.inner.listener.is_told());
        // It is not given up at once where the database is known to be lost: it may just be restarting.
        if timeout(TELLING, told.as_mut()).await.is_err() {
            let text = "it ends later, as others have yet to be told of what was sent here";
            self.inner.trouble.say(text.to_owned());
            told.await;
        }
    }
}

/// What others have yet to be told when nobody tells them any more: as where whoever ends has no more time, be it that
/// all of it went to calls.
struct Untold {
    relay: Relay,
    trouble: Arc<Trouble>,
}

impl Drop for Untold {
    fn drop(&mut self) {
        if self.relay.has_more() {
            self.trouble.say(format!(
                "it ends though others have yet to be told of what was sent here: who waits at another knee-queue finds \
                 it when he looks again, within {:?}",
                WATCHED / 2
            ));
        }
    }
}

/// What a task answered, unless it panicked or was ended.
fn ended<T>(task: Result<Result<T, Failure>, JoinError>) -> Result<T, Failure> {
    task.unwrap_or_else(|ended| Err(Failure::Unknown(format!("there is no answer: {ended}"))))
}

impl Inner {
    async fn call(
        self: &Arc<Inner>,
        request: Request,
        stages: &mut Stages,
    ) -> Result<Answer, Failure> {
        let request = Arc::new(request);
        let answer = self.call_once(&request, stages).await;
        // A connection may have been lost while nobody used it. What only reads can be asked again.
        if request.only_reads() && matches!(answer, Err(Failure::Unknown(_))) {
            return self.call_once(&request, stages).await.map_err(failure::done_nothing);
        }
        answer
    }

    async fn call_once(
        self: &Arc<Inner>,
        request: &Arc<Request>,
        stages: &mut Stages,
    ) -> Result<Answer, Failure> {
        let held = self.pool.take().await?;
        stages.connected = Some(held.since());
        let (inner, asked) = (Arc::clone(self), Arc::clone(request));
        // Whoever asked may leave. The database goes on with what it was asked all the same; until it has
        // ended that has its connection, and then others are told of it.
        let call = async move {
            let done = calls::answer(&held, &inner.floors, &asked).await;
            let answer = inner.told(done);
            let answered = Instant::now();
            // From now on it is somebody else's.
            drop(held);
            (answer, answered)
        };
        let (answer, answered) = Outlasting::new(call).await;
        stages.answered = Some(answered);
        answer
    }

    /// The answer of what was done, once others have been told of it.
    fn told(&self, done: Result<Done, Failure>) -> Result<Answer, Failure> {
        let Done { answer, arrivals } = done?;
        self.tell(&arrivals);
        Ok(answer)
    }

    fn tell(&self, told: &[Told]) {
        if !told.is_empty() {
            self.listener.tell(told);
        }
    }
}

/// Tells other servers, as long as the database is open. Those may hear though nobody can be told just now:
/// what could not be told is told later, once for all that arrived meanwhile.
async fn tell_others(pool: Arc<Pool>, mut untold: Untold) {
    let mut tries = interval(TELL_AGAIN);
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(text) = untold.relay.next().await {
        let told = tell(&pool, &text).await;
        let is_told = told.is_ok();
        if !is_told && untold.relay.is_over() {
            return;
        }
        untold.trouble.after(Job::Arrivals, told);
        if is_told {
            untold.relay.told();
        } else {
            tries.reset();
            tries.tick().await;
        }
    }
}

async fn tell(pool: &Arc<Pool>, text: &str) -> Result<(), Failure> {
    let held = pool.take().await?;
    change(&held, &held.statements().tell, &[&text]).await.map(drop)
}
