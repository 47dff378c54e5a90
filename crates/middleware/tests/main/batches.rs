//! How many requests leave for a server with one write.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use knee_middleware::{Config, Mode};

use crate::support::{Proxy, config, impostor};

/// The place of `tcpi_data_segs_in` in Linux's `struct tcp_info`.
const SEGMENTS_IN: usize = 152;

/// Segments with data that a connection has received. On loopback, each write without delay is one segment.
fn segments(stream: &TcpStream) -> u32 {
    let (mut info, mut length) = ([0_u8; 192], 192);
    // SAFETY: the kernel writes at most `length` bytes to the array.
    let outcome = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert!(outcome == 0 && length as usize >= SEGMENTS_IN + 4);
    u32::from_ne_bytes(info[SEGMENTS_IN..SEGMENTS_IN + 4].try_into().unwrap())
}

/// Answers until a client may have 8 requests in flight: before, its answers might be long.
const ANSWERS_BEFORE: usize = 40;

/// A server that answers requests once it has read for a while, and reports the segments of each round.
fn counting() -> (std::net::SocketAddr, Receiver<u32>) {
    let (sender, counts) = channel();
    let address = impostor(move |mut stream: TcpStream| {
        let (mut before, mut rounds) = (segments(&stream), 0);
        let mut bytes = [0; 4096];
        while let Ok(first @ 1..) = stream.read(&mut bytes) {
            rounds += 1;
            if rounds > ANSWERS_BEFORE {
                std::thread::sleep(Duration::from_millis(50));
            }
            let mut requests = bytes[..first].iter().filter(|&&byte| byte == b'\n').count();
            stream.set_nonblocking(true).unwrap();
            while let Ok(more @ 1..) = stream.read(&mut bytes) {
                requests += bytes[..more].iter().filter(|&&byte| byte == b'\n').count();
            }
            stream.set_nonblocking(false).unwrap();
            let now = segments(&stream);
            sender.send(now - std::mem::replace(&mut before, now)).unwrap();
            stream.write_all("END\r\n".repeat(requests).as_bytes()).unwrap();
        }
    });
    (address, counts)
}

#[test]
fn batch_has_at_most_its_limit_of_requests() {
    // (limit, writes of 8 requests that arrive together)
    for (batch_max, writes) in [(None, 1), (Some(1), 8), (Some(3), 3), (Some(8), 1), (Some(9), 1)] {
        let (address, counts) = counting();
        let settings = Config { batch_max, ..config(Mode::Pipelined, 1, &[address]) };
        let proxy = Proxy::start(&settings);
        let mut client = proxy.client();
        for _ in 0..ANSWERS_BEFORE {
            client.expect("get a\r\n", "END\r\n");
            counts.recv().unwrap();
        }
        for _ in 0..2 {
            client.expect(&"get a\r\n".repeat(8), &"END\r\n".repeat(8));
            let count = counts.recv().unwrap();
            // The kernel may probe for the loss of the last segment, which repeats it.
            assert!((writes..=writes + 1).contains(&count), "{count} with {batch_max:?}");
        }
    }
}
