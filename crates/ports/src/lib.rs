//! Ports for the servers of tests, for those that have to be told theirs.
//!
//! A port that the system chose and that was let go of again may be chosen again at once: for
//! another test's server, or as a client's own end of a connection. So these are below the ports
//! that the system chooses from, and each is leased to the process that asked for it, by a name that
//! no other process can bind and that goes with this one. `python/knee/lab/hosts/ports.py` does the same.

#![cfg(target_os = "linux")]

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::{fs, io, process};

/// Where the search ends that the system does not end: Linux chooses from here unless told otherwise.
const CHOSEN_FROM: u16 = 32_768;
/// Well-known servers are below.
const FIRST: u16 = 10_000;

/// A port of the loopback interface that nobody listens on, and that nobody else gets from here or
/// from the system while this process lives.
///
/// # Panics
///
/// When there is none.
pub fn free_port() -> u16 {
    let ports = leasable();
    let count = u32::from(ports.end - ports.start);
    // Processes that start at the same port would go through each other's leases.
    let begin = process::id().wrapping_mul(97) % count;
    (0..count)
        .map(|step| ports.start + ((begin + step) % count) as u16)
        .find(|&port| lease(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .expect("one port of thousands is free")
}

/// [`free_port`] with its interface.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

fn leasable() -> Range<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    // A system that chooses from all ports leaves none: then the lease alone has to do.
    FIRST..first.filter(|&first| first > FIRST + 1_000).unwrap_or(CHOSEN_FROM)
}

/// Whether this process has the port now, and had it not before.
fn lease(port: u16) -> bool {
    let name = SocketAddr::from_abstract_name(format!("knee-port-{port}"));
    match name.and_then(|name| UnixDatagram::bind_addr(&name)) {
        Ok(socket) => {
            // Kept open until the process ends.
            std::mem::forget(socket);
            true
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => false,
        Err(error) => panic!("cannot lease a port: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    #[test]
    fn nobody_gets_a_port_twice() {
        let ports: Vec<u16> = thread::scope(|scope| {
            let asking = [(); 4].map(|()| scope.spawn(|| [(); 50].map(|()| super::free_port())));
            asking.into_iter().flat_map(|asking| asking.join().expect("none panics")).collect()
        });
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 200);
        assert!(ports.iter().all(|port| super::leasable().contains(port)));
    }
}
