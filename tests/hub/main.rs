//! Runs that outlive their readers: what a reader gets from any number on, what a drop does, how commands arrive,
//! how a run ends that nobody reads.
//!
//! Most claims hold for every log: `tests/redis` makes the same of Redis.

#![cfg(all(feature = "hub", feature = "http"))]

#[path = "../support/mod.rs"]
mod support;

/// Makes tests of claims.
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
