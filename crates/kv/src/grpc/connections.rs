//! Connections, no more at a time than were allowed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::meter::Meter;

/// How long nobody is taken after the system refused a connection.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// A connection, and its place among those that are allowed.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
    meter: Arc<Meter>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.meter.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections of a listener. Further ones wait until others have gone.
pub(super) fn connections(
    listener: TcpListener,
    connections_max: usize,
    meter: Arc<Meter>,
) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(connections_max));
    unfold((listener, places, meter), |(listener, places, meter)| async {
        let permit = Arc::clone(&places).acquire_owned().await.ok()?;
        let stream = loop {
            let accepted = listener.accept().await;
            match accepted.and_then(|(stream, _)| stream.set_nodelay(true).map(|()| stream)) {
                Ok(stream) => break stream,
                // Out of descriptors, most likely: come back when some may be free. Whoever is gone
                // already only waited as long.
                Err(_) => tokio::time::sleep(REFUSED_PAUSE).await,
            }
        };
        meter.connections.fetch_add(1, Ordering::Relaxed);
        let connection = Connection { stream, _permit: permit, meter: Arc::clone(&meter) };
        Some((Ok(connection), (listener, places, meter)))
    })
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
