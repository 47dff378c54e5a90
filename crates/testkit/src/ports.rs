//! Ports for servers that take their port from the command line.
//!
//! If the system chose a port and a test closes it, another program may soon get the port. These ports
//! are below the range of the system's choice. An abstract socket with the port's name leases the port to one process,
//! and disappears with the process. `python/knee/lab/hosts/ports.py` does the same.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::{fs, io, process};

/// The first port that Linux chooses by default.
const CHOSEN_FROM: u16 = 32_768;
/// Well-known servers use lower ports.
const FIRST: u16 = 10_000;

/// A free port of the loopback interface, leased to this process until it ends.
///
/// # Panics
/// When no port is free.
pub fn free_port() -> u16 {
    let ports = leasable();
    let count = u32::from(ports.end - ports.start);
    // Processes that start at different ports seldom meet each other's leases.
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
    // If the system chooses from all ports, only the lease protects them.
    FIRST..first.filter(|&first| first > FIRST + 1_000).unwrap_or(CHOSEN_FROM)
}

/// Leases a port to this process; false if any process has it.
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
    fn port_is_given_once() {
        let ports: Vec<u16> = thread::scope(|scope| {
            let asking = [(); 4].map(|()| scope.spawn(|| [(); 50].map(|()| super::free_port())));
            asking.into_iter().flat_map(|asking| asking.join().expect("none panics")).collect()
        });
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 200);
        assert!(ports.iter().all(|port| super::leasable().contains(port)));
    }
}
