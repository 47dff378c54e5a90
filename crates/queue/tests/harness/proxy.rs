//! A proxy between a server and its database. It counts connections, delays or refuses new ones, and holds back
//! answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use knee_queue::postgres::Options;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy, which ends with its test.
pub(crate) struct Proxy {
    connections: AtomicUsize,
    /// Whether new connections wait.
    holds: watch::Sender<bool>,
    refuses: AtomicBool,
    /// Whether answers wait.
    silent: watch::Sender<bool>,
}

impl Proxy {
    /// Starts a proxy; returns the options that connect through it as well.
    pub(crate) async fn start(options: &Options) -> (Arc<Proxy>, Options) {
        let (_, address) = options.address.split_once('@').unwrap();
        let (database, name) = address.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let proxy = Arc::new(Proxy {
            connections: AtomicUsize::new(0),
            holds: watch::Sender::new(false),
            refuses: AtomicBool::new(false),
            silent: watch::Sender::new(false),
        });
        tokio::spawn(Arc::clone(&proxy).accept(listener, database.to_owned()));
        let address = format!("postgresql://knee@{own}/{name}");
        (proxy, Options { address, ..options.clone() })
    }

    /// The number of connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Delays new connections from now on, or no longer.
    pub(crate) fn hold(&self, holds: bool) {
        self.holds.send_replace(holds);
    }

    /// Refuses new connections from now on, or no longer.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Holds back all answers from now on, or lets them pass.
    pub(crate) fn silence(&self, silent: bool) {
        self.silent.send_replace(silent);
    }

    async fn accept(self: Arc<Proxy>, listener: TcpListener, database: String) {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            self.connections.fetch_add(1, Ordering::SeqCst);
            if self.refuses.load(Ordering::SeqCst) {
                continue;
            }
            let (proxy, mut holds) = (Arc::clone(&self), self.holds.subscribe());
            let database = database.clone();
            tokio::spawn(async move {
                holds.wait_for(|holds| !holds).await.unwrap();
                let database = TcpStream::connect(database).await.unwrap();
                // If one end is lost, the proxy closes the other end.
                let _ = proxy.pass(client, database).await;
            });
        }
    }

    async fn pass(&self, mut client: TcpStream, mut database: TcpStream) -> std::io::Result<()> {
        let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        let mut silent = self.silent.subscribe();
        loop {
            tokio::select! {
                length = client.read(&mut asked) => {
                    let asked = &asked[..length?];
                    if asked.is_empty() {
                        return Ok(());
                    }
                    database.write_all(asked).await?;
                }
                length = database.read(&mut answered) => {
                    silent.wait_for(|silent| !silent).await.unwrap();
                    let answered = &answered[..length?];
                    client.write_all(answered).await?;
                    if answered.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
    }
}
