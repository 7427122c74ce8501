//! The claims of `tests/hub` on one machine.

/// A Redis that one process uses.
pub(crate) mod backend {
    use turnstream::hub::Hub;
    use turnstream::hub::redis::RedisEvents;

    pub(crate) use crate::grid::*;

    pub(crate) async fn events() -> RedisEvents {
        connect().await
    }

    pub(crate) async fn hub() -> Hub {
        Hub::with_redis(connect().await)
    }
}

#[path = "../hub/commands.rs"]
mod commands;
#[path = "../hub/endings.rs"]
mod endings;
#[path = "../hub/folds.rs"]
mod folds;
#[path = "../hub/logs.rs"]
mod logs;
#[path = "../hub/readers.rs"]
mod readers;
#[path = "../hub/sessions.rs"]
mod sessions;
