//! A client of HTTP/2 that controls each frame (RFC 9113, 7541).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Far longer than any wait of these tests.
const PATIENCE: Duration = Duration::from_secs(20);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const WINDOW_SIZE: u16 = 4;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection.
pub(crate) struct Raw {
    socket: TcpStream,
    next: u32,
    /// Received bytes of each call's answer.
    came: BTreeMap<u32, usize>,
    /// The number of ended calls.
    over: usize,
}

impl Raw {
    /// Connects with a window of this size for each answer.
    pub(crate) fn connect(address: SocketAddr, window_bytes: u32) -> Raw {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut raw = Raw { socket, next: 1, came: BTreeMap::new(), over: 0 };
        raw.socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let window = [&WINDOW_SIZE.to_be_bytes()[..], &window_bytes.to_be_bytes()].concat();
        raw.send(SETTINGS, 0, 0, &window);
        // After these frames, the server takes more than 64 KiB at once.
        let mut is_known = [SETTINGS, WINDOW_UPDATE].map(|kind| (kind, false));
        while is_known.iter().any(|(_, known)| !known) {
            let (kind, flags, _, _) = raw.receive();
            for (known, is_known) in &mut is_known {
                *is_known |= kind == *known && flags & ACK == 0;
            }
        }
        raw.send(SETTINGS, ACK, 0, &[]);
        raw
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = &(payload.len() as u32).to_be_bytes()[1..];
        let head = [length, &[kind, flags], &stream.to_be_bytes()].concat();
        self.socket.write_all(&[&head, payload].concat()).unwrap();
    }

    /// Calls a method with a part of a message. Returns the call's stream.
    pub(crate) fn begin(&mut self, method: &str, message_bytes: usize, part: &[u8]) -> u32 {
        self.call(method, message_bytes, part)
    }

    /// Opens the window for this many more bytes of a call's answer.
    pub(crate) fn take(&mut self, stream: u32, bytes: u32) {
        for stream in [0, stream] {
            self.send(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
        }
    }

    /// Waits for this many bytes of a call's answer, or for the end of a call.
    pub(crate) fn wait_for_bytes(&mut self, stream: u32, bytes: usize) {
        while self.over == 0 && self.came.get(&stream).is_none_or(|&came| came < bytes) {
            self.receive_answer();
        }
    }

    /// Waits for the end of this many calls. Returns the bytes of each answer.
    pub(crate) fn answers(mut self, calls: usize) -> BTreeMap<u32, usize> {
        while self.over < calls {
            self.receive_answer();
        }
        self.came
    }

    /// Waits for the end of a call.
    pub(crate) fn wait_for_end(&mut self) {
        while self.over == 0 {
            self.receive_answer();
        }
    }

    fn receive_answer(&mut self) {
        let (kind, flags, of, payload) = self.receive();
        if kind == DATA {
            *self.came.entry(of).or_insert(0) += payload.len();
        }
        self.over += usize::from(matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0);
    }

    /// The kind, flags, stream and payload of the next frame.
    fn receive(&mut self) -> (u8, u8, u32, Vec<u8>) {
        let mut head = [0_u8; 9];
        self.socket.read_exact(&mut head).unwrap();
        let [high, middle, low, kind, flags, of @ ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = vec![0; length as usize];
        self.socket.read_exact(&mut payload).unwrap();
        (kind, flags, u32::from_be_bytes(of), payload)
    }

    /// Calls a method, and returns the message that answers.
    pub(crate) fn ask(&mut self, method: &str, message: &[u8]) -> Vec<u8> {
        let stream = self.call(method, message.len(), message);
        let mut answer = Vec::new();
        loop {
            let (kind, flags, of, payload) = self.receive();
            if of != stream {
                continue;
            }
            if kind == DATA {
                answer.extend(payload);
            }
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                let message = answer.split_off(5);
                assert_eq!(answer, [&[0], &(message.len() as u32).to_be_bytes()[..]].concat());
                return message;
            }
        }
    }

    fn call(&mut self, method: &str, message_bytes: usize, part: &[u8]) -> u32 {
        let stream = self.next;
        self.next += 2;
        let mut headers = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "knee"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            // Literal, new name, not indexed, not compressed.
            headers.push(0);
            for text in [name, value] {
                headers.push(text.len() as u8);
                headers.extend(text.as_bytes());
            }
        }
        self.send(HEADERS, END_HEADERS, stream, &headers);
        let prefix = [&[0], &(message_bytes as u32).to_be_bytes()[..]].concat();
        let end = if part.len() == message_bytes { END_STREAM } else { 0 };
        let message = [&prefix, part].concat();
        let frames = message.chunks(16 << 10);
        let last = frames.len() - 1;
        for (index, frame) in frames.enumerate() {
            self.send(DATA, if index == last { end } else { 0 }, stream, frame);
        }
        stream
    }
}

/// The bytes of a field with a length (wire type 2).
pub(crate) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128, "its length is one byte");
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}
