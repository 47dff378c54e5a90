//! TCP over the loopback interface, between two threads.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of one write.
const BLOCK_BYTES: usize = 128 << 10;

/// The longest wait for the other end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The bytes per second that one connection carries, of writes of 128 KiB.
///
/// # Errors
///
/// The loopback interface is missing or refuses connections.
pub fn loopback_bytes_per_s(seconds: f64) -> io::Result<f64> {
    let limit = Duration::from_secs_f64(seconds);
    connected(
        |mut sender| {
            let (block, begun) = (vec![1; BLOCK_BYTES], Instant::now());
            while begun.elapsed() < limit {
                sender.write_all(&block)?;
            }
            Ok(())
        },
        |mut receiver| {
            let (mut block, mut bytes, begun) = (vec![0; BLOCK_BYTES], 0, Instant::now());
            loop {
                match receiver.read(&mut block)? {
                    0 => return Ok(bytes as f64 / begun.elapsed().as_secs_f64()),
                    some => bytes += some,
                }
            }
        },
    )
}

/// The mean time in microseconds until a byte's answer of one byte arrives, without Nagle's algorithm.
///
/// # Errors
///
/// The loopback interface is missing or refuses connections.
pub fn loopback_round_trip_us(seconds: f64) -> io::Result<f64> {
    let limit = Duration::from_secs_f64(seconds);
    connected(
        |mut echo| {
            let mut byte = [0];
            while echo.read(&mut byte)? > 0 {
                echo.write_all(&byte)?;
            }
            Ok(())
        },
        |mut asks| {
            let (mut byte, mut trips, begun) = ([1], 0, Instant::now());
            while begun.elapsed() < limit || trips == 0 {
                asks.write_all(&byte)?;
                asks.read_exact(&mut byte)?;
                trips += 1;
            }
            Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(trips))
        },
    )
}

/// Runs both ends of a connection, each in a thread. Returns the result of `measures`.
fn connected<T: Send>(
    other: impl FnOnce(TcpStream) -> io::Result<()> + Send,
    measures: impl FnOnce(TcpStream) -> io::Result<T> + Send,
) -> io::Result<T> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    let (there, from) = listener.accept()?;
    if from != here.local_addr()? {
        return Err(io::Error::other("another program has connected"));
    }
    for end in [&here, &there] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(PATIENCE))?;
        end.set_write_timeout(Some(PATIENCE))?;
    }
    thread::scope(|scope| {
        let others = scope.spawn(|| other(there));
        let measured = measures(here);
        let ended = others.join().unwrap_or_else(|_| Err(io::Error::other("a thread has ended")));
        measured.and_then(|value| ended.map(|()| value))
    })
}
