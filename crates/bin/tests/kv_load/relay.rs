//! What stands between a load and its store, and loses answers and connections when it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Takes connections to a store, until it is told to answer no more and then to cut them.
pub(crate) struct Relay {
    pub(crate) address: String,
    pub(crate) mute: Arc<Mute>,
    pub(crate) cut: Arc<AtomicBool>,
}

#[derive(Default)]
pub(crate) struct Mute {
    pub(crate) on: AtomicBool,
    /// How often something was not passed on.
    pub(crate) lost: AtomicUsize,
}

impl Relay {
    pub(crate) fn to(store: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (mute, cut) = (Arc::<Mute>::default(), Arc::<AtomicBool>::default());
        let relay = Relay { address, mute: Arc::clone(&mute), cut: Arc::clone(&cut) };
        let store = store.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&store).unwrap();
                // A connection that comes later is not cut.
                let later = cut.load(Ordering::SeqCst);
                let (mute, cut) = match later {
                    true => (Arc::default(), Arc::default()),
                    false => (Arc::clone(&mute), Arc::clone(&cut)),
                };
                let (to_server, to_client) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                pass_on(client, to_server, Arc::default(), Arc::clone(&cut));
                pass_on(server, to_client, mute, cut);
            }
        });
        relay
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mute: Arc<Mute>, cut: Arc<AtomicBool>) {
    from.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while !cut.load(Ordering::SeqCst) {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) if !mute.on.load(Ordering::SeqCst) => {
                    to.write_all(&buffer[..read]).unwrap();
                }
                Ok(_) => _ = mute.lost.fetch_add(1, Ordering::SeqCst),
                // Not there yet.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        // The other direction may have done it already.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
