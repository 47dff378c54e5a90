//! Random histories over gRPC, while `knee-queue` is killed under load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use knee_queue::database::{Arrival, Database, Failure, Stages};
use knee_queue::operation::{Answer, Lease, Request, Stored};
use knee_random::Random;
use knee_rpc::queue::queue_client::QueueClient;
use knee_rpc::queue::{self as rpc, LeaseId};
use knee_testkit::free_address;
use tokio::sync::{Mutex, broadcast};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::harness::cluster::{Cluster, name};
use crate::harness::desk::PATIENCE;
use crate::harness::history::{CLIENTS, History, Mix, seeds};
use crate::program::{Program, QUEUE};

/// A client's view of a server, which is killed and restarted at the same address.
struct Remote {
    endpoint: Endpoint,
    /// The present connection.
    client: Mutex<Option<QueueClient<Channel>>>,
}

impl Remote {
    fn new(address: &str) -> Remote {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Remote { endpoint: endpoint.tcp_nodelay(true), client: Mutex::default() }
    }

    async fn client(&self) -> Result<QueueClient<Channel>, Failure> {
        let mut client = self.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let channel = self.endpoint.connect().await;
        let channel = channel.map_err(|error| Failure::Unavailable(error.to_string()))?;
        Ok(client.insert(QueueClient::new(channel)).clone())
    }

    async fn ask(client: &mut QueueClient<Channel>, request: Request) -> Asked {
        // Calls wait, so that kills also hit waiting calls.
        let wait_ms = 20;
        match request {
            Request::RegisterClient { .. } => {
                let answer = client.register_client(rpc::RegisterClientRequest {}).await?;
                Ok(Answer::Id(answer.into_inner().client))
            }
            Request::CreateQueue { creator, settings } => {
                let (dead_letter_queue, attempts_max) =
                    (settings.dead_letters, Some(settings.attempts_max));
                let request = rpc::CreateQueueRequest {
                    creator,
                    dead_letter_queue,
                    attempts_max,
                    retention_ms: None,
                };
                Ok(Answer::Id(client.create_queue(request).await?.into_inner().queue))
            }
            Request::Send { sender, messages } => {
                let messages = messages
                    .into_iter()
                    .map(|m| rpc::Outgoing {
                        receiver: m.receiver,
                        queue: m.queue,
                        content: m.content,
                    })
                    .collect();
                let answer = client.send(rpc::SendRequest { sender, messages }).await?;
                Ok(Answer::Sent(answer.into_inner().ids))
            }
            Request::ListQueues { receiver } => {
                let request = rpc::ListQueuesRequest { receiver };
                Ok(Answer::Queues(client.list_queues(request).await?.into_inner().queues))
            }
            Request::Read { receiver, queue, count, .. } => {
                let request = rpc::ReadAllRequest { receiver, queue };
                let mut parts = client.read_all(request).await?.into_inner();
                // Only the first part shows a single moment.
                let part = parts.message().await?.unwrap_or_default();
                let first = part.messages.into_iter().take(count as usize);
                Ok(Answer::Messages(first.map(stored).collect()))
            }
            Request::Remove { receiver, queue, count, .. } => {
                let request = rpc::RemoveRequest { receiver, queue, count, wait_ms };
                let messages = client.remove(request).await?.into_inner().messages;
                Ok(Answer::Messages(messages.into_iter().map(stored).collect()))
            }
            Request::Lease { receiver, queue, count, visibility, .. } => {
                let visibility_ms = visibility.as_millis() as u64;
                let request = rpc::LeaseRequest { receiver, queue, count, wait_ms, visibility_ms };
                let leases = client.lease(request).await?.into_inner().leases;
                let leased =
                    |leased: rpc::Leased| (stored(leased.message.unwrap()), leased.attempt);
                Ok(Answer::Leased(leases.into_iter().map(leased).collect()))
            }
            Request::Acknowledge { leases } => {
                let leases = leases.into_iter().map(lease_id).collect();
                let answer = client.acknowledge(rpc::AcknowledgeRequest { leases }).await?;
                Ok(Answer::Ended(answer.into_inner().ended.into_iter().map(lease).collect()))
            }
            Request::Release { leases } => {
                let leases = leases.into_iter().map(lease_id).collect();
                let answer = client.release(rpc::ReleaseRequest { leases }).await?;
                Ok(Answer::Ended(answer.into_inner().ended.into_iter().map(lease).collect()))
            }
            Request::Extend { leases, visibility } => {
                let leases = leases.into_iter().map(lease_id).collect();
                let visibility_ms = visibility.as_millis() as u64;
                let answer = client.extend(rpc::ExtendRequest { leases, visibility_ms }).await?;
                Ok(Answer::Ended(answer.into_inner().ended.into_iter().map(lease).collect()))
            }
            Request::Counts => {
                let rpc::CountsResponse { messages, clients, queues } =
                    client.counts(rpc::CountsRequest {}).await?.into_inner();
                Ok(Answer::Counts(knee_queue::operation::Counts { messages, clients, queues }))
            }
            other => panic!("no history has {other:?}"),
        }
    }
}

type Asked = Result<Answer, Status>;

fn stored(message: rpc::Stored) -> Stored {
    let rpc::Stored { id, sender, receiver, queue, arrived_at_us, content } = message;
    Stored { id, sender, receiver, queue, arrived_at_us, content }
}

fn lease_id(Lease { message, attempt }: Lease) -> LeaseId {
    LeaseId { message, attempt }
}

fn lease(LeaseId { message, attempt }: LeaseId) -> Lease {
    Lease { message, attempt }
}

impl Database for Remote {
    async fn call(&self, request: Request, _: &mut Stages) -> Result<Answer, Failure> {
        let mut client = self.client().await?;
        let status = match Remote::ask(&mut client, request).await {
            Ok(answer) => return Ok(answer),
            Err(status) => status,
        };
        let text = status.to_string();
        // The status is not the server's: the outcome of the call is unknown.
        if std::error::Error::source(&status).is_some() {
            *self.client.lock().await = None;
            return Err(Failure::Unknown(text));
        }
        Err(match status.code() {
            Code::Unavailable => Failure::Unavailable(text),
            Code::Unknown => Failure::Unknown(text),
            Code::ResourceExhausted => Failure::TooLate(text),
            _ => Failure::Broken(text),
        })
    }

    fn arrivals(&self) -> broadcast::Receiver<Option<Arrival>> {
        panic!("its calls wait at the server");
    }
}

/// Checks histories of clients while `kills` servers are killed. Each kill waits for `loaded`. The `sessions` of a
/// killed server outlast it: the database continues their calls.
async fn check_killed(
    flags: impl Fn(usize) -> Vec<String>,
    (servers, kills): (usize, usize),
    mix: Mix,
    seed: u64,
    loaded: impl AsyncFn(),
    sessions: impl AsyncFn(usize) -> Vec<String>,
) {
    let addresses: Vec<_> = (0..servers).map(|_| free_address()).collect();
    let start = |number: usize| {
        let flags = flags(number);
        let flags = flags.iter().map(String::as_str);
        let listen = ["--listen", addresses[number].as_str()];
        Some(Program::start(QUEUE, &listen.into_iter().chain(flags).collect::<Vec<_>>()))
    };
    let mut running: Vec<_> = (0..servers).map(start).collect();
    // Each client has its own connections to two servers: the server with its number, and the next.
    let clients = CLIENTS as usize;
    let remotes = (0..2 * clients).map(|n| Remote::new(&addresses[(n + n / clients) % servers]));
    let history = History::new(remotes, mix).await;
    let faulty = Arc::clone(&history);
    let mut random = Random::stream(seed, 96);
    let faults = async || {
        let mut abandoned = Vec::new();
        for _ in 0..kills {
            loaded().await;
            let number = random.below(servers as u64) as usize;
            let killed = running[number].take().unwrap();
            killed.signal(libc::SIGKILL);
            assert_eq!(killed.end().code, None);
            abandoned.extend(sessions(number).await);
            running[number] = start(number);
        }
        loaded().await;
        // Wait for the abandoned sessions: their removes would take messages that the history does not know of.
        let begun = Instant::now();
        for number in 0..servers {
            while sessions(number).await.iter().any(|session| abandoned.contains(session)) {
                assert!(begun.elapsed() < PATIENCE, "a session goes on without its server");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        faulty.stop();
        Vec::new()
    };
    history.check(seed, u32::MAX, true, faults).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_two_servers_over_postgresql_lose_nothing() {
    let cluster = Cluster::shared();
    for (seed, (combine, mix)) in
        seeds().flat_map(|seed| [("1", Mix::Removes), ("8", Mix::All)].map(|with| (seed, with)))
    {
        let options = cluster.migrated().await;
        let address = &options.address;
        let database = name(&options);
        cluster.log_calls(database).await;
        let direct = cluster.connect(database).await;
        let flags = |number| {
            let address = format!("{address}?application_name=knee-queue-{number}");
            ["--database", &address, "--connections", "3", "--combine", combine]
                .map(str::to_owned)
                .to_vec()
        };
        let sessions = async |number| {
            let of = "SELECT pid || ' ' || backend_start FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'knee-queue-' || $1";
            let rows = direct.query(of, &[&format!("{number}")]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        };
        let loaded = async || cluster.floors_are_up(database, 0).await;
        check_killed(flags, (2, 2), mix, seed, loaded, sessions).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_a_server_over_sqlite_lose_nothing() {
    for seed in seeds() {
        let directory =
            std::env::temp_dir().join(format!("knee-killed-{}-{seed}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let database = format!("sqlite:{}", directory.join("messages.db").display());
        let flags = |_| vec!["--database".to_owned(), database.clone()];
        let loaded = async || tokio::time::sleep(Duration::from_millis(50)).await;
        check_killed(flags, (1, 5), Mix::All, seed, loaded, async |_| Vec::new()).await;
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
