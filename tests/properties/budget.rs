//! Nudging towards a target always ends, whatever the progress.

use proptest::prelude::*;
use turnstream::agent::{Target, TargetDecision, TargetProgress};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Each nudge beyond the minimum number needs progress of at least the threshold in every
    /// second step, so the number of nudges is bounded.
    #[test]
    fn token_target_nudging_always_terminates(
        tokens in 0_u64..20_000,
        threshold in prop_oneof![Just(f64::NAN), -1.0..2.0_f64],
        little in 0_u64..2_000,
        continuations in 0_u32..6,
        steps in prop::collection::vec(prop_oneof![Just(0), Just(499), Just(500), 0_u64..3_000], 1..20),
    ) {
        let target = Target {
            tokens,
            threshold_fraction: threshold,
            min_delta_tokens: little,
            min_nudges: continuations,
        };
        let most = u64::from(continuations) + 2 + 2 * (tokens / little.max(1) + 1);
        let (mut tracker, mut used) = (TargetProgress::default(), 0);
        let mut nudges = 0;
        for step in steps.iter().cycle() {
            used += step;
            match target.decide(tracker, used) {
                TargetDecision::Continue { progress: next, .. } => tracker = next,
                TargetDecision::Stop { diminishing_returns } => {
                    prop_assert!(!diminishing_returns || used < tokens);
                    break;
                }
            }
            nudges += 1;
            prop_assert!(nudges <= most, "{nudges} nudges");
        }
    }
}
