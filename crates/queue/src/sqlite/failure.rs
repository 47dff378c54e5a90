//! Converts SQLite's errors for the client.

use rusqlite::ErrorCode;

use crate::database::Failure;

/// The failure of a transaction, which is rolled back.
pub(super) fn failure(error: rusqlite::Error) -> Failure {
    let text = format!("SQLite: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Failure::Full(text),
        Some(ErrorCode::NotADatabase) => Failure::NotMigrated(text),
        Some(
            ErrorCode::ReadOnly
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory
            | ErrorCode::SystemIoFailure,
        ) => Failure::Unavailable(text),
        _ => Failure::Broken(text),
    }
}
