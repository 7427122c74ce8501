//! Hubs that share a Redis.
//!
//! The tests need a server: `tests/redis/run.sh` installs one if possible, and runs the tests.

#![cfg(all(feature = "redis", feature = "http"))]

#[path = "../support/mod.rs"]
mod support;

/// Generates tests from claims that need a server.
macro_rules! on_backend {
    ($($kind:ident $($name:ident)?),* $(,)?) => {
        mod tests {
            $(on_backend!(@ $kind $($name)?);)*
        }
    };
    (@ paused $name:ident) => {
        on_backend!(@ $name);
    };
    (@ sync $name:ident) => {
        #[test]
        #[ignore = "needs Redis: tests/redis/run.sh"]
        fn $name() {
            super::$name();
        }
    };
    (@ $name:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "needs Redis: tests/redis/run.sh"]
        async fn $name() {
            super::$name().await;
        }
    };
}

mod grid;
mod hubs;
mod losses;
mod one_machine;
mod two_machines;

use turnstream_test_support::redis as server;
