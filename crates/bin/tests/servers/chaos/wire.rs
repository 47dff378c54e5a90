//! The network between the middleware and a store, which can reset all connections.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A relay to a store, at an address that outlives the store's.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    store: Mutex<SocketAddr>,
    /// The middleware's ends, and whether they were reset.
    ends: Mutex<Vec<(TcpStream, Arc<AtomicBool>)>>,
}

impl Wire {
    pub(crate) fn to(store: SocketAddr) -> Wire {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { store: Mutex::new(store), ends: Mutex::default() });
        let accepting = Arc::clone(&shared);
        // It ends with the process.
        thread::spawn(move || {
            for end in listener.incoming() {
                // The store may be dead: then the drop closes the connection.
                let _ = end.and_then(|end| accepting.relay(end));
            }
        });
        Wire { address, shared }
    }

    /// Connects to another address from now on.
    pub(crate) fn lead_to(&self, store: SocketAddr) {
        *self.shared.store.lock().unwrap() = store;
    }

    /// Resets all connections. The store first executes what it has received: no request is executed later. Its answers
    /// are lost.
    pub(crate) fn reset(&self) {
        for (end, is_reset) in self.shared.ends.lock().unwrap().drain(..) {
            is_reset.store(true, Ordering::SeqCst);
            // The connection may have ended.
            let _ = end.shutdown(Shutdown::Read);
        }
    }
}

impl Shared {
    fn relay(&self, end: TcpStream) -> io::Result<()> {
        let store = TcpStream::connect(*self.store.lock().unwrap())?;
        end.set_nodelay(true)?;
        store.set_nodelay(true)?;
        let is_reset = Arc::new(AtomicBool::new(false));
        self.ends.lock().unwrap().push((end.try_clone()?, Arc::clone(&is_reset)));
        let (asking, asked) = (end.try_clone()?, store.try_clone()?);
        thread::spawn(move || {
            copy(&asking, &asked, &AtomicBool::new(false));
            let _ = asked.shutdown(Shutdown::Write);
        });
        thread::spawn(move || {
            copy(&store, &end, &is_reset);
            reset_when_closed(&end);
            let _ = end.shutdown(Shutdown::Both);
        });
        Ok(())
    }
}

/// Copies until an end of the connection is gone; drops bytes once `is_dropped`.
fn copy(mut from: &TcpStream, mut to: &TcpStream, is_dropped: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read) = from.read(&mut bytes)
        && read > 0
    {
        if !is_dropped.load(Ordering::SeqCst) && to.write_all(&bytes[..read]).is_err() {
            return;
        }
    }
}

/// Makes the end of a connection a reset.
fn reset_when_closed(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the pointer and length describe `linger`, which outlives the call.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        );
    }
}

/// Resets a connection at once.
pub(crate) fn reset(stream: TcpStream) {
    reset_when_closed(&stream);
    drop(stream);
}
