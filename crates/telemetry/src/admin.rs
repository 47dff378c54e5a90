//! The admin port: `GET /metrics` and `GET /healthz`, apart from the data port.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::prometheus;

/// The longest request that is read.
const REQUEST_BYTES_MAX: u64 = 8 * 1024;

/// How long a client may keep the thread waiting for its next bytes, or for room for the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves `metrics` on `listener` until the process ends. A thread serves one connection at a time. Scrapes are rare
/// and short, and further connections wait in the listener's backlog, which is bounded.
pub(crate) fn serve(
    listener: TcpListener,
    metrics: impl Fn() -> String + Send + 'static,
) -> io::Result<()> {
    // The listener may have been made for an event loop.
    listener.set_nonblocking(false)?;
    thread::Builder::new().name("admin".to_owned()).spawn(move || {
        loop {
            match listener.accept() {
                // A failure concerns this client alone.
                Ok((stream, _)) => drop(answer(&stream, &metrics)),
                // Probably out of descriptors: try again later.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
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
