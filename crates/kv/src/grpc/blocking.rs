//! What takes long, beside the runtime's own threads.

use tonic::Status;

/// Runs what takes long. It runs to its end, whether or not anybody waits for that: what it needs, its
/// room among the messages included, it is to hold itself.
pub(super) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(run)
        .await
        .map_err(|_| Status::internal("the call failed in the server"))
}
