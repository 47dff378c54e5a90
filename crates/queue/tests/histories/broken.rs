//! A database that breaks its promises is found out by what its clients see.

use std::sync::{Arc, Mutex};

use knee_queue::database::{Arrival, Database, Failure, Stages};
use knee_queue::operation::{Answer, MessageId, QueueId, Request, Stored};
use knee_queue::sqlite::{self, Sqlite};
use tokio::sync::broadcast;

use crate::harness::desk::{LONG, lease_of};
use crate::harness::history::{History, Mix};
use crate::harness::server::Server;
use crate::harness::verdict::verify;

/// A database that does to dead letters what it should not.
struct Broken {
    database: Sqlite,
    breaks: Breaks,
    limited: Arc<Mutex<Limited>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breaks {
    /// One of them is not there when it is removed.
    Loses,
    /// One of them is removed twice.
    Doubles,
    /// They come after one attempt less than they should.
    Early,
    /// They come after one attempt more.
    Late,
}

/// The queue that has a limit.
#[derive(Debug, Default)]
struct Limited {
    number: QueueId,
    dead_letters: QueueId,
    sent: Vec<MessageId>,
    /// The one that is lost, or had again.
    broken: Option<Stored>,
    /// It was done to one of them.
    is_broken: bool,
}

impl Database for Broken {
    async fn call(&self, mut request: Request, stages: &mut Stages) -> Result<Answer, Failure> {
        if let Request::CreateQueue { settings, .. } = &mut request
            && settings.dead_letters.is_some()
        {
            match self.breaks {
                Breaks::Early => settings.attempts_max -= 1,
                Breaks::Late => settings.attempts_max += 1,
                Breaks::Loses | Breaks::Doubles => {}
            }
        }
        let mut answer = self.database.call(request.clone(), stages).await?;
        let mut limited = self.limited.lock().unwrap();
        match (request, &mut answer) {
            (Request::CreateQueue { settings, .. }, &mut Answer::Id(number)) => {
                if let Some(dead_letters) = settings.dead_letters {
                    (limited.number, limited.dead_letters) = (number, dead_letters);
                }
            }
            (Request::Send { messages, .. }, Answer::Sent(ids)) => {
                let number = limited.number;
                let sent = messages.iter().zip(ids).filter(|(m, _)| m.queue == number);
                limited.sent.extend(sent.map(|(_, id)| *id));
            }
            (Request::Remove { queue, .. }, Answer::Messages(messages))
                if queue == limited.dead_letters =>
            {
                limited.remove(self.breaks, messages);
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn arrivals(&self) -> Result<broadcast::Receiver<Arrival>, Failure> {
        self.database.arrivals().await
    }

    async fn watch(&self, queue: QueueId) -> Result<(), Failure> {
        self.database.watch(queue).await
    }
}

impl Server for Broken {}

impl Limited {
    fn remove(&mut self, breaks: Breaks, messages: &mut Vec<Stored>) {
        let letter = messages.iter().position(|message| self.sent.contains(&message.id));
        match (breaks, letter, &self.broken) {
            (Breaks::Loses, Some(letter), None) => {
                self.broken = Some(messages.remove(letter));
                self.is_broken = true;
            }
            (Breaks::Doubles, Some(letter), None) => self.broken = Some(messages[letter].clone()),
            (Breaks::Doubles, _, Some(broken)) if !self.is_broken => {
                messages.push(broken.clone());
                messages.sort_by_key(|message| message.id);
                self.is_broken = true;
            }
            (Breaks::Early | Breaks::Late, Some(_), _) => self.is_broken = true,
            _ => {}
        }
    }
}

/// Whoever judges histories has to be judged, too: by those that are, and by those that cannot be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_breaks_the_promises_of_dead_letters_is_found_out() {
    let options = sqlite::Options { file: None, durable: true, tell: |_| {} };
    for (breaks, found) in [
        (Breaks::Loses, &["is missing", "is overtaken"][..]),
        (Breaks::Doubles, &["was had twice"]),
        (Breaks::Early, &["is leased elsewhere", "has attempts that nobody has seen"]),
        (Breaks::Late, &["is leased elsewhere", "is elsewhere"]),
    ] {
        let database = Sqlite::open(&options).unwrap();
        let limited = Arc::new(Mutex::new(Limited::default()));
        let broken = Broken { database, breaks, limited: Arc::clone(&limited) };
        let history = History::new([broken], Mix::All).await;
        let others = Arc::clone(&history);
        let until_broken = async || others.give_up(|| limited.lock().unwrap().is_broken).await;
        let why = verify(&history.events(1, 120, until_broken).await).unwrap_err();
        assert!(found.iter().any(|found| why.contains(found)), "{breaks:?}: {why}");
    }
}

/// A database that puts back at once what is leased for long.
struct Hasty(Sqlite);

impl Database for Hasty {
    async fn call(&self, request: Request, stages: &mut Stages) -> Result<Answer, Failure> {
        let is_long = matches!(request, Request::Lease { visibility, .. } if visibility == LONG);
        let answer = self.0.call(request, stages).await?;
        if let Answer::Leased(leased) = &answer
            && is_long
        {
            let leases = leased.iter().map(lease_of).collect();
            self.0.call(Request::Release { leases }, stages).await?;
        }
        Ok(answer)
    }

    async fn arrivals(&self) -> Result<broadcast::Receiver<Arrival>, Failure> {
        self.0.arrivals().await
    }

    async fn watch(&self, queue: QueueId) -> Result<(), Failure> {
        self.0.watch(queue).await
    }
}

impl Server for Hasty {}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_hide_what_is_leased_is_found_out() {
    let options = sqlite::Options { file: None, durable: true, tell: |_| {} };
    let history = History::new([Hasty(Sqlite::open(&options).unwrap())], Mix::All).await;
    let others = Arc::clone(&history);
    let until_had = async || others.have_what_is_leased().await;
    let why = verify(&history.events(1, 120, until_had).await).unwrap_err();
    assert!(why.contains("is hidden by"), "{why}");
}
