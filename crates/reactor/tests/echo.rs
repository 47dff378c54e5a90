//! The loop through real sockets, with an echo server as the handler.

#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown as Half, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use knee_reactor::{Close, Config, ConnId, Group, Handler, Io, Origin, Shutdown, bind};

/// Long enough that only a lost event, not a slow machine, exceeds it.
const PATIENCE: Duration = Duration::from_secs(20);

/// The key of the timer that ends a pause.
const RESUME: u64 = 1 << 32;

#[derive(Debug, PartialEq)]
enum Seen {
    Open(usize, Origin),
    Noted,
    Timer(u64),
    Drained,
    Closed(Origin, String),
    Wake(usize),
}

/// Sends whole lines back. `pause\n` stops reading for 50 ms. `again\n` leaves the rest for another call. `want\n` asks
/// for more input than any limit. `close\n` closes the connection. `note\n` is only reported. `panic\n` panics.
struct Echo {
    seen: Sender<Seen>,
    connect_to: Option<SocketAddr>,
    timers_ms: Vec<u64>,
}

impl Echo {
    fn report(&self, seen: Seen) {
        // The test may have ended and dropped its receiver.
        let _ = self.seen.send(seen);
    }
}

impl Handler for Echo {
    fn on_start(&mut self, io: &mut Io) {
        if let Some(address) = self.connect_to {
            io.connect(address, 42).unwrap();
        }
        for &ms in &self.timers_ms {
            io.timer(io.now() + Duration::from_millis(ms), ms);
        }
    }

    fn on_open(&mut self, io: &mut Io, _conn: ConnId, origin: Origin) {
        self.report(Seen::Open(io.thread(), origin));
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        let mut consumed = 0;
        while let Some(end) = input[consumed..].iter().position(|&byte| byte == b'\n') {
            let line = &input[consumed..=consumed + end];
            consumed += line.len();
            match line {
                b"panic\n" => panic!("as the test asked"),
                b"pause\n" => {
                    io.pause(conn);
                    io.timer(io.now() + Duration::from_millis(50), RESUME);
                    return consumed;
                }
                b"again\n" => {
                    io.pause(conn);
                    io.resume(conn);
                    return consumed;
                }
                b"want\n" => {
                    io.want(conn, usize::MAX);
                    return consumed;
                }
                b"close\n" => {
                    io.close(conn);
                    return consumed;
                }
                b"note\n" => self.report(Seen::Noted),
                line => io.write(conn, line),
            }
        }
        consumed
    }

    fn on_drained(&mut self, _io: &mut Io, _conn: ConnId) {
        self.report(Seen::Drained);
    }

    fn on_close(&mut self, _io: &mut Io, _conn: ConnId, origin: Origin, why: Close) {
        let why = match why {
            Close::Refused(_) => "refused".into(),
            Close::Failed(_) => "failed".into(),
            why => format!("{why:?}"),
        };
        self.report(Seen::Closed(origin, why));
    }

    fn on_timer(&mut self, io: &mut Io, key: u64) {
        if self.timers_ms.contains(&key) {
            self.report(Seen::Timer(key));
        } else {
            let open: Vec<_> = io.ids().collect();
            open.into_iter().for_each(|(conn, _)| io.resume(conn));
        }
    }

    fn on_wake(&mut self, io: &mut Io) {
        self.report(Seen::Wake(io.thread()));
    }
}

struct Running {
    address: SocketAddr,
    seen: Receiver<Seen>,
    shutdown: Shutdown,
    group: Option<Group>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.begin();
        if let Some(group) = self.group.take() {
            group.join().unwrap();
        }
    }
}

impl Running {
    fn start(threads: usize, config: &Config) -> Running {
        let (sender, seen) = channel();
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let group = Group::start("echo", threads, config, Some(listener), |_, _| Echo {
            seen: sender.clone(),
            connect_to: None,
            timers_ms: Vec::new(),
        })
        .unwrap();
        let address = group.address().unwrap();
        Running { address, seen, shutdown: group.shutdown(), group: Some(group) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn next(&self) -> Seen {
        self.seen.recv_timeout(PATIENCE).expect("the loop should have called the handler")
    }

    fn wait_for(&self, wanted: &Seen) {
        while self.next() != *wanted {}
    }
}

fn read_exactly(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    stream.read_exact(&mut buffer).unwrap();
    buffer
}

#[test]
fn lines_come_back_however_they_are_split() {
    let running = Running::start(1, &Config::default());
    let mut stream = running.connect();
    stream.set_nodelay(true).unwrap();
    for byte in b"one\ntwo\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(read_exactly(&mut stream, 8), b"one\ntwo\n");
}

#[test]
fn line_larger_than_the_read_buffer_comes_back_whole() {
    let config = Config { read_bytes: 4096, ..Config::default() };
    let running = Running::start(1, &config);
    // The handler sees the whole line so far with each piece.
    let mut line: Vec<u8> = (0..300_000_u32).map(|i| b'a' + (i % 23) as u8).collect();
    line.push(b'\n');
    let mut stream = running.connect();
    let mut writer = stream.try_clone().unwrap();
    let sent = line.clone();
    let sending = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    assert!(read_exactly(&mut stream, line.len()) == line);
    sending.join().unwrap();
}

#[test]
fn input_beyond_the_limit_closes_the_connection() {
    let config = Config { input_bytes_max: 10_000, read_bytes: 4096, ..Config::default() };
    let running = Running::start(1, &config);
    let mut stream = running.connect();
    // The peer closes in the middle: the write may fail, the read has to end.
    let _ = stream.write_all(&[b'x'; 100_000]);
    assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)));
    running.wait_for(&Seen::Closed(Origin::Accepted, "Overflow".into()));
}

#[test]
fn wanting_more_than_the_limit_does_not_lift_it() {
    let config = Config { input_bytes_max: 200_000, read_bytes: 4096, ..Config::default() };
    let running = Running::start(1, &config);
    let mut stream = running.connect();
    let mut writer = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        // Fails in the middle, when the peer closes.
        writer.write_all(b"want\n").and_then(|()| writer.write_all(&vec![b'x'; 64 << 20]))
    });
    running.wait_for(&Seen::Closed(Origin::Accepted, "Overflow".into()));
    assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)));
    assert!(sending.join().unwrap().is_err());
}

#[test]
fn closed_connection_gets_no_more_input() {
    // The two lines come with one event, but in two receives.
    let config = Config { read_bytes: b"close\n".len(), ..Config::default() };
    let running = Running::start(1, &config);
    let mut stream = running.connect();
    stream.write_all(b"close\nnote\n").unwrap();
    assert_eq!(running.next(), Seen::Open(0, Origin::Accepted));
    assert_eq!(running.next(), Seen::Closed(Origin::Accepted, "Local".into()));
}

#[test]
fn input_consumed_in_small_parts_comes_in_order() {
    let config = Config { read_bytes: 10_000, ..Config::default() };
    let running = Running::start(1, &config);
    let mut stream = running.connect();
    let (mut sent, mut expected) = (Vec::new(), Vec::new());
    for number in 0..20_000 {
        let line = format!("line {number}\n");
        expected.extend_from_slice(line.as_bytes());
        sent.extend_from_slice(line.as_bytes());
        sent.extend_from_slice(b"again\n");
    }
    let mut writer = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    assert!(read_exactly(&mut stream, expected.len()) == expected);
    sending.join().unwrap();
}

#[test]
fn peer_that_does_not_read_is_not_read_from() {
    let config = Config {
        output_high_water_bytes: 64 * 1024,
        output_low_water_bytes: 16 * 1024,
        ..Config::default()
    };
    let running = Running::start(1, &config);
    let mut stream = running.connect();
    let mut writer = stream.try_clone().unwrap();
    let total = 64 * 1024 * 1024;
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&sent);
    let sending = std::thread::spawn(move || {
        let chunk = [b'y'; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        for _ in 0..total / chunk.len() {
            writer.write_all(&chunk).unwrap();
            counted.fetch_add(chunk.len(), std::sync::atomic::Ordering::Relaxed);
        }
    });
    // The writer stalls once the buffers of both kernels and the loop's bound are full.
    let mut before = usize::MAX;
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = sent.load(std::sync::atomic::Ordering::Relaxed);
        if now == before {
            break;
        }
        before = now;
    }
    assert!(before < total, "all {total} bytes were taken though nothing was read");
    let mut read = 0;
    let mut buffer = vec![0; 256 * 1024];
    while read < total {
        let bytes = stream.read(&mut buffer).unwrap();
        assert!(bytes > 0, "closed after {read} bytes");
        read += bytes;
    }
    sending.join().unwrap();
    running.wait_for(&Seen::Drained);
}

#[test]
fn input_left_by_a_pause_is_shown_again_without_new_bytes() {
    let running = Running::start(1, &Config::default());
    let mut stream = running.connect();
    stream.write_all(b"one\npause\ntwo\n").unwrap();
    assert_eq!(read_exactly(&mut stream, 8), b"one\ntwo\n");
}

#[test]
fn half_closed_peer_still_gets_its_answers() {
    let running = Running::start(1, &Config::default());
    let mut stream = running.connect();
    stream.write_all(b"last words\n").unwrap();
    stream.shutdown(Half::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"last words\n");
    running.wait_for(&Seen::Closed(Origin::Accepted, "Local".into()));
}

#[test]
fn connections_are_dealt_to_all_threads_in_turn() {
    let running = Running::start(3, &Config::default());
    let streams: Vec<TcpStream> = (0..6).map(|_| running.connect()).collect();
    let mut per_thread = [0; 3];
    while per_thread.iter().sum::<usize>() < streams.len() {
        if let Seen::Open(thread, _) = running.next() {
            per_thread[thread] += 1;
        }
    }
    assert_eq!(per_thread, [2, 2, 2]);
}

#[test]
fn connection_beyond_the_limit_is_refused_until_one_closes() {
    let config = Config { connections_max: 2, refusal: b"full\n", ..Config::default() };
    let running = Running::start(2, &config);
    let first = running.connect();
    let _second = running.connect();
    let mut third = running.connect();
    let mut answer = Vec::new();
    third.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"full\n");
    drop(first);
    running.wait_for(&Seen::Closed(Origin::Accepted, "Local".into()));
    let mut fourth = running.connect();
    fourth.write_all(b"hello\n").unwrap();
    assert_eq!(read_exactly(&mut fourth, 6), b"hello\n");
}

#[test]
fn many_simultaneous_connections_are_all_accepted() {
    let config = Config { connections_max: 400, ..Config::default() };
    let running = Running::start(2, &config);
    let mut streams: Vec<TcpStream> = (0..400).map(|_| running.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"here\n").unwrap();
    }
    for stream in &mut streams {
        assert_eq!(read_exactly(stream, 5), b"here\n");
    }
}

#[test]
fn idle_connections_are_closed_and_busy_ones_are_not() {
    // Longer than one exchange takes on a busy machine.
    let config = Config { idle_timeout: Some(Duration::from_secs(5)), ..Config::default() };
    let running = Running::start(1, &config);
    let mut idle = running.connect();
    let mut busy = running.connect();
    idle.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let until = Instant::now() + PATIENCE;
    let closed = loop {
        busy.write_all(b"tick\n").unwrap();
        assert_eq!(read_exactly(&mut busy, 5), b"tick\n");
        match idle.read(&mut [0; 1]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {}
            read => break read,
        }
    };
    assert_eq!(closed.unwrap(), 0, "the idle one should be closed");
    busy.write_all(b"tick\n").unwrap();
    assert_eq!(read_exactly(&mut busy, 5), b"tick\n");
    running.wait_for(&Seen::Closed(Origin::Accepted, "Idle".into()));
}

#[test]
fn refused_connect_closes_once() {
    let free = (Ipv4Addr::LOCALHOST, knee_testkit::free_port()).into();
    let (sender, seen) = channel();
    let group = Group::start("echo", 1, &Config::default(), None, |_, _| Echo {
        seen: sender.clone(),
        connect_to: Some(free),
        timers_ms: Vec::new(),
    })
    .unwrap();
    let closed = seen.recv_timeout(PATIENCE).unwrap();
    assert_eq!(closed, Seen::Closed(Origin::Connected(42), "refused".into()));
    group.shutdown().begin();
    group.join().unwrap();
    drop(sender);
    assert!(!seen.iter().any(|seen| matches!(seen, Seen::Open(..) | Seen::Closed(..))));
}

#[test]
fn connection_carries_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (sender, seen) = channel();
    let group = Group::start("echo", 1, &Config::default(), None, |_, _| Echo {
        seen: sender.clone(),
        connect_to: Some(listener.local_addr().unwrap()),
        timers_ms: Vec::new(),
    })
    .unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), Seen::Open(0, Origin::Connected(42)));
    peer.write_all(b"ping\n").unwrap();
    assert_eq!(read_exactly(&mut peer, 5), b"ping\n");
    group.shutdown().begin();
    group.join().unwrap();
}

#[test]
fn timers_come_due_in_order() {
    let (sender, seen) = channel();
    let group = Group::start("echo", 1, &Config::default(), None, |_, _| Echo {
        seen: sender.clone(),
        connect_to: None,
        timers_ms: vec![30, 10, 20, 3_600_000],
    })
    .unwrap();
    let due: Vec<Seen> = (0..3).map(|_| seen.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(due, [Seen::Timer(10), Seen::Timer(20), Seen::Timer(30)]);
    group.shutdown().begin();
    group.join().unwrap();
}

#[test]
fn panic_in_one_thread_ends_the_group_and_is_passed_on() {
    let mut running = Running::start(2, &Config::default());
    let streams: Vec<TcpStream> = (0..2).map(|_| running.connect()).collect();
    (&streams[0]).write_all(b"panic\n").unwrap();
    let group = running.group.take().unwrap();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| group.join()));
    assert!(outcome.is_err());
}

#[test]
fn ten_thousand_short_connections_leave_nothing_behind() {
    let config = Config { connections_max: 8, ..Config::default() };
    let running = Running::start(2, &config);
    for round in 0..2_500 {
        let mut streams: Vec<TcpStream> = (0..4).map(|_| running.connect()).collect();
        for stream in &mut streams {
            stream.write_all(b"hi\n").unwrap();
        }
        for stream in &mut streams {
            assert_eq!(read_exactly(stream, 3), b"hi\n", "round {round}");
        }
        let opened = streams.len();
        drop(streams);
        let mut closed = 0;
        while closed < opened {
            if matches!(running.next(), Seen::Closed(..)) {
                closed += 1;
            }
        }
    }
}

/// Sends lines back, and gathers input that arrives during the handling into the same batch.
struct Gathering {
    /// The bytes of unsent output at the end of each batch.
    batches: Sender<usize>,
    began: Sender<()>,
    go_on: Receiver<()>,
    conn: Option<ConnId>,
    is_asked: bool,
}

impl Handler for Gathering {
    fn on_open(&mut self, _io: &mut Io, conn: ConnId, _origin: Origin) {
        self.conn = Some(conn);
    }

    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize {
        if input == b"first\n" || input == b"slow\n" {
            self.began.send(()).unwrap();
            self.go_on.recv_timeout(PATIENCE).unwrap();
        }
        self.is_asked = true;
        let began = Instant::now();
        while input == b"slow\n" && began.elapsed() < Duration::from_millis(1) {}
        io.write(conn, input);
        input.len()
    }

    /// Gathers once there is an answer to send.
    fn gathers(&mut self) -> bool {
        self.is_asked
    }

    fn on_batch_end(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn {
            // The test may have ended and dropped its receiver.
            let _ = self.batches.send(io.output_len(conn));
        }
    }

    fn on_close(&mut self, _io: &mut Io, _conn: ConnId, _origin: Origin, _why: Close) {
        self.conn = None;
    }
}

/// Waits until the other end has acknowledged all written bytes.
fn wait_for_arrival(stream: &TcpStream) {
    let mut waiting: libc::c_int = 1;
    while waiting != 0 {
        // SAFETY: the descriptor is open, and `waiting` is valid for the call to write to.
        let failed = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
        assert_eq!(failed, 0);
        std::thread::yield_now();
    }
}

/// Sends `first`, then each piece of `sent` while the handler handles the piece before it. Returns the unsent output at
/// the end of each batch with output.
fn gathered(config: &Config, sent: &[&[u8]]) -> Vec<usize> {
    let (batches, ended) = channel();
    let (began, begun) = channel();
    let (go_on, gone_on) = channel();
    let mut handler =
        Some(Gathering { batches, began, go_on: gone_on, conn: None, is_asked: false });
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let group =
        Group::start("gather", 1, config, Some(listener), |_, _| handler.take().unwrap()).unwrap();
    let mut stream = TcpStream::connect(group.address().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"first\n").unwrap();
    for sent in sent {
        begun.recv_timeout(PATIENCE).unwrap();
        stream.write_all(sent).unwrap();
        wait_for_arrival(&stream);
        go_on.send(()).unwrap();
    }
    let all = [b"first\n", &sent.concat()[..]].concat();
    assert!(read_exactly(&mut stream, all.len()) == all);
    group.shutdown().begin();
    group.join().unwrap();
    ended.iter().filter(|&waiting| waiting > 0).collect()
}

#[test]
fn gathering_batch_takes_new_input_and_sends_at_its_end() {
    assert_eq!(gathered(&Config::default(), &[b"second\n"]), [13]);
}

#[test]
fn gathering_ends_while_input_keeps_coming() {
    assert_eq!(gathered(&Config::default(), &[b"slow\n", b"third\n"]), [11, 6]);
}

#[test]
fn gathering_stops_at_the_high_water_mark() {
    let (high, read) = (4096, 1024);
    let config = Config { read_bytes: read, output_high_water_bytes: high, ..Config::default() };
    let batches = gathered(&config, &[&[b'x'; 32 * 1024]]);
    assert!(batches.iter().all(|&waiting| waiting <= high + read), "{batches:?}");
}
