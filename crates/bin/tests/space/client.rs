//! A client of NBD that waits for each reply, over the codec of the servers.

use std::io::{Read, Write};
use std::net::TcpStream;

use knee_nbd::{Command, Dial, Dialed, Errno, Offer, REPLY_BYTES, Reply, Request};

use crate::program::connect;

pub(super) struct Client {
    stream: TcpStream,
    cookie: u64,
    pub(super) offer: Offer,
}

impl Client {
    pub(super) fn connect(address: &str) -> Client {
        let mut stream = connect(address);
        let (mut dial, mut heard) = (Dial::default(), Vec::new());
        let offer = loop {
            let mut answer = Vec::new();
            match dial.take(&heard, &mut answer).unwrap() {
                Dialed::Incomplete => {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    heard.push(byte[0]);
                }
                Dialed::Next(consumed) => drop(heard.drain(..consumed)),
                Dialed::Done(_, offer) => break offer,
            }
            stream.write_all(&answer).unwrap();
        };
        Client { stream, cookie: 0, offer }
    }

    /// Sends a request without waiting for its reply. Returns its number.
    pub(super) fn send(&mut self, command: Command, offset: u64, length: u32, data: &[u8]) -> u64 {
        self.cookie += 1;
        let request = Request { flags: 0, command, cookie: self.cookie, offset, length };
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        bytes.extend_from_slice(data);
        self.stream.write_all(&bytes).unwrap();
        self.cookie
    }

    /// Waits for the next reply.
    pub(super) fn reply(&mut self) -> Reply {
        let mut header = [0; REPLY_BYTES];
        self.stream.read_exact(&mut header).unwrap();
        Reply::decode(&header).unwrap().unwrap()
    }

    fn answered(
        &mut self,
        command: Command,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> Result<(), Errno> {
        let cookie = self.send(command, offset, length, data);
        let reply = self.reply();
        assert_eq!(reply.cookie, cookie);
        if reply.error == 0 { Ok(()) } else { Err(reply.error) }
    }

    pub(super) fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        self.answered(Command::Read, offset, length, &[])?;
        Ok(self.data(length as usize))
    }

    /// The data behind the reply to a read.
    pub(super) fn data(&mut self, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data).unwrap();
        data
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.answered(Command::Write, offset, data.len() as u32, data)
    }

    /// A request without data.
    pub(super) fn ask(&mut self, command: Command, offset: u64, length: u32) -> Result<(), Errno> {
        self.answered(command, offset, length, &[])
    }
}
