//! The admin port: `GET /metrics` and `GET /healthz`, apart from the data port.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::prometheus;

const REQUEST_BYTES_MAX: u64 = 8 * 1024;

/// Largest number of clients served at a time, each by its own thread. A further client takes the place of the oldest.
const CLIENTS_MAX: usize = 32;

/// How long a client may keep its thread waiting for its next bytes, or for room for the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves `metrics` on `listener` until the process ends.
pub(crate) fn serve(
    listener: TcpListener,
    metrics: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<()> {
    // The listener may have been made for an event loop.
    listener.set_nonblocking(false)?;
    let metrics = Arc::new(metrics);
    thread::Builder::new().name("admin".to_owned()).spawn(move || {
        let mut clients = VecDeque::new();
        loop {
            match listener.accept() {
                // A failure concerns this client alone.
                Ok((stream, _)) => drop(admit(stream, &mut clients, &metrics)),
                // Probably out of descriptors: try again later.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(())
}

/// A client's thread, and its connection while the thread serves it.
type Client = (thread::JoinHandle<()>, Weak<TcpStream>);

fn admit(
    stream: TcpStream,
    clients: &mut VecDeque<Client>,
    metrics: &Arc<impl Fn() -> String + Send + Sync + 'static>,
) -> io::Result<()> {
    clients.retain(|(thread, _)| !thread.is_finished());
    if clients.len() == CLIENTS_MAX
        && let Some((thread, oldest)) = clients.pop_front()
    {
        if let Some(oldest) = oldest.upgrade() {
            // This fails if the client has left, which ends the thread, too.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        // A panic concerned that client alone.
        let _ = thread.join();
    }
    let (stream, metrics) = (Arc::new(stream), Arc::clone(metrics));
    let served = Arc::downgrade(&stream);
    let thread = thread::Builder::new().name("admin-client".to_owned()).spawn(move || {
        // A failure concerns this client alone.
        let _ = answer(&stream, &*metrics);
    })?;
    clients.push_back((thread, served));
    Ok(())
}

fn answer(mut stream: &TcpStream, metrics: &impl Fn() -> String) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = BufReader::new(stream.take(REQUEST_BYTES_MAX));
    let mut request = String::new();
    head.read_line(&mut request)?;
    // Closing a socket with unread bytes would reset the connection, and the client would lose the answer.
    let mut header = String::new();
    while head.read_line(&mut header)? > "\r\n".len() {
        header.clear();
    }
    const TEXT: &str = "text/plain; charset=utf-8";
    let mut words = request.split([' ', '?']);
    let (status, content_type, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => ("200 OK", prometheus::CONTENT_TYPE, metrics()),
        (Some("GET"), Some("/healthz")) => ("200 OK", TEXT, "ok\n".to_owned()),
        _ => ("404 Not Found", TEXT, "not found: GET /metrics or /healthz\n".to_owned()),
    };
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(response.as_bytes())
}
