//! Errors as statuses.

use std::io::{self, ErrorKind};

use tonic::Status;

use knee_kv_cache::engine::Version;
use knee_kv_store::{
    BackupError, Condition, Damage, KEY_BYTES_MAX, ReadError, ReclaimError, Unwritable, Write,
    WriteError,
};

const KEY_SHOWN_BYTES_MAX: usize = 64;

fn shown(key: &[u8]) -> String {
    let front = &key[..key.len().min(KEY_SHOWN_BYTES_MAX)];
    let more = if front.len() < key.len() { "…" } else { "" };
    format!("'{}{more}'", front.escape_ascii())
}

/// Refuses keys that are empty or too long.
pub(super) fn check_key(key: &[u8]) -> Result<(), Status> {
    match key.len() {
        0 => Err(Status::invalid_argument("the key is empty")),
        1..=KEY_BYTES_MAX => Ok(()),
        bytes => Err(Status::invalid_argument(format!(
            "the key has {bytes} bytes, more than {KEY_BYTES_MAX}"
        ))),
    }
}

/// Refuses ranges that contain no key.
pub(super) fn check_range(start: &[u8], end: &[u8]) -> Result<(), Status> {
    for (name, bound) in [("start", start), ("end", end)] {
        if bound.len() > KEY_BYTES_MAX {
            let bytes = bound.len();
            return Err(Status::invalid_argument(format!(
                "the {name} of the range has {bytes} bytes, more than the {KEY_BYTES_MAX} of any key"
            )));
        }
    }
    if !end.is_empty() && start > end {
        return Err(Status::invalid_argument(format!(
            "the range is inverted: its start {} is after its end {}",
            shown(start),
            shown(end)
        )));
    }
    Ok(())
}

pub(super) fn valueless(key: &[u8]) -> Status {
    Status::invalid_argument(format!(
        "the request has no value for key {}: set value, to a message without fields for an empty value",
        shown(key)
    ))
}

pub(super) fn missing(key: &[u8]) -> Status {
    Status::not_found(format!("key {} is not there", shown(key)))
}

pub(super) fn missing_in_version(key: &[u8], version: Version) -> Status {
    Status::not_found(format!("key {} was not there in version {version}", shown(key)))
}

pub(super) fn damaged(damage: &Damage) -> Status {
    Status::data_loss(damage.to_string())
}

pub(super) fn unwritable(why: &Unwritable) -> Status {
    match why {
        Unwritable::Full(why) => Status::resource_exhausted(format!(
            "the store is full: {why}, which is the server's --memory-mb"
        )),
        Unwritable::NoSpace(why) => Status::resource_exhausted(format!("the disk is full: {why}")),
        Unwritable::Failed(why) => {
            Status::unavailable(format!("the log takes no writes at present: {why}"))
        }
        Unwritable::Broken(why) => Status::unavailable(format!(
            "the disk failed ({why}): later commits may be lost; restart the server, until then it refuses \
             reads and writes"
        )),
    }
}

pub(super) fn unreadable(error: &ReadError, version: Version) -> Status {
    match error {
        ReadError::Compacted(first) => Status::out_of_range(format!(
            "version {version} was compacted: versions from {first} on are there"
        )),
        ReadError::Unknown(last) => Status::out_of_range(format!(
            "version {version} has not been made yet: the last one is {last}"
        )),
        ReadError::Damage(damage) => damaged(damage),
    }
}

pub(super) fn unreclaimed(error: &ReclaimError) -> Status {
    match error {
        ReclaimError::Log(why) => unwritable(why),
        ReclaimError::Damage(damage) => damaged(damage),
    }
}

/// The status for a failed copy in `directory`. The message leaves out the server's own path.
pub(super) fn uncopied(error: &BackupError, directory: &str) -> Status {
    let shown = directory.escape_debug();
    let unmade = |error: &io::Error| format!("the copy '{shown}' cannot be made: {error}");
    match error {
        BackupError::Occupied => Status::already_exists(format!("'{shown}' is there already")),
        BackupError::InUse => Status::already_exists(format!(
            "'{shown}' is being made, or an earlier server left it unfinished: name another one, or start the \
             server again"
        )),
        BackupError::Store(why) => unwritable(why),
        BackupError::Log(why) if why.is_full() => {
            Status::resource_exhausted(format!("the copy '{shown}' cannot be written: {why}"))
        }
        BackupError::Log(why) => {
            Status::failed_precondition(format!("the copy '{shown}' cannot be written: {why}"))
        }
        BackupError::Damage(damage) => damaged(damage),
        BackupError::Io(error) => match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                Status::resource_exhausted(unmade(error))
            }
            _ => Status::failed_precondition(unmade(error)),
        },
        BackupError::Unsettled(error) => Status::unavailable(format!(
            "the copy '{shown}' is complete, but a power failure may lose it: {error}"
        )),
    }
}

pub(super) fn unwritten(error: &WriteError, writes: &[Write<'_>]) -> Status {
    let key = |index: usize| shown(writes[index].key);
    match *error {
        WriteError::Condition { index, version, .. } => {
            let key = key(index);
            match (writes[index].condition, version) {
                (Condition::Version(wanted), Some(version)) => Status::aborted(format!(
                    "key {key} is in version {version}, not in version {wanted}"
                )),
                (Condition::Version(wanted), None) => {
                    Status::aborted(format!("key {key} is not there, nor its version {wanted}"))
                }
                (_, Some(version)) => {
                    Status::already_exists(format!("key {key} is there, in version {version}"))
                }
                (_, None) => Status::not_found(format!("key {key} is not there")),
            }
        }
        WriteError::Key(index) => match check_key(writes[index].key) {
            Err(refusal) => refusal,
            Ok(()) => Status::invalid_argument(format!("key {} cannot be", key(index))),
        },
        WriteError::TooLarge { index, bytes_max } => Status::invalid_argument(format!(
            "the value of key {} would be larger than the {bytes_max} bytes that the store takes, \
             which is the server's --value-bytes-max",
            key(index)
        )),
        WriteError::Twice(index) => {
            Status::invalid_argument(format!("key {} is written twice", key(index)))
        }
        WriteError::Log(ref why) => unwritable(why),
        WriteError::Damage(ref damage) => damaged(damage),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn full_disk_of_copies_is_resource_exhausted() {
        let full = || io::Error::from(ErrorKind::StorageFull);
        for (error, code) in [
            (BackupError::Io(full()), Code::ResourceExhausted),
            (BackupError::Log(Unwritable::NoSpace("full".into())), Code::ResourceExhausted),
            (BackupError::Io(ErrorKind::PermissionDenied.into()), Code::FailedPrecondition),
            (BackupError::Unsettled(full()), Code::Unavailable),
        ] {
            assert_eq!(uncopied(&error, "copy").code(), code, "{error:?}");
        }
    }
}
