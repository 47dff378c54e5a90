//! The phase in which servers load a file from their own disks.

use std::net::SocketAddr;

use knee_rpc::kv::{InitRequest, InitResponse};
use knee_telemetry::tell;
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::calls::{KvCalls, Stub};
use crate::error::Error;
use crate::grpc::Failure;
use crate::run::end_with;

/// Makes each of `servers` load the edges in `file` of its --init-dir. Returns a summary as a line of JSON.
///
/// # Errors
/// When a server does not finish, with its answer; when interrupted. Loaded edges stay, and the next load continues the
/// interrupted one.
pub(crate) fn init(
    servers: &[SocketAddr],
    file: &str,
    parent: Option<u32>,
) -> Result<String, Error> {
    let (end, mut ended) = watch::channel(false);
    end_with(parent, move || {
        end.send_replace(true);
    })?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::System)?;
    let servers = runtime.block_on(async {
        tokio::select! {
            loaded = load_all(servers, file) => loaded,
            _ = ended.wait_for(|ended| *ended) => Err(Error::Interrupted),
        }
    })?;
    let summary = Summary { r#type: "summary", role: "load", init: Init { file, servers } };
    Ok(serde_json::to_string(&summary).expect("plain data is always JSON"))
}

#[derive(Serialize)]
struct Summary<'a> {
    r#type: &'static str,
    role: &'static str,
    init: Init<'a>,
}

#[derive(Serialize)]
struct Init<'a> {
    file: &'a str,
    servers: Vec<Loaded>,
}

/// The progress of one server.
#[derive(Serialize)]
struct Loaded {
    address: SocketAddr,
    lines: u64,
    edges: u64,
    bytes: u64,
    /// Edges that earlier, interrupted loads of the file stored.
    resumed_edges: u64,
    edges_per_s: f64,
    seconds: f64,
}

/// Makes all servers load at the same time. Returns their progress in the order of `servers`.
async fn load_all(servers: &[SocketAddr], file: &str) -> Result<Vec<Loaded>, Error> {
    let mut loading = JoinSet::new();
    for (index, server) in servers.iter().enumerate() {
        let (server, file) = (*server, file.to_owned());
        loading.spawn(async move {
            let stub = KvCalls::connect(server).await;
            let stub = stub.map_err(|why| Error::Connect { server, why })?;
            let outcome = load(stub, server, file).await;
            outcome.map(|far| (index, server, far)).map_err(|why| Error::Init { server, why })
        });
    }
    let mut loaded = Vec::new();
    while let Some(ended) = loading.join_next().await {
        match ended {
            Ok(outcome) => loaded.push(outcome?),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    loaded.sort_by_key(|(index, ..)| *index);
    let loaded = loaded.into_iter().map(|(_, address, far)| Loaded {
        address,
        lines: far.lines,
        edges: far.edges,
        bytes: far.bytes,
        resumed_edges: far.resumed_edges,
        edges_per_s: far.edges_per_s,
        seconds: far.seconds,
    });
    Ok(loaded.collect())
}

async fn load(mut stub: Stub, server: SocketAddr, file: String) -> Result<InitResponse, String> {
    let why = |status: tonic::Status| format!("it {}", Failure::from(status).of("load"));
    let mut far = stub.init(InitRequest { file }).await.map_err(why)?.into_inner();
    let mut last = InitResponse::default();
    while let Some(progress) = far.message().await.map_err(why)? {
        let InitResponse { edges, edges_per_s, .. } = progress;
        tell("knee-load", format_args!("{server} has {edges} edges ({edges_per_s:.0} a second)"));
        last = progress;
    }
    if last.done { Ok(last) } else { Err("it stopped before the end of the file".into()) }
}
