//! What a run may spend, as pure values: limits in their order, a shared pool, a target.

use std::time::Duration;

use turnstream::agent::{Budget, Nudging, Pool, Spent, Target, Tracker};
use turnstream::event::{BudgetKind, Exceeded};
use turnstream::usage::{Price, Prices};
use turnstream::{ErrorKind, Usage};

const PRICE: Price = Price { input: 1.0, output: 2.0, cache_read: 0.5, cache_write: 1.5 };

/// 100 tokens in, 20 out, 300 millionths, 7 seconds, 3 calls.
fn spent() -> Spent {
    Spent {
        usage: Usage { input_tokens: 100, output_tokens: 20, ..Usage::default() },
        cost: 300,
        elapsed: Duration::from_secs(7),
        tool_calls: 3,
    }
}

fn prices() -> Prices {
    Prices::new().with("m", PRICE)
}

fn reached(kind: BudgetKind, used: u64, limit: u64) -> Exceeded {
    Exceeded { kind, used, limit, diminishing_returns: false }
}

#[track_caller]
fn check(budget: &Budget, expected: Exceeded) {
    assert_eq!(budget.exceeded(&spent()), Some(expected));
}

#[track_caller]
fn not_yet(budget: &Budget) {
    assert_eq!(budget.exceeded(&spent()), None);
}

#[test]
fn h53_a_limit_is_reached_when_as_much_is_used() {
    use BudgetKind::{Money, OutputTokens, Time, TotalTokens};
    not_yet(&Budget::new());
    not_yet(&Budget::new().output_tokens(21));
    check(&Budget::new().output_tokens(20), reached(OutputTokens, 20, 20));
    check(&Budget::new().output_tokens(5), reached(OutputTokens, 20, 5));
    not_yet(&Budget::new().total_tokens(121));
    check(&Budget::new().total_tokens(120), reached(TotalTokens, 120, 120));
    not_yet(&Budget::new().money(0.000_301, prices()));
    check(&Budget::new().money(0.0003, prices()), reached(Money, 300, 300));
    not_yet(&Budget::new().money(f64::INFINITY, prices()));
    not_yet(&Budget::new().time(Duration::from_millis(7_001)));
    check(&Budget::new().time(Duration::from_secs(7)), reached(Time, 7_000, 7_000));
    // Behind the last call the model may still speak.
    not_yet(&Budget::new().tool_calls(3));
}

#[test]
fn a_limit_of_nothing_is_reached_at_once() {
    use BudgetKind::{Money, OutputTokens, Pool as Shared, Time, TotalTokens};
    let at_once = |budget: Budget, kind| {
        assert_eq!(budget.exceeded(&Spent::default()), Some(reached(kind, 0, 0)));
    };
    at_once(Budget::new().output_tokens(0), OutputTokens);
    at_once(Budget::new().total_tokens(0), TotalTokens);
    at_once(Budget::new().pool(&Pool::tokens(0)), Shared);
    at_once(Budget::new().money(0.0, prices()), Money);
    at_once(Budget::new().money(-1.0, prices()), Money);
    at_once(Budget::new().money(f64::NAN, prices()), Money);
    at_once(Budget::new().time(Duration::ZERO), Time);
}

#[test]
fn of_several_limits_the_first_in_the_order_of_the_kinds_is_told() {
    let pool = Pool::tokens(1);
    pool.drain(Usage { input_tokens: 2, ..Usage::default() });
    let mut budget = Budget::new().tool_calls(1);
    not_yet(&budget);
    budget = budget.time(Duration::from_secs(1));
    check(&budget, reached(BudgetKind::Time, 7_000, 1_000));
    budget = budget.money(0.0001, prices());
    check(&budget, reached(BudgetKind::Money, 300, 100));
    budget = budget.pool(&pool);
    check(&budget, reached(BudgetKind::Pool, 2, 1));
    budget = budget.total_tokens(1);
    check(&budget, reached(BudgetKind::TotalTokens, 120, 1));
    budget = budget.output_tokens(1);
    check(&budget, reached(BudgetKind::OutputTokens, 20, 1));
}

#[test]
fn a_reserve_makes_limits_of_tokens_count_as_reached_earlier() {
    use BudgetKind::{OutputTokens, Pool as Shared, TotalTokens};
    not_yet(&Budget::new().output_tokens(31).wrap_up_reserve(10));
    check(&Budget::new().output_tokens(30).wrap_up_reserve(10), reached(OutputTokens, 20, 30));
    check(&Budget::new().total_tokens(130).wrap_up_reserve(10), reached(TotalTokens, 120, 130));
    let pool = Pool::tokens(25);
    let budget = Budget::new().pool(&pool).wrap_up_reserve(10);
    budget.drain(Usage { output_tokens: 14, ..Usage::default() });
    not_yet(&budget);
    budget.drain(Usage { output_tokens: 1, ..Usage::default() });
    check(&budget, reached(Shared, 15, 25));
    let others = Budget::new().time(Duration::from_secs(8)).tool_calls(4).money(1.0, prices());
    not_yet(&others.wrap_up_reserve(1_000_000));
    // More than there is: nothing is left for other turns.
    let all = Budget::new().output_tokens(5).wrap_up_reserve(10);
    assert_eq!(all.exceeded(&Spent::default()), Some(reached(OutputTokens, 0, 5)));
}

#[test]
fn a_wrap_up_is_asked_for_by_either_setting() {
    assert!(!Budget::new().output_tokens(5).wants_wrap_up());
    assert!(Budget::new().wrap_up().wants_wrap_up());
    assert!(Budget::new().wrap_up_reserve(10).wants_wrap_up());
}

#[test]
fn h52_a_limit_of_calls_says_how_many_more_may_begin() {
    let left = |limit| Budget::new().tool_calls(limit).calls_left(&spent());
    assert_eq!((left(5), left(3), left(1)), (Some(2), Some(0), Some(0)));
    assert_eq!(left(u32::MAX), Some(u32::MAX - 3));
    assert_eq!(Budget::new().calls_left(&spent()), None);
}

#[test]
fn where_money_is_limited_a_model_without_a_usable_price_is_an_error() {
    let bad = Price { output: f64::NAN, ..PRICE };
    let budget = Budget::new().money(1.0, prices().with("bad", bad));
    assert_eq!(budget.price_of("m-1").unwrap(), Some(PRICE));
    let refused = |model: &str| {
        let error = budget.price_of(model).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        error.to_string()
    };
    assert_eq!(refused("x"), "no price for the model `x`");
    assert_eq!(refused("bad"), "no usable price for the model `bad`");
    assert_eq!(Budget::new().price_of("x").unwrap(), None);
}

#[test]
fn a_pool_is_drained_by_all_that_share_it() {
    let pool = Pool::tokens(1_000);
    let budget = Budget::new().pool(&pool);
    let members: Vec<Budget> = (0..8).map(|_| budget.clone()).collect();
    std::thread::scope(|scope| {
        for member in &members {
            scope.spawn(|| {
                for _ in 0..10 {
                    member.drain(Usage { input_tokens: 7, output_tokens: 5, ..Usage::default() });
                }
            });
        }
    });
    assert_eq!((pool.used(), pool.limit()), (960, 1_000));
    assert!(!pool.is_spent());
    budget.drain(Usage { output_tokens: u64::MAX, ..Usage::default() });
    assert_eq!(pool.used(), u64::MAX);
    assert!(members[0].shared_pool().is_some_and(Pool::is_spent));
}

#[track_caller]
fn nudged(target: Target, tracker: (u32, u64, u64), used: u64, expected: (u32, u64, u64)) {
    let of =
        |(continuations, last_delta, last_total)| Tracker { continuations, last_delta, last_total };
    match target.decide(of(tracker), used) {
        Nudging::GoOn { tracker, .. } => assert_eq!(tracker, of(expected)),
        stop @ Nudging::Stop { .. } => panic!("{stop:?}"),
    }
}

#[track_caller]
fn stops(target: Target, tracker: (u32, u64, u64), used: u64, diminishing_returns: bool) {
    let (continuations, last_delta, last_total) = tracker;
    let tracker = Tracker { continuations, last_delta, last_total };
    assert_eq!(target.decide(tracker, used), Nudging::Stop { diminishing_returns });
}

#[test]
fn below_nine_tenths_the_model_is_nudged_on() {
    let target = Target::output_tokens(10_000);
    nudged(target, (0, 0, 0), 0, (1, 0, 0));
    nudged(target, (0, 0, 0), 2_000, (1, 2_000, 2_000));
    nudged(target, (1, 2_000, 2_000), 8_999, (2, 6_999, 8_999));
    stops(target, (1, 2_000, 2_000), 9_000, false);
    stops(target, (9, 1, 8_999), 9_000, false);
    stops(target, (0, 0, 0), u64::MAX, false);
    stops(Target::output_tokens(0), (0, 0, 0), 0, false);
}

#[test]
fn returns_diminish_after_three_nudges_and_two_small_steps() {
    let target = Target::output_tokens(10_000);
    stops(target, (3, 499, 1_000), 1_499, true);
    nudged(target, (2, 499, 1_000), 1_499, (3, 499, 1_499));
    nudged(target, (3, 500, 1_000), 1_499, (4, 499, 1_499));
    nudged(target, (3, 499, 1_000), 1_500, (4, 500, 1_500));
    // Usage that a wire takes back is no progress.
    stops(target, (3, 0, 2_000), 1_000, true);
}

#[test]
fn the_numbers_of_a_target_are_settings() {
    let target = Target::output_tokens(1_000).threshold(0.5).diminishing(10).continuations(1);
    stops(target, (0, 0, 0), 500, false);
    nudged(target, (1, 9, 100), 110, (2, 10, 110));
    stops(target, (1, 9, 100), 109, true);
    nudged(target.threshold(7.0), (0, 0, 0), 999, (1, 999, 999));
    stops(target.threshold(7.0), (0, 0, 0), 1_000, false);
    stops(target.threshold(f64::NAN), (0, 0, 0), 0, false);
    stops(target.threshold(-1.0), (0, 0, 0), 0, false);
    stops(target.diminishing(0), (1, 0, 100), 100, true);
}

#[test]
fn a_nudge_says_how_much_of_the_target_is_used() {
    let text = match Target::output_tokens(3_000).decide(Tracker::default(), 1_000) {
        Nudging::GoOn { text, .. } => text,
        Nudging::Stop { .. } => panic!("it stops"),
    };
    assert!(text.contains("33%") && text.contains("1000 of 3000"), "{text}");
}
