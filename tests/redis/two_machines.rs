//! The claims of `tests/hub` with the readers and senders on another machine than the run.
#![expect(clippy::duplicate_mod, reason = "the same claims of another backend")]

/// A Redis that two processes use.
pub(crate) mod backend {
    use turnstream::hub::{Hub, HubBuilder};

    pub(crate) use crate::grid::*;

    pub(crate) async fn events() -> TwoConnections {
        TwoConnections::connect().await
    }

    pub(crate) async fn builder() -> HubBuilder {
        let events = TwoConnections::connect().await;
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
