//! The loop: frames of some hosts come in, wait, and go out to other hosts.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::interface::age;

/// The largest segment, with its headers.
const FRAME_BYTES_MAX: usize = 66_000;
/// Bytes of the virtio header in front of a frame.
const HEADER_BYTES: usize = 10;
/// Frames of a host that come in before others go out.
const BATCH: usize = 64;
/// Frames leave this much early together with a frame that is due, so that they share its wake-up.
const EARLY: Duration = Duration::from_micros(50);

/// Time of a frame on its way through the interfaces and this program, measured on two cores.
const PASSING: Duration = Duration::from_micros(30);
/// Change of the expected lateness after a wake-up, and its largest value.
const STEP: Duration = Duration::from_micros(5);
const LATE_MAX: Duration = Duration::from_micros(500);
/// A thread reads at least this often while frames wait, so that the socket's buffer does not overflow.
const SLEEP_MAX: Duration = Duration::from_millis(2);

/// The switch's end of a host's link.
pub(crate) struct Port {
    pub(crate) socket: File,
    /// The delay of the link, one way.
    pub(crate) delay: Duration,
}

struct Frame {
    due: Instant,
    to: usize,
    bytes: Vec<u8>,
}

/// The frames of some hosts.
struct Relay<'a> {
    ports: &'a [Port],
    /// The hosts.
    from: Vec<usize>,
    /// Their sockets, and whether each one has frames.
    sockets: Vec<libc::pollfd>,
    /// In the order in which they are due.
    waiting: VecDeque<Frame>,
    /// When the last frame of each host to each port is due. A stall between two clocks would let the next one overtake.
    last: Vec<Instant>,
    /// The shortest delay of a frame so far. A frame that arrives now is due no earlier; only the first one to a nearer
    /// host, and a broadcast, may leave late.
    delay_min: Duration,
    free: Vec<Vec<u8>>,
    room: Vec<u8>,
    /// Follows the median lateness of wake-ups, which the next one makes up for.
    late: Duration,
}

/// Relays the frames of some hosts to all others, until a signal ends the process. A frame waits for the delays of both
/// links.
///
/// # Errors
/// When a port cannot be read.
pub(crate) fn relay(ports: &[Port], from: Vec<usize>) -> io::Result<()> {
    go_first();
    let mut relay = Relay::new(ports, from);
    loop {
        relay.wait()?;
        for own in 0..relay.from.len() {
            relay.receive(own)?;
            relay.send();
        }
    }
}

/// Runs before all other programs, so that busy hosts do not lengthen the delay. Without the right, they may.
fn go_first() {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is this thread; the parameter outlives the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
}

impl<'a> Relay<'a> {
    fn new(ports: &'a [Port], from: Vec<usize>) -> Self {
        let socket = |&from: &usize| libc::pollfd {
            fd: ports[from].socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        Self {
            ports,
            sockets: from.iter().map(socket).collect(),
            last: vec![Instant::now(); from.len() * ports.len()],
            from,
            waiting: VecDeque::new(),
            delay_min: Duration::MAX,
            free: Vec::new(),
            room: vec![0; FRAME_BYTES_MAX],
            late: Duration::ZERO,
        }
    }

    /// Waits until the next frame is due, or one arrives that may be due before it. Then finds which sockets have
    /// frames.
    fn wait(&mut self) -> io::Result<()> {
        let Some(&Frame { due, .. }) = self.waiting.front() else {
            return self.arrives_within(None).map(|_| ());
        };
        let (wanted, now) = (due - self.late, Instant::now());
        let pause = wanted.saturating_duration_since(now);
        if pause > self.delay_min {
            if self.arrives_within(Some(pause))? {
                return Ok(());
            }
        } else {
            // Without a pause, the last wake-up was less late than expected.
            let rest = due.saturating_duration_since(now + EARLY);
            thread::sleep(if pause.is_zero() { rest } else { pause.min(SLEEP_MAX) });
            self.arrives_within(Some(Duration::ZERO))?;
            if pause.is_zero() || pause > SLEEP_MAX {
                return Ok(());
            }
        }
        let later = wanted.elapsed() > self.late;
        self.late =
            if later { (self.late + STEP).min(LATE_MAX) } else { self.late.saturating_sub(STEP) };
        Ok(())
    }

    /// Waits until a frame arrives, at most for a time; returns whether there is one, and notes at which sockets.
    fn arrives_within(&mut self, most: Option<Duration>) -> io::Result<bool> {
        let most = most.map(|most| libc::timespec {
            tv_sec: most.as_secs() as libc::time_t,
            tv_nsec: most.subsec_nanos().into(),
        });
        // SAFETY: the sockets and the time outlive the call; there is no signal mask.
        let found = unsafe {
            libc::ppoll(
                self.sockets.as_mut_ptr(),
                self.sockets.len() as libc::nfds_t,
                most.as_ref().map_or(ptr::null(), ptr::from_ref),
                ptr::null(),
            )
        };
        let error = io::Error::last_os_error();
        if found < 0 && error.kind() != ErrorKind::Interrupted {
            Err(error)
        } else {
            Ok(found != 0)
        }
    }

    /// Takes the frames that have arrived from a host. A frame is due after its arrival by the delays of both links.
    fn receive(&mut self, own: usize) -> io::Result<()> {
        if self.sockets[own].revents == 0 {
            return Ok(());
        }
        let mut socket = &self.ports[self.from[own]].socket;
        let (now, clock) = (Instant::now(), SystemTime::now());
        for _ in 0..BATCH {
            match socket.read(&mut self.room) {
                Ok(bytes) => {
                    let passed = age(socket.as_raw_fd(), clock)? + PASSING;
                    self.queue(own, bytes, now, passed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Queues the frame in `room` for the port that its address names, or for all others. It has already passed a part
    /// of the delay.
    fn queue(&mut self, own: usize, bytes: usize, now: Instant, passed: Duration) {
        let from = self.from[own];
        let frame = &self.room[..bytes];
        let delay_to = |to: usize| self.ports[from].delay + self.ports[to].delay;
        let ports = match addressed(frame) {
            Some(port) if port < self.ports.len() && port != from => {
                self.delay_min = self.delay_min.min(delay_to(port));
                port..port + 1
            }
            Some(_) => return,
            None => 0..self.ports.len(),
        };
        for to in ports.filter(|to| *to != from) {
            let mut copy = self.free.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(frame);
            let last = &mut self.last[own * self.ports.len() + to];
            let due = (*last).max(now + delay_to(to).saturating_sub(passed));
            *last = due;
            let place = self.waiting.partition_point(|earlier| earlier.due <= due);
            self.waiting.insert(place, Frame { due, to, bytes: copy });
        }
    }

    /// Sends the frames that are due. A port that takes none, like a full link or an unready device, drops them.
    fn send(&mut self) {
        let now = Instant::now() + EARLY;
        while self.waiting.front().is_some_and(|frame| frame.due <= now) {
            if let Some(frame) = self.waiting.pop_front() {
                // TCP sends a dropped frame again, as on a real link.
                let _ = (&self.ports[frame.to].socket).write(&frame.bytes);
                if self.free.len() < BATCH {
                    self.free.push(frame.bytes);
                }
            }
        }
    }
}

/// The port that a frame's address names; none if the frame goes to a group.
fn addressed(frame: &[u8]) -> Option<usize> {
    match frame.get(HEADER_BYTES..HEADER_BYTES + 6)? {
        [first, _, _, _, high, low] if first & 1 == 0 => {
            Some(u16::from_be_bytes([*high, *low]).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn port() -> Port {
        let (socket, _) = UnixDatagram::pair().expect("two sockets");
        Port { socket: File::from(OwnedFd::from(socket)), delay: Duration::from_millis(2) }
    }

    #[test]
    fn frame_after_a_stall_between_two_clocks_keeps_its_place() {
        let ports = [port(), port()];
        let mut relay = Relay::new(&ports, vec![0]);
        let now = Instant::now();
        relay.room[HEADER_BYTES..HEADER_BYTES + 6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        for (number, passed) in [(1, Duration::ZERO), (2, Duration::from_millis(1))] {
            relay.room[0] = number;
            relay.queue(0, HEADER_BYTES + 6, now, passed);
        }
        let order: Vec<u8> = relay.waiting.iter().map(|frame| frame.bytes[0]).collect();
        assert_eq!(order, [1, 2]);
    }
}
