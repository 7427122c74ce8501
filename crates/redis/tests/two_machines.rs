//! The suite for hubs, with the readers and senders on another machine than the run.

turnstream_testing::hub_suite!(
    on_redis,
    ignore = "needs Redis: crates/redis/tests/run.sh",
    crate::grid::TwoMachines
);
