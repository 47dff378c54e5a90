//! The loop: frames come in, wait, and go out on the other side in their order.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::interface::age;

/// The largest segment, with its headers.
const FRAME_BYTES_MAX: usize = 66_000;
/// Frames that one side takes before the other has its turn.
const BATCH: usize = 64;
/// Frames leave this much early together with a frame that is due, so that they share its wake-up.
const EARLY: Duration = Duration::from_micros(50);

/// Time of a frame on its way through the interfaces and this program, measured on two cores.
const PASSING: Duration = Duration::from_micros(30);
/// Change of the expected lateness after a wake-up, and its largest value.
const STEP: Duration = Duration::from_micros(5);
const LATE_MAX: Duration = Duration::from_micros(500);

/// The frames of one direction.
#[derive(Default)]
struct Waiting {
    frames: VecDeque<(Instant, Vec<u8>)>,
    free: Vec<Vec<u8>>,
}

impl Waiting {
    /// Takes the frames that have arrived. A frame is due one delay after its arrival.
    fn receive(&mut self, from: &mut File, delay: Duration, room: &mut [u8]) -> io::Result<()> {
        let (now, clock) = (Instant::now(), SystemTime::now());
        for _ in 0..BATCH {
            match from.read(room) {
                Ok(bytes) => {
                    let mut frame = self.free.pop().unwrap_or_default();
                    frame.clear();
                    frame.extend_from_slice(&room[..bytes]);
                    let waited = age(from.as_raw_fd(), clock)?;
                    self.frames.push_back((now + delay.saturating_sub(waited + PASSING), frame));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends the frames that are due. A side that takes none, like a full link or an unready device, drops them.
    fn send(&mut self, to: &mut File) {
        let now = Instant::now() + EARLY;
        while self.frames.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, frame)) = self.frames.pop_front() {
                // TCP sends a dropped frame again, as on a real link.
                let _ = to.write(&frame);
                if self.free.len() < BATCH {
                    self.free.push(frame);
                }
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        self.frames.front().map(|(due, _)| *due)
    }
}

/// Relays frames between both files with this delay, until a signal ends the process.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn relay(mut host: File, mut switch: File, delay: Duration) -> io::Result<()> {
    go_first();
    let (mut outwards, mut inwards) = (Waiting::default(), Waiting::default());
    let mut room = vec![0; FRAME_BYTES_MAX];
    let mut late = Duration::ZERO;
    loop {
        let due = [outwards.due(), inwards.due()].into_iter().flatten().min();
        wait(&host, &switch, due, &mut late)?;
        outwards.receive(&mut host, delay, &mut room)?;
        inwards.receive(&mut switch, delay, &mut room)?;
        outwards.send(&mut switch);
        inwards.send(&mut host);
    }
}

/// Runs before all other programs, so that busy hosts do not lengthen the delay. Without the right, they may.
fn go_first() {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is this process; the parameter outlives the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
}

/// Waits until the next frame is due; without one, until a frame arrives. A frame that arrives is due later than all that
/// wait, so that its arrival needs no wake-up. `late` follows the median lateness of wake-ups, which the next one makes
/// up for.
fn wait(host: &File, switch: &File, due: Option<Instant>, late: &mut Duration) -> io::Result<()> {
    if let Some(due) = due {
        let wanted = due - *late;
        let pause = wanted.saturating_duration_since(Instant::now());
        if !pause.is_zero() {
            thread::sleep(pause);
            let later = wanted.elapsed() > *late;
            *late = if later { (*late + STEP).min(LATE_MAX) } else { late.saturating_sub(STEP) };
        }
        return Ok(());
    }
    let mut files = [host, switch].map(|file| libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: the list outlives the call.
    let found = unsafe { libc::poll(files.as_mut_ptr(), files.len() as _, -1) };
    let error = io::Error::last_os_error();
    if found < 0 && error.kind() != ErrorKind::Interrupted { Err(error) } else { Ok(()) }
}
