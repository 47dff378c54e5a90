//! Files that clients may name: those beneath a directory.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tonic::Status;

use crate::versioned::COPY_NAME_BYTES_MAX;

/// Opens a file beneath `directory` for reading.
pub(super) fn open_beneath(directory: &Path, file: &str) -> Result<File, Status> {
    let shown = file.escape_debug();
    check_name(file)?;
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(directory);
    let directory = open.map_err(|error| {
        Status::failed_precondition(format!(
            "the server's directory {} cannot be opened: {error}",
            directory.display()
        ))
    })?;
    let open = openat_beneath(directory.as_raw_fd(), file);
    let open = open.map_err(|error| match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, _) => {
            Status::not_found(format!("there is no file '{shown}'"))
        }
        (_, Some(libc::EXDEV)) => {
            Status::invalid_argument(format!("'{shown}' leads out of the server's directory"))
        }
        (io::ErrorKind::PermissionDenied, _) => {
            Status::permission_denied(format!("the server may not read '{shown}'"))
        }
        _ => Status::failed_precondition(format!("'{shown}' cannot be opened: {error}")),
    })?;
    match open.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(open),
        _ => Err(Status::invalid_argument(format!("'{shown}' is no ordinary file"))),
    }
}

/// Refuses names that are empty, absolute or leave the directory.
fn check_name(file: &str) -> Result<(), Status> {
    let refused = |why: &str| {
        Err(Status::invalid_argument(format!("the name '{}' {why}", file.escape_debug())))
    };
    if file.is_empty() {
        return refused("is empty");
    }
    if file.contains('\0') {
        return refused("has a byte 0");
    }
    if file.starts_with('/') {
        return refused("is absolute: name it relative to the server's directory");
    }
    for part in file.split('/') {
        match part {
            "" => return refused("has an empty part"),
            "." => return refused("has a part '.'"),
            ".." => return refused("has a part '..'"),
            _ => {}
        }
    }
    Ok(())
}

/// Refuses names that are not of a directory directly beneath another one.
pub(super) fn check_directory_name(name: &str) -> Result<(), Status> {
    check_name(name)?;
    let refused = |why: &str| {
        let name = name.escape_debug();
        Err(Status::invalid_argument(format!("'{name}' is no name of a directory: it {why}")))
    };
    if name.contains('/') {
        return refused("has several parts");
    }
    if name.len() > COPY_NAME_BYTES_MAX {
        return refused(&format!("has {} bytes, more than {COPY_NAME_BYTES_MAX}", name.len()));
    }
    // Unfinished copies have such names.
    if name.starts_with('.') {
        return refused("begins with '.'");
    }
    Ok(())
}

/// Refuses a copy beyond the limit: clients could fill the disk.
pub(super) fn check_room_for_copy(directory: &Path, copies_max: usize) -> Result<(), Status> {
    let unread =
        |error| Status::failed_precondition(format!("the copies cannot be counted: {error}"));
    let mut copies = 0;
    for entry in std::fs::read_dir(directory).map_err(unread)? {
        copies += usize::from(entry.and_then(|entry| entry.file_type()).map_err(unread)?.is_dir());
    }
    if copies >= copies_max {
        return Err(Status::resource_exhausted(format!(
            "there are {copies} copies: remove some from the server's directory, or start the server with \
             more --backups-max"
        )));
    }
    Ok(())
}

/// Opens a file beneath a directory; the kernel checks that links do not lead out of it.
fn openat_beneath(directory: RawFd, file: &str) -> io::Result<File> {
    let name = CString::new(file)?;
    // SAFETY: zeros are a valid value of it, all of its fields are numbers.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    // Opening a pipe would wait for its writer.
    how.flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the descriptor is open, `name` ends with a 0, and `how` has the size of the last argument.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            directory,
            name.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and has no other owner.
    Ok(unsafe { File::from_raw_fd(opened as RawFd) })
}
