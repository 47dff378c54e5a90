//! A server that takes connections, and at most answers the first call.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::program::{LOAD, Program};

/// The shortest valid start of an HTTP/2 client: the preface, and empty settings (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The shortest valid start of a server: empty settings.
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

/// The answer to a client's first call: nothing found. It has headers, an empty message and trailers (RFC 9113, 6.1 and
/// 6.2; RFC 7541, 6.1 and 6.2.2).
pub(super) const NOTHING: &[u8] = b"\0\0\x14\x01\x04\0\0\0\x01\x88\x0f\x10\x10application/grpc\
    \0\0\x05\0\0\0\0\0\x01\0\0\0\0\0\
    \0\0\x0f\x01\x05\0\0\0\x01\0\x0bgrpc-status\x010";

/// The type of ping frames, and their flag (RFC 9113, 6.7).
pub(super) const PING: u8 = 6;
pub(super) const ACK: u8 = 1;

/// A flag of the last frame of a stream (RFC 9113, 6.1).
const END_STREAM: u8 = 1;

/// Waits for the first call of a client, which is on stream 1.
pub(super) fn hear_first_call(client: &mut std::net::TcpStream) -> std::io::Result<()> {
    const DATA: u8 = 0;
    client.write_all(SETTINGS)?;
    let mut preface = [0; PREFACE.len() - SETTINGS.len()];
    client.read_exact(&mut preface)?;
    let mut frame = [0; 9];
    while frame[3..] != [DATA, END_STREAM, 0, 0, 0, 1] {
        client.read_exact(&mut frame)?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        let mut payload = vec![0; length as usize];
        client.read_exact(&mut payload)?;
        if frame[3..5] == [PING, 0] {
            let head = [0, 0, 8, PING, ACK, 0, 0, 0, 0];
            client.write_all(&[&head, &payload[..]].concat())?;
        }
    }
    Ok(())
}

/// A server that takes any connection, and at most answers the first call.
pub(super) struct Silent {
    pub(super) address: SocketAddr,
    pub(super) clients: Arc<Mutex<Vec<std::net::TcpStream>>>,
}

impl Silent {
    /// A server that sends nothing at all.
    pub(super) fn new() -> Silent {
        Silent::at("127.0.0.1:0", |_| Ok(()))
    }

    /// A server that answers only the first call. A load of registered clients makes this call before its
    /// requests, to check that the server knows them.
    pub(super) fn after_the_first_call() -> Silent {
        let has_answered = AtomicBool::new(false);
        Silent::at("127.0.0.1:0", move |client| {
            hear_first_call(client)?;
            if has_answered.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
            client.write_all(NOTHING)
        })
    }

    pub(super) fn at(
        address: &str,
        greet: impl Fn(&mut std::net::TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Silent {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let clients = Arc::<Mutex<Vec<std::net::TcpStream>>>::default();
        let (taken, greet) = (Arc::clone(&clients), Arc::new(greet));
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                taken.lock().unwrap().push(client.try_clone().unwrap());
                let greet = Arc::clone(&greet);
                std::thread::spawn(move || {
                    greet(&mut client)?;
                    std::io::copy(&mut &client, &mut std::io::sink())
                });
            }
        });
        Silent { address, clients }
    }

    /// Starts a load on the server. `flags` must give identities of registered clients: a registration would need an
    /// answer that this server never sends.
    pub(super) fn load(&self, flags: &str) -> Program {
        let flags = format!("queue --server {} --seconds 60 --drain-s 0.1 {flags}", self.address);
        let flags = format!("{flags} --arrivals constant");
        Program::start(LOAD, &flags.split(' ').collect::<Vec<_>>())
    }

    pub(super) fn cut(&self) {
        for client in &*self.clients.lock().unwrap() {
            // The client may have left.
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}
