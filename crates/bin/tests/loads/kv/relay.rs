//! A relay between a load and its store, frame by frame (RFC 9113, section 4.1). It holds answers back, ends
//! connections or requests in the store's place, and cuts connections.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const CANCEL: u32 = 8;
/// The last stream that the server has seen, in a GOAWAY frame.
const HIGHEST_STREAM: u32 = i32::MAX as u32;

pub(crate) struct Relay {
    pub(crate) address: String,
    passages: Arc<Mutex<Vec<Arc<Passage>>>>,
}

/// A connection of the load, and its counterpart to the store.
struct Passage {
    client: TcpStream,
    server: TcpStream,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Answers held back; `None` while they pass.
    held: Option<Vec<Vec<u8>>>,
    /// The number of requests.
    asked: usize,
}

impl State {
    /// The streams with held-back frames of their answers.
    fn held_back(&self) -> BTreeSet<u32> {
        let answers =
            self.held.iter().flatten().filter(|frame| [DATA, HEADERS].contains(&frame[3]));
        answers.map(|frame| stream_of(frame)).collect()
    }
}

impl Relay {
    pub(crate) fn to(store: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let passages = Arc::<Mutex<Vec<Arc<Passage>>>>::default();
        let relay = Relay { address, passages: Arc::clone(&passages) };
        let store = store.to_owned();
        spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&store).unwrap();
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                }
                let passage = Arc::new(Passage { client, server, state: Mutex::default() });
                passages.lock().unwrap().push(Arc::clone(&passage));
                passage.run();
            }
        });
        relay
    }

    /// Holds answers back on the present connections.
    pub(crate) fn hold(&self) {
        self.each(|passage| {
            passage.state.lock().unwrap().held.get_or_insert_default();
        });
    }

    /// The number of held-back answers.
    pub(crate) fn held(&self) -> usize {
        self.sum(|state| state.held_back().len())
    }

    /// The number of requests on connections from number `first` on.
    pub(crate) fn asked(&self, first: usize) -> usize {
        let passages = self.passages.lock().unwrap();
        passages.iter().skip(first).map(|passage| passage.state.lock().unwrap().asked).sum()
    }

    /// Passes the held-back answers, and all later ones.
    pub(crate) fn release(&self) {
        self.each(|passage| {
            let mut state = passage.state.lock().unwrap();
            for frame in state.held.take().unwrap_or_default() {
                passage.answer(&frame);
            }
        });
    }

    /// Sends GOAWAY on every connection.
    pub(crate) fn go_away(&self) {
        let no_error = 0_u32;
        let payload = [HIGHEST_STREAM.to_be_bytes(), no_error.to_be_bytes()].concat();
        self.each(|passage| passage.say(&frame(GOAWAY, 0, &payload)));
    }

    /// Resets the last request with a held answer on every connection.
    pub(crate) fn reset(&self) {
        self.each(|passage| {
            let last = passage.state.lock().unwrap().held_back().last().copied();
            passage.say(&frame(RST_STREAM, last.unwrap(), &CANCEL.to_be_bytes()));
        });
    }

    /// Cuts the first `connections` connections.
    pub(crate) fn cut(&self, connections: usize) {
        self.passages.lock().unwrap().iter().take(connections).for_each(|passage| passage.cut());
    }

    fn each(&self, act: impl Fn(&Passage)) {
        self.passages.lock().unwrap().iter().for_each(|passage| act(passage));
    }

    fn sum(&self, count: impl Fn(&State) -> usize) -> usize {
        let passages = self.passages.lock().unwrap();
        passages.iter().map(|passage| count(&passage.state.lock().unwrap())).sum()
    }
}

impl Passage {
    fn run(self: Arc<Passage>) {
        let other = Arc::clone(&self);
        spawn(move || {
            let mut preface = [0; PREFACE_BYTES];
            if (&self.client).read_exact(&mut preface).is_ok() {
                let _ = (&self.server).write_all(&preface);
                while let Some(frame) = next(&self.client) {
                    if frame[3] == HEADERS {
                        self.state.lock().unwrap().asked += 1;
                    }
                    let _ = (&self.server).write_all(&frame);
                }
            }
            self.cut();
        });
        spawn(move || {
            while let Some(frame) = next(&other.server) {
                match &mut other.state.lock().unwrap().held {
                    Some(held) => held.push(frame),
                    None => other.answer(&frame),
                }
            }
            other.cut();
        });
    }

    /// Inserts a frame.
    fn say(&self, frame: &[u8]) {
        let _state = self.state.lock().unwrap();
        self.answer(frame);
    }

    /// Sends a frame; call it with the state locked.
    fn answer(&self, frame: &[u8]) {
        // The client may have left.
        let _ = (&self.client).write_all(frame);
    }

    fn cut(&self) {
        // The peer may already have closed the connection.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [length[1], length[2], length[3], kind, 0];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

fn stream_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[5..HEAD_BYTES].try_into().unwrap())
}

/// The next frame; `None` at the end.
fn next(mut from: &TcpStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; HEAD_BYTES];
    from.read_exact(&mut frame).ok()?;
    let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
    frame.resize(HEAD_BYTES + length, 0);
    from.read_exact(&mut frame[HEAD_BYTES..]).ok()?;
    Some(frame)
}
