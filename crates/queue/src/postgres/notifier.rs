//! Arrivals: this server's own calls are woken at once, those of other servers by NOTIFY.
//!
//! NOTIFY locks the whole database until its commit is on the disk. If each send notified, sends would commit one by
//! one. So the server notifies afterwards, once for many messages. A notification may be lost: waiting calls also poll
//! ([`crate::waiters`]).

use std::collections::HashMap;
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

/// Arrivals that are kept for a slow subscriber.
const ARRIVALS_MAX: usize = 16 * 1024;
/// Entries of one notification, of at most 33 bytes each: PostgreSQL takes 8,000 bytes.
const ENTRIES_MAX: usize = 200;
/// Messages of an entry that wake a call each.
const MESSAGES_MAX: u32 = 1000;
/// Between two notifications, so that a busy server makes at most 50 a second.
const NOTIFY_PAUSE: Duration = Duration::from_millis(20);
/// Between two attempts to listen.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// Wakes waiting calls, here and at other servers.
#[derive(Debug)]
pub(super) struct Notifier {
    /// This server's name. Each of its notifications starts with it, so that the sender ignores its own.
    name: String,
    arrivals: broadcast::Sender<Arrival>,
    /// Messages that other servers have not been notified of.
    pending: Mutex<HashMap<Arrival, u32>>,
    /// Something is pending.
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

    /// What arrives from now on, here and at other servers.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arrival> {
        self.arrivals.subscribe()
    }

    /// Messages have arrived by a call of this server.
    pub(super) fn arrived(&self, arrivals: &[Arrival]) {
        if arrivals.is_empty() {
            return;
        }
        let mut pending = self.pending();
        for &arrival in arrivals {
            // There may be no subscriber.
            let _ = self.arrivals.send(arrival);
            let messages = pending.entry(arrival).or_default();
            *messages = messages.saturating_add(1);
        }
        self.more.notify_one();
    }

    /// The next notification, "NAME:QUEUE RECEIVER MESSAGES,QUEUE RECEIVER MESSAGES".
    async fn next(&self) -> String {
        loop {
            if let Some(entries) = self.take() {
                return format!("{}:{}", self.name, entries.join(","));
            }
            self.more.notified().await;
        }
    }

    fn take(&self) -> Option<Vec<String>> {
        let mut pending = self.pending();
        let some: Vec<_> = pending.keys().take(ENTRIES_MAX).copied().collect();
        let entry = |arrival: Arrival| {
            let messages = pending.remove(&arrival)?;
            Some(format!("{} {} {messages}", arrival.queue, arrival.receiver))
        };
        let entries: Vec<_> = some.into_iter().filter_map(entry).collect();
        (!entries.is_empty()).then_some(entries)
    }

    fn heard(&self, notification: &str) {
        let Some((name, entries)) = notification.split_once(':') else { return };
        if name == self.name {
            return;
        }
        for (arrival, messages) in entries.split(',').filter_map(entry) {
            for _ in 0..messages.min(MESSAGES_MAX) {
                let _ = self.arrivals.send(arrival);
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<Arrival, u32>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry(text: &str) -> Option<(Arrival, u32)> {
    let mut numbers = text.split(' ').map(|number| number.parse().ok());
    let (queue, receiver, messages) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some((Arrival { queue, receiver }, messages))
}

/// Notifies other servers, without end.
pub(super) async fn notify(notifier: Arc<Notifier>, pool: Arc<Pool>, report: Arc<Report>) {
    loop {
        let text = notifier.next().await;
        report.after(Job::Notify, notify_once(&pool, &text).await);
        sleep(NOTIFY_PAUSE).await;
    }
}

async fn notify_once(pool: &Arc<Pool>, text: &str) -> Result<(), Failure> {
    let held = pool.take().await?;
    change(&held, &held.statements().notify_arrivals, &[&text]).await.map(drop)
}

/// Listens to other servers, without end: connects again when the connection is lost.
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
    async fn messages_of_a_pair_become_one_entry_and_wake_a_call_each() {
        let (here, there) = (Notifier::new(), Notifier::new());
        let arrival = Arrival { queue: 7, receiver: 3 };
        here.arrived(&[arrival; 5]);
        let text = here.next().await;
        assert!(text.ends_with(":7 3 5"), "{text}");
        let mut arrivals = there.subscribe();
        let mut own = here.subscribe();
        for notification in [text.as_str(), "", ":", "name:7", "name:7 3 x,7 3 -1,,"] {
            there.heard(notification);
            here.heard(notification);
        }
        for _ in 0..5 {
            assert_eq!(arrivals.try_recv().unwrap(), arrival);
        }
        assert!(arrivals.try_recv().is_err());
        assert!(own.try_recv().is_err(), "a server hears itself");
    }

    #[tokio::test]
    async fn notification_fits_and_leaves_no_entry_out() {
        let notifier = Notifier::new();
        let last = u32::MAX - 1000..u32::MAX;
        let arrivals = last.map(|number| Arrival { queue: number, receiver: number });
        let arrivals: Vec<_> = arrivals.collect();
        notifier.arrived(&arrivals);
        notifier.pending().values_mut().for_each(|messages| *messages = u32::MAX);
        let mut entries = 0;
        while !notifier.pending().is_empty() {
            let text = notifier.next().await;
            assert!(text.len() < 8000, "{}", text.len());
            entries += text.split(',').count();
        }
        assert_eq!(entries, arrivals.len());
    }
}
