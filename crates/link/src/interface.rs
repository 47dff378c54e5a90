//! An end of a link: a packet socket on an interface (packet(7)). A frame has its virtio header and its arrival time.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Frames of all connections wait in the sockets' buffers.
const BUFFER_BYTES: libc::c_int = 64 << 20;
/// Reads the arrival time of the last frame (linux/sockios.h).
const SIOCGSTAMPNS: libc::c_ulong = 0x8907;

/// A packet socket that receives what arrives at an interface.
pub(crate) fn packets(interface: &str) -> io::Result<File> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    // Without a protocol, the socket receives nothing before it is bound.
    // SAFETY: socket takes numbers, and returns a new descriptor or -1.
    let socket = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_PACKET, kind, 0))?)
    };
    let file = socket.as_raw_fd();
    set(file, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    set(file, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    for (beyond_limit, within) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        // Only the machine's root goes beyond its limit.
        set(file, libc::SOL_SOCKET, beyond_limit, BUFFER_BYTES)
            .or_else(|_| set(file, libc::SOL_SOCKET, within, BUFFER_BYTES))?;
    }
    let name = CString::new(interface)?;
    // SAFETY: the name is a C string; the address is a plain structure of the given size.
    unsafe {
        let index = libc::if_nametoindex(name.as_ptr());
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as libc::c_int;
        let length = size_of_val(&address) as libc::socklen_t;
        checked(libc::bind(file, (&raw const address).cast(), length))?;
    }
    Ok(File::from(socket))
}

/// How long ago the last frame arrived that was read; `now` is the time of the wall clock.
pub(crate) fn age(socket: RawFd, now: SystemTime) -> io::Result<Duration> {
    let mut stamp = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time outlives the call.
    checked(unsafe { libc::ioctl(socket, SIOCGSTAMPNS, &raw mut stamp) })?;
    let arrived = UNIX_EPOCH + Duration::new(stamp.tv_sec as u64, stamp.tv_nsec as u32);
    Ok(now.duration_since(arrived).unwrap_or_default())
}

fn set(socket: RawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the value is an integer of the given size.
    let code = unsafe {
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        libc::setsockopt(socket, level, name, (&raw const value).cast(), length)
    };
    checked(code).map(|_| ())
}

fn checked(code: libc::c_int) -> io::Result<libc::c_int> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) }
}
