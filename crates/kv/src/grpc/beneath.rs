//! Checks names in requests: files and directories beneath a directory of the server.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use tonic::Status;

use knee_kv_store::COPY_NAME_BYTES_MAX;

pub(super) fn open_beneath(directory: &Path, file: &str) -> Result<File, Status> {
    check_name(file)?;
    let shown = file.escape_debug();
    let directory = directory.canonicalize().map_err(|error| {
        Status::failed_precondition(format!(
            "the server's directory {} cannot be opened: {error}",
            directory.display()
        ))
    })?;
    let unopened = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Status::not_found(format!("there is no file '{shown}'"))
        }
        ErrorKind::PermissionDenied => {
            Status::permission_denied(format!("the server may not read '{shown}'"))
        }
        _ => Status::failed_precondition(format!("'{shown}' cannot be opened: {error}")),
    };
    let path = directory.join(file).canonicalize().map_err(unopened)?;
    if !path.starts_with(&directory) {
        let message = format!("'{shown}' leads out of the server's directory");
        return Err(Status::invalid_argument(message));
    }
    // Opening a pipe would wait for its writer.
    if !path.metadata().map_err(unopened)?.is_file() {
        return Err(Status::invalid_argument(format!("'{shown}' is no ordinary file")));
    }
    File::open(path).map_err(unopened)
}

/// Refuses names that are empty, absolute or leave the directory. Also refuses second spellings of a name (`a//b`,
/// `a/./b`): `Init` would take them for other files.
fn check_name(name: &str) -> Result<(), Status> {
    let is_inside = |part| matches!(part, Component::Normal(_));
    let parts = || Path::new(name).components();
    let is_plain = parts().all(is_inside) && parts().collect::<PathBuf>().as_os_str() == name;
    if name.is_empty() || name.contains('\0') || !is_plain {
        return Err(Status::invalid_argument(format!(
            "the name '{}' is no relative path without '..', '.' and '//'",
            name.escape_debug()
        )));
    }
    Ok(())
}

/// Refuses names that are not a single path component.
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
