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

/// Generates the tests of a module of the suite for hubs. The clock cannot be paused.
macro_rules! on_machines {
    ($machines:path, $module:ident: $($kind:ident $($name:ident)?),* $(,)?) => {
        $(on_machines!(@ $machines, $module, $kind $($name)?);)*
    };
    (@ $machines:path, $module:ident, paused $name:ident) => {
        on_machines!(@ $machines, $module, $name);
    };
    (@ $machines:path, $module:ident, sync $name:ident) => {
        #[test]
        #[ignore = "needs Redis: crates/redis/tests/run.sh"]
        fn $name() {
            turnstream_test_support::hub_suite::$module::$name::<$machines>();
        }
    };
    (@ $machines:path, $module:ident, $name:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "needs Redis: crates/redis/tests/run.sh"]
        async fn $name() {
            turnstream_test_support::hub_suite::$module::$name::<$machines>().await;
        }
    };
}

mod grid;
mod hubs;
mod losses;
mod one_machine;
mod tls;
mod two_machines;
