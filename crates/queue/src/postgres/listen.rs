//! Arrivals: those of this server's own clients are told of at once, those of others by NOTIFY.
//!
//! A transaction that notifies holds a lock of the whole database's until its commit is on the disk. So
//! senders do not: their server tells of what they sent afterwards, of many at once, and only of queues
//! that somebody watches.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Mutex as AsyncMutex, broadcast};
use tokio_postgres::{AsyncMessage, Client};

use super::address::Address;
use super::calls::Told;
use super::failure;
use super::outbox::{Outbox, Relay};
use crate::database::{Arrival, Failure, WATCHED};
use crate::operation::QueueId;

/// Arrivals that are remembered for who is slow to hear of them.
const ARRIVALS_MAX: usize = 16 * 1024;

/// The connection that listens, and who listens to it.
#[derive(Debug)]
pub(super) struct Listener {
    address: Address,
    /// What its notifications begin with, so that it need not hear them itself.
    name: u64,
    /// Held while connecting, so that one does.
    connecting: AsyncMutex<()>,
    /// The last one that was made.
    listening: Mutex<Option<Listening>>,
    /// For the task that tells other servers, as long as this is there.
    outbox: Arc<Outbox>,
}

/// A connection that listens, which ends with this.
#[derive(Debug)]
struct Listening {
    _client: Client,
    /// The connection's task has the sender, and nobody else for long: whoever listened learns that the
    /// connection is gone, and has to look.
    arrivals: broadcast::WeakSender<Arrival>,
    since: Instant,
    /// Queues that the database knows to be watched, and since when.
    watched: HashMap<QueueId, Instant>,
    /// When there are so many, those that are watched no more are forgotten.
    watched_max: usize,
}

impl Listener {
    /// And what other servers are to be told, for the task that does it.
    pub(super) fn new(address: Address) -> (Listener, Relay) {
        let outbox = Arc::<Outbox>::default();
        let name = RandomState::new().hash_one(0);
        let relay = Relay::new(name, Arc::clone(&outbox));
        let (connecting, listening) = Default::default();
        (Listener { address, name, connecting, listening, outbox }, relay)
    }

    /// What arrives from now on. The first call connects.
    pub(super) async fn arrivals(&self) -> Result<broadcast::Receiver<Arrival>, Failure> {
        let _connecting = self.connecting.lock().await;
        if let Some(arrivals) = self.sender() {
            return Ok(arrivals.subscribe());
        }
        self.connect().await
    }

    async fn connect(&self) -> Result<broadcast::Receiver<Arrival>, Failure> {
        let (client, mut connection) = self.address.connect().await?;
        let (heard, receiver) = broadcast::channel(ARRIVALS_MAX);
        let arrivals = heard.downgrade();
        let own = format!("{:x}:", self.name);
        let task = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                let AsyncMessage::Notification(told) = message else { continue };
                if told.payload().starts_with(&own) {
                    continue;
                }
                for arrival in read(told.payload()) {
                    // Nobody may be waiting just now.
                    let _ = heard.send(arrival);
                }
            }
        });
        let listening = self.address.in_time(async {
            let listening = client.batch_execute("LISTEN knee_queue").await;
            listening.map_err(|error| failure::opening(&error))
        });
        listening.await.inspect_err(|_| task.abort())?;
        let (since, watched, watched_max) = (Instant::now(), HashMap::new(), 0);
        let listening = Listening { _client: client, arrivals, since, watched, watched_max };
        *self.lock() = Some(listening);
        Ok(receiver)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Listening>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To those who listen, as long as the connection is there.
    fn sender(&self) -> Option<broadcast::Sender<Arrival>> {
        self.lock().as_ref()?.arrivals.upgrade()
    }

    /// Whether the database knows for long enough that the queue is watched.
    pub(super) fn watches(&self, queue: QueueId) -> bool {
        let listening = self.lock();
        let Some(listening) = &*listening else { return false };
        listening.arrivals.strong_count() > 0
            && listening.watched.get(&queue).is_some_and(|since| since.elapsed() < WATCHED)
    }

    /// Remembers that the database was told, by a call that began at `since`. A database that was told
    /// before this connection was made may have forgotten it, in a crash.
    pub(super) fn watched(&self, queue: QueueId, since: Instant) {
        if let Some(listening) = &mut *self.lock()
            && listening.since <= since
        {
            let Listening { watched, watched_max, .. } = listening;
            // Seldom, as there may be very many.
            if watched.len() >= *watched_max {
                watched.retain(|_, since| since.elapsed() < WATCHED);
                *watched_max = 2 * watched.len() + 1;
            }
            watched.insert(queue, since);
        }
    }

    /// Tells those who listen here, and has others told.
    pub(super) fn tell(&self, told: &[Told]) {
        if let Some(arrivals) = self.sender() {
            for Told { arrival, .. } in told {
                let _ = arrivals.send(*arrival);
            }
        }
        self.outbox.add(told.iter().filter(|told| told.watched).map(|told| told.arrival));
    }

    /// Returns when others have been told.
    pub(super) async fn is_told(&self) {
        self.outbox.is_told().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.outbox.end();
    }
}

fn read(text: &str) -> impl Iterator<Item = Arrival> {
    let (_, pairs) = text.split_once(':').unwrap_or_default();
    pairs.split(',').filter_map(|pair| {
        let (queue, receiver) = pair.split_once(' ')?;
        Some(Arrival { queue: queue.parse().ok()?, receiver: receiver.parse().ok()? })
    })
}
