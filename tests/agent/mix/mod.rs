//! Runs that mix everything: verdicts given between two pulls, runs that suspend and are resumed,
//! tools of every kind, sub-agents of sub-agents with a shared pool, hooks that repair and rewrite,
//! compaction, fallbacks, steering. Behind each pull the laws hold.

mod cast;
mod drive;
mod laws;

use std::collections::BTreeMap;
use std::panic::catch_unwind;

#[test]
fn whatever_is_mixed_into_a_run_the_laws_hold_behind_each_pull() {
    let from = number("MIX_FROM").unwrap_or(1);
    let seeds = number("MIX_SEEDS").unwrap_or(120);
    std::panic::set_hook(Box::new(|_| {}));
    let mut reasons = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in from..from + seeds {
        match catch_unwind(|| drive::check(seed)) {
            Ok(ends) => ends.into_iter().for_each(|end| *reasons.entry(end).or_insert(0_u32) += 1),
            Err(payload) => {
                let what = (payload.downcast_ref::<String>().cloned())
                    .or_else(|| payload.downcast_ref::<&str>().map(|it| (*it).to_owned()));
                let what = what.unwrap_or_default();
                failed.push(format!("seed {seed}: {}", what.chars().take(900).collect::<String>()));
            }
        }
    }
    let _ = std::panic::take_hook();
    println!("{reasons:?}");
    assert!(
        failed.is_empty(),
        "{} failed: {}",
        failed.len(),
        failed[..failed.len().min(5)].join("\n\n")
    );
    assert!(seeds < 120 || reasons.len() > 9, "{reasons:?}");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
