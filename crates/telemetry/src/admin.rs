//! The admin port: `GET /metrics` and `GET /healthz`, apart from the data port.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::prometheus;

/// The longest request head that is read.
const REQUEST_BYTES_MAX: usize = 8 * 1024;

/// Most bytes that are read from a refused client after the answer. See [`drain`].
const DRAIN_BYTES_MAX: usize = 64 * 1024;

/// Time limit of a client's request and its answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A thread that serves one connection at a time. Scrapes are rare and short, and further connections wait in the
/// listener's backlog, which is bounded.
#[derive(Debug)]
pub(crate) struct Admin {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Admin {
    /// Serves `metrics` on `listener` until [`Admin::stop`].
    pub(crate) fn start(
        listener: TcpListener,
        metrics: impl Fn() -> String + Send + 'static,
    ) -> io::Result<Admin> {
        // The listener may have been made for an event loop.
        listener.set_nonblocking(false)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || serve(&listener, &stopping, &metrics))?;
        Ok(Admin { address, stop, thread })
    }

    /// Ends the thread, after its current request.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        // A connection wakes the thread. Without a connection, the thread ends with the process.
        if TcpStream::connect_timeout(&self.address, PATIENCE).is_ok() {
            let _ = self.thread.join();
        }
    }
}

fn serve(listener: &TcpListener, stop: &AtomicBool, metrics: &impl Fn() -> String) {
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            // A failure concerns this client alone.
            Ok((stream, _)) => drop(answer(stream, metrics)),
            // Probably out of descriptors: try again later.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(mut stream: TcpStream, metrics: &impl Fn() -> String) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let complete = read_head(&mut stream, &mut head, deadline)?;
    let response = if complete {
        respond(&head, metrics)
    } else {
        Response::text("400 Bad Request", "the request is too long or ends early\n")
    };
    write_until(&mut stream, response.to_string().as_bytes(), deadline)?;
    stream.shutdown(Shutdown::Write)?;
    drain(&mut stream, deadline)
}

/// Reads until the empty line that ends a head; `false` if the head is too long or incomplete.
fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>, deadline: Instant) -> io::Result<bool> {
    let mut chunk = [0; 1024];
    loop {
        let length = read_until(stream, &mut chunk, deadline)?;
        if length == 0 {
            return Ok(false);
        }
        head.extend_from_slice(&chunk[..length]);
        if head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            return Ok(true);
        }
        if head.len() >= REQUEST_BYTES_MAX {
            return Ok(false);
        }
    }
}

/// Reads the client's remaining bytes. Closing a socket with unread bytes would reset the connection, and the client
/// would lose the answer.
fn drain(stream: &mut TcpStream, deadline: Instant) -> io::Result<()> {
    let mut chunk = [0; 4096];
    let mut drained = 0;
    while drained < DRAIN_BYTES_MAX {
        match read_until(stream, &mut chunk, deadline)? {
            0 => break,
            length => drained += length,
        }
    }
    Ok(())
}

/// Reads once, until `deadline` at the latest, even if the bytes come slowly.
fn read_until(stream: &mut TcpStream, chunk: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        match stream.read(chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Writes all of `bytes`, or fails at `deadline`, even if the client reads slowly.
fn write_until(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

struct Response {
    status: &'static str,
    headers: &'static str,
    content_type: &'static str,
    body: String,
}

impl Response {
    fn text(status: &'static str, body: &str) -> Response {
        Response {
            status,
            headers: "",
            content_type: "text/plain; charset=utf-8",
            body: body.to_owned(),
        }
    }
}

impl std::fmt::Display for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}",
            self.status,
            self.content_type,
            self.body.len(),
            self.headers,
            self.body
        )
    }
}

/// The answer to a complete request head.
fn respond(head: &[u8], metrics: &impl Fn() -> String) -> Response {
    let bad = |why| Response::text("400 Bad Request", why);
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or(head);
    let Ok(line) = std::str::from_utf8(line) else {
        return bad("the request line is not text\n");
    };
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return bad("expected METHOD TARGET VERSION\n");
    };
    if !version.starts_with("HTTP/1.") {
        return bad("expected HTTP/1.0 or HTTP/1.1\n");
    }
    let path = target.split('?').next().unwrap_or(target);
    match (path, method) {
        ("/metrics", "GET") => Response {
            status: "200 OK",
            headers: "",
            content_type: prometheus::CONTENT_TYPE,
            body: metrics(),
        },
        ("/healthz", "GET") => Response::text("200 OK", "ok\n"),
        ("/metrics" | "/healthz", _) => Response {
            headers: "Allow: GET\r\n",
            ..Response::text("405 Method Not Allowed", "use GET\n")
        },
        _ => Response::text("404 Not Found", "not found: use /metrics or /healthz\n"),
    }
}
