//! A phase before a load, such as filling a store.

use std::future::Future;
use std::net::SocketAddr;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::timeout;

use super::calls::Calls;
use super::connection::Connection;
use crate::error::{Error, Unusable};
use crate::run::{CONNECT_TIMEOUT, end_with};

/// Connects to a server, and greets it.
pub(crate) async fn connect<C: Calls>(
    server: SocketAddr,
    greet: impl AsyncFnOnce(&mut C::Stub) -> Result<(), Unusable>,
) -> Result<C::Stub, Error> {
    let opened = async {
        let (connection, origin) = Connection::open(server, &C::SERVICE).await?;
        let mut stub = C::stub(connection, origin);
        greet(&mut stub).await?;
        Ok(stub)
    };
    let opened = timeout(CONNECT_TIMEOUT, opened).await;
    let opened = opened.unwrap_or(Err(Unusable::Silent(CONNECT_TIMEOUT)));
    opened.map_err(|why| Error::Connect { server, why })
}

/// Does `work` on its own runtime, until a signal or the end of the process `parent`.
pub(crate) fn phase<T>(
    parent: Option<u32>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let (end, mut ended) = watch::channel(false);
    end_with(parent, move || {
        end.send_replace(true);
    })?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::System)?;
    runtime.block_on(async {
        tokio::select! {
            outcome = work => outcome,
            _ = ended.wait_for(|ended| *ended) => Err(Error::Interrupted),
        }
    })
}
