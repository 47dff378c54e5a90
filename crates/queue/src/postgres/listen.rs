//! Arrivals: those of this server's own clients are told of at once, those of others by NOTIFY.
//!
//! A transaction that notifies holds a lock of the whole database's until its commit is on the disk. So
//! senders do not: their server tells of what they sent afterwards, of many at once, and only of queues
//! that somebody watches.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex as AsyncMutex, broadcast, mpsc};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use super::calls::Told;
use super::failure;
use crate::database::{Arrival, Failure, WATCHED};
use crate::operation::QueueId;

/// Arrivals that are remembered for who is slow to hear of them.
const ARRIVALS_MAX: usize = 16 * 1024;
/// Arrivals of one notification, of at most 22 bytes each: its text may have 8,000.
const TOLD_MAX: usize = 300;

/// The connection that listens, and who listens to it.
#[derive(Debug)]
pub(super) struct Listener {
    config: Config,
    /// What its notifications begin with, so that it need not hear them itself.
    name: u64,
    /// Held while connecting, so that one does.
    connecting: AsyncMutex<()>,
    listening: Arc<Mutex<Listening>>,
    /// To the task that tells other servers.
    outwards: mpsc::UnboundedSender<Arrival>,
}

#[derive(Debug, Default)]
struct Listening {
    /// Gone when the connection is: whoever listened learns that he has to look.
    arrivals: Option<broadcast::Sender<Arrival>>,
    /// Queues that the database knows to be watched, and since when.
    watched: HashMap<QueueId, Instant>,
}

impl Listener {
    /// And what other servers are to be told, for the task that does it.
    pub(super) fn new(config: Config) -> (Listener, Unsent) {
        let (outwards, arrivals) = mpsc::unbounded_channel();
        let name = RandomState::new().hash_one(0);
        let (connecting, listening) = Default::default();
        (Listener { config, name, connecting, listening, outwards }, Unsent { name, arrivals })
    }

    /// What arrives from now on. The first call connects.
    pub(super) async fn arrivals(&self) -> Result<broadcast::Receiver<Arrival>, Failure> {
        let _connecting = self.connecting.lock().await;
        if let Some(arrivals) = &lock(&self.listening).arrivals {
            return Ok(arrivals.subscribe());
        }
        self.connect().await
    }

    async fn connect(&self) -> Result<broadcast::Receiver<Arrival>, Failure> {
        let (client, mut connection) =
            self.config.connect(NoTls).await.map_err(|error| failure::connecting(&error))?;
        let (arrivals, receiver) = broadcast::channel(ARRIVALS_MAX);
        let heard = arrivals.clone();
        let own = format!("{:x}:", self.name);
        let listening = Arc::clone(&self.listening);
        tokio::spawn(async move {
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
            *lock(&listening) = Listening::default();
        });
        client
            .batch_execute("LISTEN knee_queue")
            .await
            .map_err(|error| failure::calling(&error, true))?;
        *lock(&self.listening) = Listening { arrivals: Some(arrivals), ..Listening::default() };
        // A client that is dropped ends its connection: this one is kept with those who listen.
        tokio::spawn(keep_open(client, Arc::downgrade(&self.listening)));
        Ok(receiver)
    }

    /// Whether the database knows for long enough that the queue is watched.
    pub(super) fn watches(&self, queue: QueueId) -> bool {
        let listening = lock(&self.listening);
        listening.watched.get(&queue).is_some_and(|since| since.elapsed() < WATCHED)
    }

    /// Remembers that the database was told, before `since`.
    pub(super) fn watched(&self, queue: QueueId, since: Instant) {
        let mut listening = lock(&self.listening);
        if listening.arrivals.is_some() {
            listening.watched.retain(|_, since| since.elapsed() < WATCHED);
            listening.watched.insert(queue, since);
        }
    }

    /// Tells those who listen here, and has others told.
    pub(super) fn tell(&self, told: Vec<Told>) {
        let listening = lock(&self.listening);
        for Told { arrival, watched } in told {
            if let Some(arrivals) = &listening.arrivals {
                let _ = arrivals.send(arrival);
            }
            if watched {
                // The task has ended when the runtime has.
                let _ = self.outwards.send(arrival);
            }
        }
    }
}

fn lock(listening: &Mutex<Listening>) -> MutexGuard<'_, Listening> {
    listening.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn keep_open(client: Client, listening: Weak<Mutex<Listening>>) {
    /// How long the connection may outlive the database's object.
    const LOOK: Duration = Duration::from_millis(500);
    while !client.is_closed() && listening.strong_count() > 1 {
        tokio::time::sleep(LOOK).await;
    }
}

/// What other servers are to be told.
#[derive(Debug)]
pub(super) struct Unsent {
    name: u64,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
}

impl Unsent {
    /// Takes what waits, as one text: "NAME:QUEUE RECEIVER,QUEUE RECEIVER".
    pub(super) async fn next(&mut self) -> Option<String> {
        let mut told = HashSet::from([self.arrivals.recv().await?]);
        while told.len() < TOLD_MAX
            && let Ok(arrival) = self.arrivals.try_recv()
        {
            told.insert(arrival);
        }
        let pairs: Vec<_> =
            told.iter().map(|Arrival { queue, receiver }| format!("{queue} {receiver}")).collect();
        Some(format!("{:x}:{}", self.name, pairs.join(",")))
    }
}

fn read(text: &str) -> impl Iterator<Item = Arrival> {
    let (_, pairs) = text.split_once(':').unwrap_or_default();
    pairs.split(',').filter_map(|pair| {
        let (queue, receiver) = pair.split_once(' ')?;
        Some(Arrival { queue: queue.parse().ok()?, receiver: receiver.parse().ok()? })
    })
}
