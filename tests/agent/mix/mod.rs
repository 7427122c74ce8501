//! Runs that mix all features: verdicts between two polls, runs that suspend and are resumed, tools
//! of every kind, nested sub-agents with a shared pool, hooks that repair and rewrite, compaction,
//! fallbacks, steering. The invariants hold after each poll.

mod driver;
mod invariants;

#[test]
fn the_invariants_hold_after_each_poll_for_any_mix_of_features() {
    let from = env_number("MIX_FROM").unwrap_or(1);
    let seeds = env_number("MIX_SEEDS").unwrap_or(120);
    let sample = (from..from + seeds).step_by(turnstream_test_support::cases::sample_step(3));
    let reasons = turnstream_test_support::seeds::count_endings(sample, driver::check_seed);
    assert!(seeds < 120 || reasons.len() > 9, "{reasons:?}");
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
