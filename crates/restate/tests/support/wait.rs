//! Waits for a condition in another process.

use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `condition` is true, and panics with `description` if it is not true within `limit`.
///
/// It polls at short intervals, because the other side is a real process that does not report its
/// progress.
pub(crate) async fn wait_until(
    description: &str,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) {
    let attempt = async || if condition().await { Ok(()) } else { Err("not yet".to_owned()) };
    wait_for(description, limit, attempt).await;
}

/// Waits until `attempt` returns a value, like [`wait_until`]. If it returns none within `limit`,
/// the panic has the last error.
pub(crate) async fn wait_for<T>(
    description: &str,
    limit: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let start = Instant::now();
    loop {
        let error = match attempt().await {
            Ok(value) => return value,
            Err(error) => error,
        };
        assert!(
            start.elapsed() < limit,
            "waited {limit:?} until {description}; the last attempt: {error}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
