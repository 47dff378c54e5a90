//! One connection.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Instant;

use h2::Reason;
use knee_rpc::kv::StatsRequest;
use knee_rpc::kv::key_value_client::KeyValueClient;
use tokio::net::TcpStream;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::InvalidUri;
use tonic::{Code, Status};

use super::ANSWER_BYTES_MAX;
use super::connection::Connection;
use super::message::Request;
use super::wanted::Wanted;
use crate::backoff::Backoff;
use crate::error::Unusable;
use crate::kv::sightings::Sightings;
use crate::run::CONNECT_TIMEOUT;

const WANTED: Wanted = Wanted { server: "knee-kv", service: "knee.kv.v1" };

pub(super) type Client = KeyValueClient<Connection>;

/// A connection that stands, or was not seen to be lost yet.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) client: Client,
    connection: Connection,
}

impl Standing {
    /// Whether it takes no requests any more.
    pub(super) fn is_lost(&mut self) -> bool {
        self.connection.is_lost()
    }
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Link {
    /// The server's number, and its address.
    pub(super) server: usize,
    pub(super) address: SocketAddr,
    /// `None` while it is known to be lost.
    pub(super) standing: RefCell<Option<Standing>>,
    /// How often it was lost.
    pub(super) losses: Cell<u64>,
    pub(super) backoff: Backoff,
    pub(super) in_flight: Cell<usize>,
    /// Writes that were in flight when it was lost.
    pub(super) again: RefCell<Vec<Request>>,
    /// What answers are verified against; kept only for that.
    pub(super) sightings: RefCell<Sightings>,
}

impl Link {
    pub(super) fn new(server: usize, address: SocketAddr) -> Link {
        Link {
            server,
            address,
            standing: RefCell::default(),
            losses: Cell::default(),
            backoff: Backoff::new(Instant::now()),
            in_flight: Cell::default(),
            again: RefCell::default(),
            sightings: RefCell::default(),
        }
    }
}

/// Connects. A connection stands when a first call has come back: so that a server that speaks
/// something else is found out, and what both sides make for a connection is made.
pub(super) async fn connect(address: SocketAddr) -> Result<Standing, Unusable> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, first_call(address)).await;
    connected.unwrap_or(Err(Unusable::Silent(CONNECT_TIMEOUT)))
}

async fn first_call(address: SocketAddr) -> Result<Standing, Unusable> {
    let (connection, origin) = open(address, &WANTED).await?;
    let client = KeyValueClient::with_origin(connection.clone(), origin);
    let mut client = client.max_decoding_message_size(ANSWER_BYTES_MAX);
    let stats = client.stats(StatsRequest {}).await;
    stats.map_err(|status| WANTED.first_failure(&status, "a stats"))?;
    Ok(Standing { client, connection })
}

/// Opens a connection; with whom calls on it are made.
pub(crate) async fn open(
    address: SocketAddr,
    wanted: &Wanted,
) -> Result<(Connection, Uri), Unusable> {
    let unconnected = |error: &dyn Error| Unusable::Unconnected(why(error));
    let origin: Uri =
        format!("http://{address}").parse().map_err(|error: InvalidUri| unconnected(&error))?;
    let stream = TcpStream::connect(address).await.map_err(|error| unconnected(&error))?;
    stream.set_nodelay(true).map_err(|error| unconnected(&error))?;
    Ok((Connection::on(stream, wanted).await?, origin))
}

/// What a server said.
pub(crate) fn told(status: &Status) -> String {
    match status.message() {
        "" => format!("{:?}", status.code()),
        message => format!("{:?}: {message}", status.code()),
    }
}

/// Whether a call failed because its connection is of no more use. What the server says of one call has no further cause
/// here, but that it resets its stream.
pub(crate) fn is_lost(status: &Status) -> bool {
    status.source().is_some() && reset(status).is_none()
}

/// Whether a call that failed so leaves open whether the server did what it was asked. Of `Unavailable` that rests on
/// what Knee's servers mean by it: they say it before anything is done. Where a proxy on the way says
/// as much, a [`Connection`] makes it `Unknown`.
pub(crate) fn leaves_open(status: &Status) -> bool {
    match reset(status) {
        // Nothing was done for a stream that is refused (RFC 9113, section 8.7).
        Some(reason) => reason != Reason::REFUSED_STREAM,
        None => matches!(
            status.code(),
            Code::Unknown | Code::Cancelled | Code::DeadlineExceeded | Code::Internal
        ),
    }
}

/// Why a call's stream was reset, if it was.
fn reset(status: &Status) -> Option<Reason> {
    let error = status.source()?.downcast_ref::<h2::Error>()?;
    error.reason().filter(|_| error.is_reset())
}

/// What is at the bottom of an error: the layers above it say no more than that it is one.
pub(crate) fn why(error: &dyn Error) -> String {
    let mut bottom = error;
    while let Some(source) = bottom.source() {
        bottom = source;
    }
    bottom.to_string()
}
