//! The two ends: a packet socket on an interface (packet(7)), and a TAP device. Both give a virtio header with a frame.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// Frames of all connections wait in the sockets' buffers.
const BUFFER_BYTES: libc::c_int = 64 << 20;
/// The TAP device accepts unfinished checksums and large segments of TCP over IPv4 and IPv6 (linux/if_tun.h).
const TUN_F_CSUM: libc::c_ulong = 1;
const TUN_F_TSO4: libc::c_ulong = 2;
const TUN_F_TSO6: libc::c_ulong = 4;

/// A packet socket that receives what arrives at an interface.
pub(crate) fn packets(interface: &str) -> io::Result<File> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: socket takes numbers, and returns a new descriptor or -1.
    let socket = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_PACKET, kind, protocol.into()))?)
    };
    let file = socket.as_raw_fd();
    set(file, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    set(file, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    set(file, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES)?;
    set(file, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER_BYTES)?;
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

/// A new TAP device, which lives as long as its file.
pub(crate) fn tap(name: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    // SAFETY: the request has the kernel's layout, and outlives the calls.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags =
            (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        checked(libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request))?;
        let offload = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
        checked(libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, offload))?;
    }
    Ok(file)
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
