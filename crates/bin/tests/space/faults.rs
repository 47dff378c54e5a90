//! `knee-space manager` over stores that fail.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use knee_nbd::{Command, EIO, Export, Negotiation, REQUEST_BYTES, Reply, Request, Step};
use knee_testkit::{PATIENCE, eventually, free_address, wait_until};

use super::client::Client;
use super::files::random;
use super::manager::{MIB, addresses, manager};
use super::store::{store, store_at};

/// The end of the first of two stores with a MiB each.
const BORDER: u64 = 1 << 20;

#[test]
fn killed_store_fails_what_touches_it_until_it_returns() {
    let mut stores = vec![store(MIB, &[]), store(MIB, &[])];
    let mut manager = manager(&addresses(&stores), &[]);
    let mut client = Client::connect(manager.address());
    let data = random(MIB);
    client.write(0, &data).unwrap();
    let second = stores.pop().unwrap();
    let address = second.address().to_owned();
    second.signal(libc::SIGKILL);
    wait_until("the manager notices", || client.read(BORDER, 1) == Err(EIO));
    assert_eq!(client.write(BORDER - 1, b"xx"), Err(EIO));
    assert_eq!(client.read(BORDER - 1, 2), Err(EIO));
    assert_eq!(client.ask(Command::Trim, BORDER, 4096), Err(EIO));
    assert_eq!(client.ask(Command::Flush, 0, 0), Err(EIO));
    // Nothing of the spanning write was sent.
    assert!(client.read(0, BORDER as u32).unwrap() == data);
    let line = manager.next_error();
    assert!(line.starts_with(&format!("knee-space: store {address} is out: ")), "{line}");
    let _again = store_at(&address, MIB, &[]);
    wait_until("the store is used again", || client.read(BORDER, 1) == Ok(vec![0]));
    assert_eq!(client.write(BORDER - 1, b"xx"), Ok(()));
    assert_eq!(manager.next_error(), format!("knee-space: store {address} is in again"));
}

#[test]
fn store_killed_in_mid_copy_gets_its_part_when_it_returns() {
    const PIECE: usize = 10_000;
    let mut stores = vec![store(MIB, &[]), store(MIB, &[]), store(MIB, &[])];
    let manager = manager(&addresses(&stores), &["--threads", "2"]);
    let (address, data) = (manager.address().to_owned(), random(300 * PIECE));
    // The copy keeps step with the test, so that it meets the store dead.
    let (progress, copied) = sync_channel(0);
    let copying = std::thread::spawn({
        let data = data.clone();
        move || {
            let mut client = Client::connect(&address);
            let mut all_errors = 0;
            // Again and again, until a whole copy succeeds after one that did not.
            loop {
                let mut errors = 0;
                for (number, piece) in data.chunks(PIECE).enumerate() {
                    match client.write((number * PIECE) as u64, piece) {
                        Ok(()) => {}
                        Err(error) => {
                            assert_eq!(error, EIO);
                            errors += 1;
                        }
                    }
                    progress.send(()).unwrap();
                }
                all_errors += errors;
                if errors == 0 && all_errors > 0 {
                    return all_errors;
                }
            }
        }
    });
    copied.iter().take(150).for_each(drop);
    let victim = stores.remove(1);
    let address = victim.address().to_owned();
    victim.signal(libc::SIGKILL);
    copied.iter().take(150).for_each(drop);
    let _again = store_at(&address, MIB, &[]);
    copied.iter().for_each(drop);
    let errors = copying.join().unwrap();
    assert!(errors > 0);
    let copy = Client::connect(manager.address()).read(0, data.len() as u32).unwrap();
    assert!(copy == data);
}

#[test]
fn stopped_store_fails_in_time_and_no_late_write_overtakes() {
    let stores = [store(MIB, &[]), store(MIB, &[])];
    let manager = manager(&addresses(&stores), &["--timeout-ms", "300"]);
    let mut client = Client::connect(manager.address());
    for round in 0..3_u8 {
        stores[1].signal(libc::SIGSTOP);
        let begun = Instant::now();
        // The store has this write in its buffers, and executes it when it continues.
        assert_eq!(client.write(BORDER, &[round; 5000]), Err(EIO));
        assert!((300..5000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
        let begun = Instant::now();
        assert_eq!(client.read(BORDER, 1), Err(EIO));
        assert!(begun.elapsed() < Duration::from_millis(300), "a known failure waits for nothing");
        assert_eq!(client.read(0, 1).map(|data| data.len()), Ok(1));
        stores[1].signal(libc::SIGCONT);
        let later = [100 + round; 5000];
        eventually("the store is used again", || client.write(BORDER, &later).ok());
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(client.read(BORDER, 5000).unwrap(), later);
    }
}

#[test]
fn store_that_is_smaller_than_stated_is_not_used() {
    let stores = [store(MIB, &[]), store(MIB - 1, &[])];
    let sizes = ["=1M", "=1M"];
    let named: Vec<_> = stores
        .iter()
        .zip(sizes)
        .map(|(store, size)| format!("{}{size}", store.address()))
        .collect();
    let mut manager = manager(&named, &[]);
    let line = manager.next_error();
    assert!(line.contains("it has 1048575 bytes, less than its 1048576"), "{line}");
    let mut client = Client::connect(manager.address());
    assert_eq!(client.offer.bytes, 2 << 20);
    assert_eq!(client.read(BORDER, 1), Err(EIO));
    assert_eq!(client.read(0, BORDER as u32).map(|data| data.len()), Ok(MIB));
}

#[test]
fn absent_store_with_a_size_delays_no_start() {
    let there = store(MIB, &[]);
    let absent = free_address();
    let named = [there.address().to_owned(), format!("{absent}=1M")];
    let manager = manager(&named, &[]);
    let mut client = Client::connect(manager.address());
    assert_eq!(client.write(5, b"five"), Ok(()));
    assert_eq!(client.write(BORDER + 5, b"five"), Err(EIO));
    let _store = store_at(&absent, 2 * MIB, &[]);
    wait_until("the store is used", || client.write(BORDER + 5, b"five").is_ok());
    assert_eq!(client.offer.bytes, 2 << 20);
}

/// A store under the test's control, with a MiB.
struct Puppet {
    listener: TcpListener,
    address: String,
}

impl Puppet {
    fn new() -> Puppet {
        let address = free_address();
        Puppet { listener: TcpListener::bind(&address).unwrap(), address }
    }

    /// The two connections of a manager's thread, after their handshakes.
    fn connections(&self) -> [TcpStream; 2] {
        [(); 2].map(|()| {
            let (mut stream, _) = self.listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let export = Export { bytes: BORDER, read_only: false };
            let (mut said, mut heard) = (Vec::new(), Vec::new());
            let mut negotiation = Negotiation::begin(&mut said);
            loop {
                stream.write_all(&std::mem::take(&mut said)).unwrap();
                match negotiation.take(&heard, &export, &mut said).unwrap() {
                    Step::Incomplete => {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).unwrap();
                        heard.push(byte[0]);
                    }
                    Step::Next(consumed) => drop(heard.drain(..consumed)),
                    Step::Transmit(_) => break,
                    Step::Leave => panic!("the manager leaves"),
                }
            }
            stream.write_all(&said).unwrap();
            stream
        })
    }
}

fn requested(stream: &mut TcpStream) -> Request {
    let mut header = [0; REQUEST_BYTES];
    stream.read_exact(&mut header).unwrap();
    Request::decode(&header).unwrap().unwrap()
}

fn replied(stream: &mut TcpStream, cookie: u64, data: &[u8]) {
    let mut reply = Vec::new();
    Reply { error: 0, cookie }.encode(&mut reply);
    reply.extend_from_slice(data);
    // The manager may have closed the connection.
    let _ = stream.write_all(&reply);
}

/// Reads 8 bytes until a request reaches the store's connection. Its reply is still missing.
fn asked(client: &mut Client, stream: &mut TcpStream) -> Request {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    wait_until("the store is used", || {
        client.send(Command::Read, 0, 8, &[]);
        let asks = stream.peek(&mut [0; 1]).is_ok();
        if !asks {
            assert_eq!(client.reply().error, EIO);
        }
        asks
    });
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    requested(stream)
}

#[test]
fn late_reply_reaches_no_other_request() {
    let puppet = Puppet::new();
    let named = [format!("{}=1M", puppet.address)];
    let (manager, [mut old, _long]) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| puppet.connections());
        (manager(&named, &["--timeout-ms", "300"]), connecting.join().unwrap())
    });
    let mut client = Client::connect(manager.address());
    assert_eq!(client.read(0, 8), Err(EIO), "the store is silent");
    let abandoned = requested(&mut old);
    let [mut new, mut long] = puppet.connections();
    // The reply comes on the old connection, while a request of the same length waits.
    let waiting = asked(&mut client, &mut new);
    assert_ne!(waiting.cookie, abandoned.cookie);
    replied(&mut old, abandoned.cookie, b"old data");
    replied(&mut new, waiting.cookie, b"new data");
    assert_eq!(client.reply().error, 0);
    assert_eq!(client.data(8), b"new data");
    // A number of another connection, or of an ended request, ends the connection instead.
    client.send(Command::Read, 0, 8, &[]);
    let waiting = requested(&mut new);
    replied(&mut long, waiting.cookie, b"bad data");
    assert_eq!(client.reply().error, EIO);
    let [mut new, _long] = puppet.connections();
    asked(&mut client, &mut new);
    replied(&mut new, abandoned.cookie, b"old data");
    assert_eq!(client.reply().error, EIO);
}

#[test]
fn store_with_an_unanswered_change_stays_out_until_it_hangs_up() {
    let puppet = Puppet::new();
    let named = [format!("{}=1M", puppet.address)];
    let (manager, [mut old, _long]) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| puppet.connections());
        (manager(&named, &["--timeout-ms", "100"]), connecting.join().unwrap())
    });
    let mut client = Client::connect(manager.address());
    assert_eq!(client.write(0, b"late"), Err(EIO), "the store is silent");
    puppet.listener.set_nonblocking(true).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    // The store still has the write, so no later request may reach it.
    assert_eq!(puppet.listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(client.read(0, 1), Err(EIO));
    assert_eq!(requested(&mut old).command, Command::Write);
    let mut rest = Vec::new();
    old.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"late");
    drop(old);
    puppet.listener.set_nonblocking(false).unwrap();
    let [mut new, _long] = puppet.connections();
    let waiting = asked(&mut client, &mut new);
    replied(&mut new, waiting.cookie, b"new data");
    assert_eq!((client.reply().error, client.data(8)), (0, b"new data".to_vec()));
}

#[test]
fn unanswered_change_of_one_thread_keeps_the_others_from_the_store() {
    let puppet = Puppet::new();
    let named = [format!("{}=1M", puppet.address)];
    let (manager, mut connections) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| [(); 2].map(|()| puppet.connections()));
        let manager = manager(&named, &["--timeout-ms", "200", "--threads", "2"]);
        (manager, connecting.join().unwrap().into_iter().flatten().collect::<Vec<_>>())
    });
    // Clients are dealt to the threads in turn.
    let mut clients = [(); 2].map(|()| Client::connect(manager.address()));
    assert_eq!(clients[0].write(0, b"late"), Err(EIO), "the store is silent");
    assert_eq!(clients[1].read(0, 8), Err(EIO));
    let heard = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let heard = stream.peek(&mut [0; 1]);
        stream.set_nonblocking(false).unwrap();
        heard
    };
    let has_request = |stream: &mut TcpStream| heard(stream).is_ok_and(|bytes| bytes > 0);
    let asked_on: Vec<_> = connections.extract_if(.., has_request).collect();
    assert_eq!(asked_on.len(), 1, "the read reached the store before its late write");
    drop(asked_on);
    // The first of the other thread's connections is that for short requests.
    let stream = connections.iter_mut().find(|stream| heard(stream).is_err()).unwrap();
    let waiting = asked(&mut clients[1], stream);
    replied(stream, waiting.cookie, b"new data");
    assert_eq!((clients[1].reply().error, clients[1].data(8)), (0, b"new data".to_vec()));
}

#[test]
fn large_request_is_served_beside_small_ones() {
    const LARGEST: usize = 32 * MIB;
    let (puppet, large_store) = (Puppet::new(), store(LARGEST, &[]));
    let named = [format!("{}=1M", puppet.address), large_store.address().to_owned()];
    let (manager, [mut short, _long]) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| puppet.connections());
        (manager(&named, &["--memory-mb", "64"]), connecting.join().unwrap())
    });
    let [mut small, mut large] = [(); 2].map(|()| Client::connect(manager.address()));
    let mut waiting = asked(&mut small, &mut short);
    large.send(Command::Read, BORDER, LARGEST as u32, &[]);
    short.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let served = std::thread::spawn(move || (large.reply().error, large.data(LARGEST).len()));
    // The next small request comes before the answer to the last one, so that there is always one.
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        small.send(Command::Read, 0, 8, &[]);
        let is_there = short.peek(&mut [0; 1]).is_ok();
        replied(&mut short, waiting.cookie, b"8 bytes.");
        assert_eq!((small.reply().error, small.data(8).len()), (0, 8));
        if !is_there {
            short.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        waiting = requested(&mut short);
        short.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        if served.is_finished() {
            assert_eq!(served.join().unwrap(), (0, LARGEST));
            return;
        }
    }
    panic!("the large request waits for ever");
}

#[test]
fn error_of_a_store_reaches_the_client_that_asked() {
    let puppet = Puppet::new();
    let named = [format!("{}=1M", puppet.address)];
    let (manager, [mut short, _long]) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| puppet.connections());
        (manager(&named, &[]), connecting.join().unwrap())
    });
    let mut client = Client::connect(manager.address());
    for (error, expected) in [(28, 28), (1, 1), (12, EIO), (108, EIO)] {
        client.send(Command::Read, 0, 8, &[]);
        let mut reply = Vec::new();
        Reply { error, cookie: requested(&mut short).cookie }.encode(&mut reply);
        short.write_all(&reply).unwrap();
        assert_eq!(client.reply().error, expected);
    }
}
