//! The claims of `tests/hub` on one machine.

/// A Redis that one process uses.
pub(crate) mod backend {
    use turnstream::hub::redis::RedisEvents;
    use turnstream::hub::{Hub, HubBuilder};

    pub(crate) use crate::grid::*;

    pub(crate) async fn events() -> RedisEvents {
        connect().await
    }

    pub(crate) async fn builder() -> HubBuilder {
        let events = connect().await;
        Hub::builder().with_backend(events.clone(), events)
    }

    pub(crate) async fn hub() -> Hub {
        builder().await.build()
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
