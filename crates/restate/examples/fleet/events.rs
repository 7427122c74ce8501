//! The hub of a worker or of the front end.

use std::time::Duration;

use tokio::time::Instant;
use turnstream::Error;
use turnstream::hub::{Hub, LogUnavailable};
use turnstream_redis::RedisEvents;

use crate::settings::{REDIS, variable};

/// How long a starting process waits for Redis, which may have been killed as well.
const CONNECT_LIMIT: Duration = Duration::from_mins(1);

const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Connects to Redis as soon as it answers. `None` without Redis.
pub(crate) async fn open_hub() -> Result<Option<Hub>, Error> {
    let Some(url) = variable(REDIS) else { return Ok(None) };
    let start = Instant::now();
    loop {
        match RedisEvents::connect(&url).await {
            Ok(events) => {
                return Ok(Some(Hub::builder().with_backend(events.clone(), events).build()));
            }
            Err(error)
                if error.find_source::<LogUnavailable>().is_some()
                    && start.elapsed() < CONNECT_LIMIT =>
            {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(error) => return Err(error),
        }
    }
}
