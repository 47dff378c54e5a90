//! Threads that share a listener, and end together.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use mio::Poll;
use socket2::{Domain, Socket, Type};

use crate::buffer::Pool;
use crate::event_loop::{EventLoop, Handler};
use crate::io::{Config, Io, TIMER, WAKE};
use crate::room::{Holding, Room};
use crate::shared::{Shared, Thread, Waker};
use crate::timer::Timers;

/// Ends a group from outside.
#[derive(Clone, Debug)]
pub struct Shutdown {
    shared: Arc<Shared>,
}

impl Shutdown {
    /// Begins the shutdown: the group stops accepting, and each thread calls its handler's `on_shutdown`. Repeated
    /// calls have no effect.
    pub fn begin(&self) {
        self.shared.shutdown.store(true, Ordering::Release);
        for thread in &self.shared.threads {
            thread.waker.wake();
        }
    }
}

/// Begins the shutdown of the whole group when its thread ends, even by a panic.
struct EndsTogether(Shutdown);

impl Drop for EndsTogether {
    fn drop(&mut self) {
        self.0.begin();
    }
}

/// Largest number of connections that wait to be accepted, unless the system's limit (`net.core.somaxconn`) is lower.
const BACKLOG: i32 = 4096;

/// Binds a listening socket; with port 0, to any free port.
///
/// # Errors
/// When the address is in use, not this machine's, or not allowed.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Event loops, each with its own thread.
#[derive(Debug)]
pub struct Group {
    threads: Vec<JoinHandle<io::Result<()>>>,
    shutdown: Shutdown,
    address: Option<SocketAddr>,
}

impl Group {
    /// Starts `threads` loops, named `name-0`, `name-1`, …. `make` builds the handler of each loop from the loop's
    /// number and the wakers of all loops. The first thread accepts from `listener`, and deals the connections to all
    /// threads in turn.
    ///
    /// # Errors
    /// When the kernel refuses a poll, a timer or a thread.
    ///
    /// # Panics
    /// When `threads` is 0.
    pub fn start<H: Handler + Send + 'static>(
        name: &str,
        threads: usize,
        config: &Config,
        listener: Option<TcpListener>,
        mut make: impl FnMut(usize, &[Waker]) -> H,
    ) -> io::Result<Group> {
        assert!(threads > 0, "a group needs a thread");
        let mut parts: Vec<(Poll, Receiver<TcpStream>)> = Vec::new();
        let mut shared = Shared {
            threads: Vec::new(),
            accepted: AtomicUsize::new(0),
            shutdown: AtomicBool::new(false),
            room: Room::new(config.buffered_bytes_max, config.request_bytes_max),
        };
        for _ in 0..threads {
            let poll = Poll::new()?;
            let waker = Waker(Arc::new(mio::Waker::new(poll.registry(), WAKE)?));
            let (sender, receiver) = channel();
            shared.threads.push(Thread { inbox: sender, waker });
            parts.push((poll, receiver));
        }
        let wakers: Vec<Waker> = shared.threads.iter().map(|thread| thread.waker.clone()).collect();
        let shutdown = Shutdown { shared: Arc::new(shared) };

        let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let mut listener = listener;
        let mut loops = Vec::new();
        for (thread, (poll, inbox)) in parts.into_iter().enumerate() {
            let registry = poll.registry().try_clone()?;
            let timers = Timers::new(&registry, TIMER)?;
            let mut io = Io {
                registry,
                config: config.clone(),
                slots: Vec::new(),
                free: Vec::new(),
                open: 0,
                pool: Pool::default(),
                timers,
                now: Instant::now(),
                dirty: Vec::new(),
                queued: Vec::new(),
                closing: Vec::new(),
                listener: None,
                next_thread: threads - 1,
                stopping: false,
                holding: Holding::default(),
                drained: Vec::new(),
                shared: Arc::clone(&shutdown.shared),
                thread,
            };
            if let Some(listener) = listener.take() {
                io.listen(listener)?;
            }
            loops.push(EventLoop {
                poll,
                io,
                inbox,
                handler: make(thread, &wakers),
                accept_rests: false,
                shutdown_notified: false,
                reading: Vec::new(),
                flushing: Vec::new(),
            });
        }

        let mut group = Group { threads: Vec::new(), shutdown, address };
        for (thread, mut event_loop) in loops.into_iter().enumerate() {
            let together = EndsTogether(group.shutdown());
            let spawned =
                std::thread::Builder::new().name(format!("{name}-{thread}")).spawn(move || {
                    let _together = together;
                    event_loop.run()
                });
            match spawned {
                Ok(handle) => group.threads.push(handle),
                Err(error) => {
                    group.shutdown.begin();
                    return Err(error);
                }
            }
        }
        Ok(group)
    }

    /// The listener's address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// A handle that ends the group.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Waits until every thread has ended.
    ///
    /// # Errors
    /// The first error that ended a thread; a panic is passed on.
    pub fn join(self) -> io::Result<()> {
        let mut outcome = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(ended) => outcome = outcome.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    }
}
