//! File operations, on threads where blocking is allowed.

/// Runs file operations on a thread where blocking is allowed.
pub(super) async fn run_blocking<T, F>(work: F) -> Result<T, String>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, String> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err("the tool stopped unexpectedly".to_owned()),
    }
}
