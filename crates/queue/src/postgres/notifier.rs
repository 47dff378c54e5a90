//! Announces arrivals: to waiting calls of this server at once, to other servers by NOTIFY.
//!
//! NOTIFY locks the whole database until its commit is on the disk. If each send notified, sends would commit one by
//! one. So the server notifies afterwards, once for many messages. A notification may be lost: waiting calls also poll
//! ([`crate::waiters`]).

use std::collections::HashSet;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, broadcast};
use tokio::time::sleep;
use tokio_postgres::AsyncMessage;

use super::address::Address;
use super::calls::change;
use super::failure;
use super::pool::Pool;
use crate::database::{Arrival, Failure};
use crate::upkeep::{Job, Report};

/// Largest number of arrivals queued for a slow subscriber.
const ARRIVALS_MAX: usize = 16 * 1024;
/// Pairs of queue and receiver in one notification, of at most 22 bytes each: PostgreSQL takes 8,000 bytes.
const PAIRS_MAX: usize = 300;
/// Largest number of pairs queued for the next notifications. Above this number, all servers search for all messages.
const PENDING_MAX: usize = 3000;
/// Time between two notifications: a busy server sends at most 50 a second.
const NOTIFY_PAUSE: Duration = Duration::from_millis(20);
/// Time between two attempts to listen.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// Wakes waiting calls, here and at other servers.
#[derive(Debug)]
pub(super) struct Notifier {
    /// This server's name. Each of its notifications starts with it, so that the sender ignores its own.
    name: String,
    arrivals: broadcast::Sender<Option<Arrival>>,
    /// Arrivals not yet announced to other servers. Each wakes a call there, and that call wakes the next one.
    pending: Mutex<HashSet<Arrival>>,
    /// Notified when `pending` has an entry.
    more: Notify,
}

impl Notifier {
    pub(super) fn new() -> Notifier {
        Notifier {
            name: format!("{:x}", RandomState::new().hash_one(0)),
            arrivals: broadcast::Sender::new(ARRIVALS_MAX),
            pending: Mutex::default(),
            more: Notify::new(),
        }
    }

    /// Subscribes to later arrivals, here and at other servers.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Option<Arrival>> {
        self.arrivals.subscribe()
    }

    /// Announces messages that a call of this server sent.
    pub(super) fn arrived(&self, arrivals: &[Arrival]) {
        if arrivals.is_empty() {
            return;
        }
        let mut pending = self.pending();
        for &arrival in arrivals {
            // There may be no subscriber.
            let _ = self.arrivals.send(Some(arrival));
            if pending.len() < PENDING_MAX {
                pending.insert(arrival);
            }
        }
        self.more.notify_one();
    }

    /// The next notifications, each "NAME:QUEUE RECEIVER,QUEUE RECEIVER", or "NAME:" for any arrivals.
    async fn next(&self) -> Vec<String> {
        loop {
            let pairs: Vec<_> = std::mem::take(&mut *self.pending()).into_iter().collect();
            match pairs.len() {
                0 => self.more.notified().await,
                PENDING_MAX => return vec![format!("{}:", self.name)],
                _ => {
                    return pairs.chunks(PAIRS_MAX).map(|pairs| self.notification(pairs)).collect();
                }
            }
        }
    }

    fn notification(&self, pairs: &[Arrival]) -> String {
        let pairs = pairs.iter().map(|Arrival { queue, receiver }| format!("{queue} {receiver}"));
        format!("{}:{}", self.name, pairs.collect::<Vec<_>>().join(","))
    }

    fn heard(&self, notification: &str) {
        let Some((name, pairs)) = notification.split_once(':') else { return };
        if name == self.name {
            return;
        }
        if pairs.is_empty() {
            self.missed();
        }
        for arrival in pairs.split(',').filter_map(pair) {
            let _ = self.arrivals.send(Some(arrival));
        }
    }

    /// Reports that arrivals at other servers were missed.
    fn missed(&self) {
        let _ = self.arrivals.send(None);
    }

    fn pending(&self) -> MutexGuard<'_, HashSet<Arrival>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair(text: &str) -> Option<Arrival> {
    let (queue, receiver) = text.split_once(' ')?;
    Some(Arrival { queue: queue.parse().ok()?, receiver: receiver.parse().ok()? })
}

/// Notifies other servers, in an endless loop.
pub(super) async fn notify(notifier: Arc<Notifier>, pool: Arc<Pool>, report: Arc<Report>) {
    loop {
        for text in notifier.next().await {
            report.after(Job::Notify, notify_once(&pool, &text).await);
            sleep(NOTIFY_PAUSE).await;
        }
    }
}

async fn notify_once(pool: &Arc<Pool>, text: &str) -> Result<(), Failure> {
    let held = pool.take().await?;
    change(&held, &held.statements().notify_arrivals, &[&text]).await.map(drop)
}

/// Listens to other servers, in an endless loop; reconnects after a lost connection.
pub(super) async fn listen(notifier: Arc<Notifier>, address: Address, report: Arc<Report>) {
    loop {
        let Err(lost) = listen_once(&notifier, &address, &report).await;
        report.after(Job::Listen, Err(lost));
        sleep(LISTEN_PAUSE).await;
    }
}

async fn listen_once(
    notifier: &Notifier,
    address: &Address,
    report: &Report,
) -> Result<std::convert::Infallible, Failure> {
    let (client, mut connection) = address.connect().await?;
    let mut begin = pin!(address.in_time(async {
        let begun = client.batch_execute("LISTEN knee_queue").await;
        begun.map_err(|error| failure::opening(&error))
    }));
    let mut listens = false;
    loop {
        tokio::select! {
            begun = begin.as_mut(), if !listens => {
                begun?;
                listens = true;
                notifier.missed();
                report.after(Job::Listen, Ok(()));
            }
            message = poll_fn(|context| connection.poll_message(context)) => match message {
                Some(Ok(AsyncMessage::Notification(heard))) => notifier.heard(heard.payload()),
                Some(Ok(_)) => {}
                _ => {
                    let lost = "the connection to the database was lost".to_owned();
                    return Err(Failure::Unavailable(lost));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn messages_of_a_pair_become_one_entry() {
        let (here, there) = (Notifier::new(), Notifier::new());
        let arrival = Arrival { queue: 7, receiver: 3 };
        here.arrived(&[arrival; 5]);
        let text = here.next().await.pop().unwrap();
        assert!(text.ends_with(":7 3"), "{text}");
        let mut arrivals = there.subscribe();
        let mut own = here.subscribe();
        for notification in [text.as_str(), "", "name:7", "name:7 x,7 -1,,"] {
            there.heard(notification);
            here.heard(notification);
        }
        assert_eq!(arrivals.try_recv().unwrap(), Some(arrival));
        assert!(arrivals.try_recv().is_err());
        assert!(own.try_recv().is_err(), "a server hears itself");
    }

    #[tokio::test]
    async fn notifications_fit_and_leave_no_pair_out() {
        let (here, there) = (Notifier::new(), Notifier::new());
        let mut arrivals = there.subscribe();
        for (pairs, are_heard) in [(1000, true), (5000, false)] {
            let last = (0..pairs).map(|number| u32::MAX - number);
            let sent: HashSet<_> = last.map(|id| Arrival { queue: id, receiver: id }).collect();
            here.arrived(&sent.iter().copied().collect::<Vec<_>>());
            for text in here.next().await {
                assert!(text.len() < 8000, "{}", text.len());
                there.heard(&text);
            }
            let heard: HashSet<_> = std::iter::from_fn(|| arrivals.try_recv().ok()).collect();
            let sent = sent.into_iter().map(Some).collect();
            assert_eq!(heard, if are_heard { sent } else { HashSet::from([None]) });
        }
    }
}
