//! Reports a log that takes more than its limit.

use std::path::Path;

use knee_kv_store::Store;
use knee_telemetry::tell;

use crate::PROGRAM;

/// Call this after starting the keeper. After a kill, the log may be slightly too large; the keeper reduces it to its
/// limit.
pub(super) fn report_excess(store: &Store, directory: &Path, mebibytes: u64) {
    let (taken, bytes_max) = store.log_bytes();
    if taken > bytes_max {
        let message = format_args!(
            "the log in {} takes {} MiB, more than --memory-mb {mebibytes}: writes are refused until it takes \
             less; raise --memory-mb, or delete",
            directory.display(),
            taken.div_ceil(1 << 20),
        );
        tell(PROGRAM, message);
    }
}
