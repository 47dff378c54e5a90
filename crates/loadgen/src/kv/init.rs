//! The phase in which servers load a file from their own disks.

use std::net::SocketAddr;

use knee_rpc::kv::{InitRequest, InitResponse};
use knee_telemetry::tell;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::calls::{KvCalls, Stub};
use crate::error::Error;
use crate::grpc::{Failure, phase};

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
    let servers = phase(parent, load_all(servers, file))?;
    let init = json!({ "file": file, "servers": servers });
    Ok(json!({ "type": "summary", "role": "load", "init": init }).to_string())
}

/// Makes all servers load at the same time. Returns their progress in the order of `servers`.
async fn load_all(servers: &[SocketAddr], file: &str) -> Result<Vec<Value>, Error> {
    let mut loading = JoinSet::new();
    for (index, server) in servers.iter().enumerate() {
        let (server, file) = (*server, file.to_owned());
        loading.spawn(async move {
            let stub = KvCalls::connect(server).await?;
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
    let loaded = loaded.into_iter().map(|(_, address, far)| {
        json!({
            "address": address,
            "lines": far.lines,
            "edges": far.edges,
            "bytes": far.bytes,
            // Edges that earlier, interrupted loads of the file stored.
            "resumed_edges": far.resumed_edges,
            "edges_per_s": far.edges_per_s,
            "seconds": far.seconds,
        })
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
