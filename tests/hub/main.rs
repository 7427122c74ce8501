//! Runs that outlive their readers: the events that a reader receives from any number on, the
//! effects of a drop, the delivery of commands, and the end of a run without readers.
//!
//! Most tests apply to every log: `tests/redis` runs the same ones with Redis.

#![cfg(feature = "http")]

#[path = "../support/mod.rs"]
mod support;

/// Generates tests from claims.
macro_rules! on_backend {
    ($($kind:ident $($name:ident)?),* $(,)?) => {
        mod tests {
            $(on_backend!(@ $kind $($name)?);)*
        }
    };
    (@ paused $name:ident) => {
        #[tokio::test(start_paused = true)]
        async fn $name() {
            super::$name().await;
        }
    };
    (@ sync $name:ident) => {
        #[test]
        fn $name() {
            super::$name();
        }
    };
    (@ $name:ident) => {
        #[tokio::test]
        async fn $name() {
            super::$name().await;
        }
    };
}

mod backend;
mod commands;
mod endings;
mod folds;
mod logs;
mod numbers;
mod outages;
mod readers;
mod sessions;
mod slow_readers;
