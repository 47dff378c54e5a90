//! Debian's memcached as a peer.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::ports::free_port;
use crate::waiting::{PATIENCE, wait_until};

/// memcached, or the program that `KNEE_MEMCACHED` names. The drop kills it.
#[derive(Debug)]
pub struct Memcached {
    child: Child,
    flags: Vec<String>,
    /// The address of the server.
    pub address: SocketAddr,
}

impl Memcached {
    /// Starts memcached on a free port, with one thread and further flags.
    pub fn start(flags: &[&str]) -> Memcached {
        Memcached::start_at(free_port(), flags)
    }

    /// Starts memcached on this port, with one thread and further flags.
    pub fn start_at(port: u16, flags: &[&str]) -> Memcached {
        let flags: Vec<_> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let child = run(port, &flags);
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let mut memcached = Memcached { child, flags, address };
        memcached.wait_until_it_listens();
        memcached
    }

    /// Kills memcached; the port stays leased.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills memcached, and starts it again, empty, on the same port.
    pub fn restart(&mut self) {
        self.kill();
        self.child = run(self.address.port(), &self.flags);
        self.wait_until_it_listens();
    }

    /// Sends memcached a signal.
    pub fn signal(&self, signal: libc::c_int) {
        crate::signal(&self.child, signal);
    }

    /// Sends a request on a new connection; returns the answer up to a line that ends with `end`.
    pub fn ask(&self, request: &str, end: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let mut reader = BufReader::new(stream);
        while !answer.trim_end().ends_with(end) {
            assert!(reader.read_line(&mut answer).unwrap() > 0, "cut short: {answer}");
        }
        answer
    }

    /// The numeric values of `stats`, by name.
    pub fn stats(&self) -> HashMap<String, u64> {
        let answer = self.ask("stats\r\n", "END");
        let numbers = answer.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        });
        numbers.collect()
    }

    fn wait_until_it_listens(&mut self) {
        wait_until("memcached listens", || {
            assert_eq!(self.child.try_wait().unwrap(), None, "memcached ended at once");
            TcpStream::connect(self.address).is_ok()
        });
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.kill();
    }
}

fn run(port: u16, flags: &[String]) -> Child {
    let program = std::env::var_os("KNEE_MEMCACHED").unwrap_or_else(|| "memcached".into());
    Command::new(program)
        .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-t", "1", "-u", "nobody"])
        .args(flags)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("these tests need memcached: apt-get install memcached")
}
