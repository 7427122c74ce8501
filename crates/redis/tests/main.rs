//! Hubs that share a Redis.
//!
//! The tests need a server: `crates/redis/tests/run.sh` installs one if possible, and runs the tests.

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
        #[ignore = "needs Redis: crates/redis/tests/run.sh"]
        fn $name() {
            super::$name();
        }
    };
    (@ $name:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "needs Redis: crates/redis/tests/run.sh"]
        async fn $name() {
            super::$name().await;
        }
    };
}

mod grid;
mod hubs;
mod losses;
mod one_machine;
mod tls;
mod two_machines;
