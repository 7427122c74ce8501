//! Runs that outlive their readers: the events that a reader receives from any number on, the
//! effects of a drop, the delivery of commands, and the end of a run without readers.
//!
//! Most tests apply to every log: they are those of `hub_suite` in `crates/test-support`, which
//! `crates/redis/tests` runs with Redis.

#![cfg(feature = "http")]

#[path = "../support/mod.rs"]
mod support;

/// Generates the tests of a module of the suite.
macro_rules! in_memory {
    ($backend:path, $module:ident: $($kind:ident $($name:ident)?),* $(,)?) => {
        $(in_memory!(@ $backend, $module, $kind $($name)?);)*
    };
    (@ $backend:path, $module:ident, paused $name:ident) => {
        #[tokio::test(start_paused = true)]
        async fn $name() {
            turnstream_test_support::hub_suite::$module::$name::<$backend>().await;
        }
    };
    (@ $backend:path, $module:ident, sync $name:ident) => {
        #[test]
        fn $name() {
            turnstream_test_support::hub_suite::$module::$name::<$backend>();
        }
    };
    (@ $backend:path, $module:ident, $name:ident) => {
        #[tokio::test]
        async fn $name() {
            turnstream_test_support::hub_suite::$module::$name::<$backend>().await;
        }
    };
}

mod backend;
mod numbers;
mod outages;
mod slow_readers;

turnstream_test_support::hub_suite!(in_memory, crate::backend::InMemory);
