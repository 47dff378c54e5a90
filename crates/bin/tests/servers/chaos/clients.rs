//! Clients that know which values a read may return.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::wire;
use crate::program::connect;

const WRITERS: usize = 6;
const READERS: usize = 3;
/// Keys of each writer; one more is a counter.
const KEYS: usize = 12;
/// The largest value.
const FILLER_MAX: u64 = 3000;
/// Faults and refusals kept for the report.
const KEPT: usize = 20;

/// Random numbers from a seed (xorshift64, Marsaglia 2003).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Random(now.as_nanos() as u64 | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A key with a single writer.
struct Key {
    name: String,
    is_counter: bool,
    /// The numbers of the last acknowledged write and of the last write that has begun.
    acknowledged: AtomicU64,
    begun: AtomicU64,
}

pub(crate) struct Clients {
    address: String,
    keys: Vec<Vec<Key>>,
    reads: AtomicU64,
    hits: AtomicU64,
    /// Answered writes of each writer.
    writes: [AtomicU64; WRITERS],
    /// Conditional writes that found a server gone between two rounds.
    undecided: AtomicU64,
    faults: Mutex<Vec<String>>,
    refused: Mutex<Vec<String>>,
}

fn keep(lines: &Mutex<Vec<String>>, line: String) {
    let mut lines = lines.lock().unwrap();
    if lines.len() < KEPT {
        lines.push(line);
    }
}

fn value(key: &Key, number: u64) -> String {
    if key.is_counter {
        return number.to_string();
    }
    let filler = (number * 7919 % FILLER_MAX) as usize;
    let letter = char::from(b'a' + (number % 26) as u8);
    format!("{}:{number}:{}", key.name, letter.to_string().repeat(filler))
}

fn number_of(key: &Key, value: &str) -> Option<u64> {
    if key.is_counter {
        value.trim_end().parse().ok()
    } else {
        value.split(':').nth(1)?.parse().ok()
    }
}

/// A connection to the middleware.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(address: &str) -> Connection {
        Connection(BufReader::new(connect(address)))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, request: &str) -> String {
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        self.line()
    }

    /// The values of a retrieval with their tokens, or the line that is no value.
    fn retrieve(&mut self, request: &str) -> Result<Vec<(String, String, String)>, String> {
        let mut values = Vec::new();
        let mut line = self.ask(request);
        while line != "END" {
            let words: Vec<&str> = line.split(' ').collect();
            let ["VALUE", key, _, bytes, rest @ ..] = &words[..] else { return Err(line) };
            let mut value = vec![0; bytes.parse::<usize>().unwrap() + 2];
            self.0.read_exact(&mut value).unwrap();
            let text = String::from_utf8_lossy(&value);
            let text = text.strip_suffix("\r\n").unwrap_or("no line end").to_owned();
            values.push(((*key).to_owned(), text, rest.concat()));
            line = self.line();
        }
        Ok(values)
    }
}

impl Clients {
    pub(crate) fn new(address: &str) -> Clients {
        let key = |writer: usize, number: usize| Key {
            name: format!("w{writer}k{number}"),
            is_counter: number == KEYS,
            acknowledged: AtomicU64::new(0),
            begun: AtomicU64::new(0),
        };
        Clients {
            address: address.to_owned(),
            keys: (0..WRITERS).map(|w| (0..=KEYS).map(|number| key(w, number)).collect()).collect(),
            reads: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            writes: Default::default(),
            undecided: AtomicU64::new(0),
            faults: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Starts all clients, which end once `done`.
    pub(crate) fn start<'s>(&'s self, scope: &'s Scope<'s, '_>, done: &'s AtomicBool) {
        for (keys, writes) in self.keys.iter().zip(&self.writes) {
            scope.spawn(move || self.write(keys, writes, done));
        }
        for _ in 0..READERS {
            scope.spawn(move || self.read(done));
        }
        scope.spawn(move || self.offend(done));
    }

    pub(crate) fn counts(&self) -> impl fmt::Display {
        let [reads, hits, undecided] =
            [&self.reads, &self.hits, &self.undecided].map(|count| count.load(Ordering::Relaxed));
        let writes = self.writes().iter().sum::<u64>();
        assert!(hits > 0 && writes > 0, "{hits} hits, {writes} writes");
        format!("{reads} reads, {hits} hits, {writes} writes, {undecided} undecided")
    }

    /// Answered writes of each writer.
    pub(crate) fn writes(&self) -> [u64; WRITERS] {
        self.writes.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Reads with wrong, torn or stale values, and unknown answers.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap().clone()
    }

    /// Answers to refused writes and reads.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.refused.lock().unwrap().clone()
    }

    fn write(&self, keys: &[Key], writes: &AtomicU64, done: &AtomicBool) {
        let mut random = Random::new();
        let mut connection = Connection::open(&self.address);
        while !done.load(Ordering::Relaxed) {
            let key = &keys[random.below(keys.len() as u64) as usize];
            let number = key.begun.load(Ordering::SeqCst) + 1;
            let name = &key.name;
            let body = value(key, number);
            let set = format!("set {name} 0 0 {}\r\n{body}\r\n", body.len());
            let choice = random.below(10);
            let token = match choice {
                0 | 1 if !key.is_counter => connection.retrieve(&format!("gets {name}\r\n")),
                _ => Ok(Vec::new()),
            };
            let token = token.ok().and_then(|values| values.into_iter().next());
            key.begun.store(number, Ordering::SeqCst);
            let request = match (choice, token) {
                (0 | 1, Some((_, _, token))) => {
                    format!("cas {name} 0 0 {} {token}\r\n{body}\r\n", body.len())
                }
                (2, _) => format!("delete {name}\r\n"),
                (3, _) => format!("ms {name} {}\r\n{body}\r\n", body.len()),
                (4, _) => format!("touch {name} 0\r\n"),
                // A counter always has the number of its last write, unless a server lost it.
                (5.., _)
                    if key.is_counter && number == key.acknowledged.load(Ordering::SeqCst) + 1 =>
                {
                    format!("incr {name} 1\r\n")
                }
                _ => set,
            };
            let answer = connection.ask(&request);
            writes.fetch_add(1, Ordering::Relaxed);
            match answer.as_str() {
                "STORED" | "DELETED" | "HD" => key.acknowledged.store(number, Ordering::SeqCst),
                "NOT_FOUND" if request.starts_with("delete") => {
                    key.acknowledged.store(number, Ordering::SeqCst);
                }
                "TOUCHED" | "EXISTS" | "NOT_FOUND" => {}
                digits if key.is_counter && digits.parse() == Ok(number) => {
                    key.acknowledged.store(number, Ordering::SeqCst);
                }
                error if error.starts_with("SERVER_ERROR") && request.starts_with("cas") => {
                    self.undecided.fetch_add(1, Ordering::Relaxed);
                }
                error if error.starts_with("SERVER_ERROR") => {
                    keep(&self.refused, format!("{}: {error}", request.lines().next().unwrap()));
                }
                other => keep(&self.faults, format!("{other:?} to {request:?}")),
            }
        }
    }

    fn read(&self, done: &AtomicBool) {
        let mut random = Random::new();
        let mut connection = Connection::open(&self.address);
        let all: HashMap<&str, &Key> =
            self.keys.iter().flatten().map(|key| (key.name.as_str(), key)).collect();
        let names: Vec<&str> = all.keys().copied().collect();
        while !done.load(Ordering::Relaxed) {
            let count = 1 + random.below(4);
            let asked: Vec<&str> =
                (0..count).map(|_| names[random.below(names.len() as u64) as usize]).collect();
            let verb = if random.below(8) == 0 { "gets" } else { "get" };
            let before: HashMap<&str, u64> = (asked.iter())
                .map(|name| (*name, all[name].acknowledged.load(Ordering::SeqCst)))
                .collect();
            let request = format!("{verb} {}\r\n", asked.join(" "));
            let values = match connection.retrieve(&request) {
                Ok(values) => values,
                Err(line) => {
                    let lines =
                        if line.starts_with("SERVER_ERROR") { &self.refused } else { &self.faults };
                    keep(lines, format!("{line:?} to {request:?}"));
                    continue;
                }
            };
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.hits.fetch_add(values.len() as u64, Ordering::Relaxed);
            for (name, text, _) in values {
                let Some((key, least)) =
                    before.get_key_value(name.as_str()).map(|(name, least)| (all[name], *least))
                else {
                    keep(&self.faults, format!("wrong: {name} was not asked"));
                    continue;
                };
                let last = key.begun.load(Ordering::SeqCst);
                match number_of(key, &text) {
                    Some(number) if value(key, number) != text.trim_end() => {
                        keep(&self.faults, format!("torn: {name} {text:?}"));
                    }
                    Some(number) if number < least => {
                        keep(&self.faults, format!("stale: {name} has {number}, not {least}"));
                    }
                    Some(number) if number <= last => {}
                    _ => keep(&self.faults, format!("wrong: {name} {text:?} of {last}")),
                }
            }
        }
    }

    /// Resets connections in the midst of requests. No reader knows its keys: a write that was cut off may be executed
    /// later than the next one.
    fn offend(&self, done: &AtomicBool) {
        while !done.load(Ordering::Relaxed) {
            let mut stream = connect(&self.address);
            let _ = stream
                .write_all(b"set rude 0 0 1\r\nx\r\nget w0k0 w1k1\r\nset rude 0 0 900\r\nabc");
            wire::reset(stream);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
