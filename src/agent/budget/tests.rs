//! Limits on the resources of a run, as pure values: the order of the limits, and a
//! target for output tokens.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::agent::budget::{Budget, BudgetUsage, Pool, Target, TargetDecision, TargetProgress};
use crate::env::draw::TestRng;
use crate::error::{Error, ErrorKind};
use crate::event::{BudgetExceeded, BudgetKind};
use crate::usage::{Price, Prices, Usage};

const PRICE: Price = Price { input: 1.0, output: 2.0, cache_read: 0.5, cache_write: 1.5 };

/// 100 input tokens, 20 output tokens, 300 millionths of a dollar, 7 seconds, 3 calls.
fn sample_usage() -> BudgetUsage {
    BudgetUsage {
        usage: Usage { input_tokens: 100, output_tokens: 20, ..Usage::default() },
        cost: 300,
        elapsed: Duration::from_secs(7),
        tool_calls: 3,
    }
}

fn sample_prices() -> Prices {
    Prices::new().with_price("m", PRICE)
}

fn exceeded_error(kind: BudgetKind, used: u64, limit: u64) -> BudgetExceeded {
    BudgetExceeded { kind, used, limit, diminishing_returns: false }
}

#[track_caller]
fn assert_exceeded(budget: &Budget, expected: BudgetExceeded) {
    assert_eq!(budget.exceeded_limit(&sample_usage()), Some(expected));
}

#[track_caller]
fn assert_not_exceeded(budget: &Budget) {
    assert_eq!(budget.exceeded_limit(&sample_usage()), None);
}

#[test]
fn a_limit_is_reached_when_usage_equals_it() {
    use BudgetKind::{Money, OutputTokens, Time, TotalTokens};
    assert_not_exceeded(&Budget::new());
    assert_not_exceeded(&Budget::new().with_output_tokens(21));
    assert_exceeded(&Budget::new().with_output_tokens(20), exceeded_error(OutputTokens, 20, 20));
    assert_exceeded(&Budget::new().with_output_tokens(5), exceeded_error(OutputTokens, 20, 5));
    assert_not_exceeded(&Budget::new().with_total_tokens(121));
    assert_exceeded(&Budget::new().with_total_tokens(120), exceeded_error(TotalTokens, 120, 120));
    assert_not_exceeded(&Budget::new().with_cost_limit(0.000_301, sample_prices()));
    assert_exceeded(
        &Budget::new().with_cost_limit(0.0003, sample_prices()),
        exceeded_error(Money, 300, 300),
    );
    assert_not_exceeded(&Budget::new().with_cost_limit(f64::INFINITY, sample_prices()));
    assert_not_exceeded(&Budget::new().with_time_limit(Duration::from_millis(7_001)));
    assert_exceeded(
        &Budget::new().with_time_limit(Duration::from_secs(7)),
        exceeded_error(Time, 7_000, 7_000),
    );
    // After the last allowed call the model may still answer.
    assert_not_exceeded(&Budget::new().with_tool_calls(3));
}

#[test]
fn a_limit_of_zero_is_reached_immediately() {
    use BudgetKind::{Money, OutputTokens, Pool as Shared, Time, TotalTokens};
    let at_once = |budget: Budget, kind| {
        assert_eq!(
            budget.exceeded_limit(&BudgetUsage::default()),
            Some(exceeded_error(kind, 0, 0))
        );
    };
    at_once(Budget::new().with_output_tokens(0), OutputTokens);
    at_once(Budget::new().with_total_tokens(0), TotalTokens);
    at_once(Budget::new().with_pool(Pool::new(0)), Shared);
    at_once(Budget::new().with_cost_limit(0.0, sample_prices()), Money);
    at_once(Budget::new().with_cost_limit(-1.0, sample_prices()), Money);
    at_once(Budget::new().with_cost_limit(f64::NAN, sample_prices()), Money);
    at_once(Budget::new().with_time_limit(Duration::ZERO), Time);
}

#[test]
fn if_several_limits_are_reached_the_first_in_kind_order_is_reported() {
    let pool = Pool::new(1);
    pool.charge(Usage { input_tokens: 2, ..Usage::default() });
    let mut budget = Budget::new().with_tool_calls(1);
    assert_not_exceeded(&budget);
    budget = budget.with_time_limit(Duration::from_secs(1));
    assert_exceeded(&budget, exceeded_error(BudgetKind::Time, 7_000, 1_000));
    budget = budget.with_cost_limit(0.0001, sample_prices());
    assert_exceeded(&budget, exceeded_error(BudgetKind::Money, 300, 100));
    budget = budget.with_pool(pool.clone());
    assert_exceeded(&budget, exceeded_error(BudgetKind::Pool, 2, 1));
    budget = budget.with_total_tokens(1);
    assert_exceeded(&budget, exceeded_error(BudgetKind::TotalTokens, 120, 1));
    budget = budget.with_output_tokens(1);
    assert_exceeded(&budget, exceeded_error(BudgetKind::OutputTokens, 20, 1));
}

#[test]
fn a_token_reserve_lowers_the_point_at_which_token_limits_are_reached() {
    use BudgetKind::{OutputTokens, Pool as Shared, TotalTokens};
    assert_not_exceeded(&Budget::new().with_output_tokens(31).with_wrap_up_tokens(10));
    assert_exceeded(
        &Budget::new().with_output_tokens(30).with_wrap_up_tokens(10),
        exceeded_error(OutputTokens, 20, 30),
    );
    assert_exceeded(
        &Budget::new().with_total_tokens(130).with_wrap_up_tokens(10),
        exceeded_error(TotalTokens, 120, 130),
    );
    let pool = Pool::new(25);
    let budget = Budget::new().with_pool(pool.clone()).with_wrap_up_tokens(10);
    pool.charge(Usage { output_tokens: 14, ..Usage::default() });
    assert_not_exceeded(&budget);
    pool.charge(Usage { output_tokens: 1, ..Usage::default() });
    assert_exceeded(&budget, exceeded_error(Shared, 15, 25));
    let others = Budget::new()
        .with_time_limit(Duration::from_secs(8))
        .with_tool_calls(4)
        .with_cost_limit(1.0, sample_prices());
    assert_not_exceeded(&others.with_wrap_up_tokens(1_000_000));
    // More than the limit: nothing is left for other turns.
    let all = Budget::new().with_output_tokens(5).with_wrap_up_tokens(10);
    assert_eq!(
        all.exceeded_limit(&BudgetUsage::default()),
        Some(exceeded_error(OutputTokens, 0, 5))
    );
}

#[test]
fn either_setting_enables_the_wrap_up_turn() {
    assert!(!Budget::new().with_output_tokens(5).has_wrap_up());
    assert!(Budget::new().with_wrap_up().has_wrap_up());
    assert!(Budget::new().with_wrap_up_tokens(10).has_wrap_up());
}

#[test]
fn a_call_limit_reports_the_number_of_calls_that_may_still_start() {
    let left = |limit| Budget::new().with_tool_calls(limit).remaining_calls(&sample_usage());
    assert_eq!((left(5), left(3), left(1)), (Some(2), Some(0), Some(0)));
    assert_eq!(left(u32::MAX), Some(u32::MAX - 3));
    assert_eq!(Budget::new().remaining_calls(&sample_usage()), None);
}

#[test]
fn with_a_cost_limit_a_model_without_a_price_is_an_error() {
    let bad = Price { output: f64::NAN, ..PRICE };
    let budget = Budget::new().with_cost_limit(1.0, sample_prices().with_price("bad", bad));
    let cost = |budget: &Budget, model: &str| {
        let rate = budget.rate(&Arc::from(model), SystemTime::UNIX_EPOCH);
        budget.check_rate(&rate)?;
        let tokens = Usage { input_tokens: 3, ..Usage::default() };
        Ok::<_, Error>(rate.is_known().then(|| rate.cost(tokens, None).micros))
    };
    assert_eq!(cost(&budget, "m-2025-01-31").unwrap(), Some(3));
    let refused = |model: &str| {
        let error = cost(&budget, model).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        error.to_string()
    };
    assert_eq!(refused("x"), "no price for the model `x`");
    assert_eq!(refused("m-1"), "no price for the model `m-1`");
    assert_eq!(refused("bad"), "no usable price for the model `bad`");
    assert_eq!(cost(&Budget::new(), "x").unwrap(), None);
    let budget = Budget::new().with_prices(sample_prices().with_price("bad", bad));
    let found = ["m", "x", "bad"].map(|model| cost(&budget, model).unwrap());
    assert_eq!(found, [Some(3), None, None], "without a limit");
}

#[track_caller]
fn assert_nudged(target: Target, tracker: (u32, u64, u64), used: u64, expected: (u32, u64, u64)) {
    let of = |(continuations, last_delta, last_total)| TargetProgress {
        continuations,
        last_delta_tokens: last_delta,
        last_total_tokens: last_total,
    };
    match target.decide(of(tracker), used) {
        TargetDecision::Continue { progress: tracker, .. } => assert_eq!(tracker, of(expected)),
        stop @ TargetDecision::Stop { .. } => panic!("{stop:?}"),
    }
}

#[track_caller]
fn assert_stops(target: Target, tracker: (u32, u64, u64), used: u64, diminishing_returns: bool) {
    let (continuations, last_delta, last_total) = tracker;
    let tracker = TargetProgress {
        continuations,
        last_delta_tokens: last_delta,
        last_total_tokens: last_total,
    };
    assert_eq!(target.decide(tracker, used), TargetDecision::Stop { diminishing_returns });
}

#[test]
fn below_90_percent_of_the_token_target_the_model_is_nudged() {
    let target = Target::new(10_000);
    assert_nudged(target, (0, 0, 0), 0, (1, 0, 0));
    assert_nudged(target, (0, 0, 0), 2_000, (1, 2_000, 2_000));
    assert_nudged(target, (1, 2_000, 2_000), 8_999, (2, 6_999, 8_999));
    assert_stops(target, (1, 2_000, 2_000), 9_000, false);
    assert_stops(target, (9, 1, 8_999), 9_000, false);
    assert_stops(target, (0, 0, 0), u64::MAX, false);
    assert_stops(Target::new(0), (0, 0, 0), 0, false);
}

#[test]
fn returns_diminish_after_three_nudges_and_two_small_steps() {
    let target = Target::new(10_000);
    assert_stops(target, (3, 499, 1_000), 1_499, true);
    assert_nudged(target, (2, 499, 1_000), 1_499, (3, 499, 1_499));
    assert_nudged(target, (3, 500, 1_000), 1_499, (4, 499, 1_499));
    assert_nudged(target, (3, 499, 1_000), 1_500, (4, 500, 1_500));
    // Usage that a wire corrects downwards does not count as progress.
    assert_stops(target, (3, 0, 2_000), 1_000, true);
}

#[test]
fn the_thresholds_of_a_token_target_are_configurable() {
    let target =
        Target { tokens: 1_000, threshold_fraction: 0.5, min_delta_tokens: 10, min_nudges: 1 };
    let with_threshold = |threshold_fraction| Target { threshold_fraction, ..target };
    assert_stops(target, (0, 0, 0), 500, false);
    assert_nudged(target, (1, 9, 100), 110, (2, 10, 110));
    assert_stops(target, (1, 9, 100), 109, true);
    assert_nudged(with_threshold(7.0), (0, 0, 0), 999, (1, 999, 999));
    assert_stops(with_threshold(7.0), (0, 0, 0), 1_000, false);
    assert_stops(with_threshold(f64::NAN), (0, 0, 0), 0, false);
    assert_stops(with_threshold(-1.0), (0, 0, 0), 0, false);
    assert_stops(Target { min_delta_tokens: 0, ..target }, (1, 0, 100), 100, true);
}

#[test]
fn a_nudge_states_how_much_of_the_token_target_is_used() {
    let text = match Target::new(3_000).decide(TargetProgress::default(), 1_000) {
        TargetDecision::Continue { text, .. } => text,
        TargetDecision::Stop { .. } => panic!("it stops"),
    };
    assert!(text.contains("33%") && text.contains("1000 of 3000"), "{text}");
}

#[test]
fn nudging_towards_a_target_always_ends() {
    let rng = TestRng::new(7);
    let below = |end: usize| rng.next_below(end) as u64;
    for _ in 0..1_000 {
        let thresholds = [f64::NAN, -1.0, 0.0, 0.4, 0.9, 1.0, 2.0];
        let target = Target {
            tokens: below(20_000),
            threshold_fraction: *rng.pick_one(&thresholds),
            min_delta_tokens: below(2_000),
            min_nudges: *rng.pick_one(&[0, 1, 2, 3, 4, 5]),
        };
        // Each nudge beyond the minimum number needs progress of at least the threshold in every
        // second step, so the number of nudges is bounded.
        let little = target.min_delta_tokens.max(1);
        let most = u64::from(target.min_nudges) + 2 + 2 * (target.tokens / little + 1);
        let (mut tracker, mut used, mut nudges) = (TargetProgress::default(), 0, 0);
        while let TargetDecision::Continue { progress, .. } = target.decide(tracker, used) {
            tracker = progress;
            used += *rng.pick_one(&[0, 499, 500, below(3_000)]);
            nudges += 1;
            assert!(nudges <= most, "{nudges} nudges for {target:?}");
        }
    }
}
