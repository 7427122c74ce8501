//! The suite for hubs, on one machine.

turnstream_testing::hub_suite!(
    on_redis,
    ignore = "needs Redis: crates/redis/tests/run.sh",
    crate::grid::OneMachine
);
