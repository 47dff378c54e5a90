//! Long work, on threads other than the runtime's own.

use tonic::Status;

/// Runs long work to its end, even if its call is cancelled. So the work must own its data, including its share of
/// the memory for messages.
pub(super) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(run)
        .await
        .map_err(|_| Status::internal("the call failed in the server"))
}
