//! Ten times as many calls, sub-agents or tools cost at most twelve times as much work. Work is
//! counted in allocations and in allocated bytes.

mod scenarios;

use allocation_counter::{AllocationInfo, measure};

use self::scenarios::SCENARIOS;

const SMALL: usize = 50;
const LARGE: usize = 500;
/// The maximum ratio of the work at [`LARGE`] to the work at [`SMALL`].
const MAX_GROWTH: u64 = 12;

/// Returns the work of a scenario in the current thread.
fn work(name: &str, size: usize) -> AllocationInfo {
    let (_, scenario) = SCENARIOS.into_iter().find(|(it, _)| *it == name).expect("a scenario");
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    let task = scenario(size);
    measure(|| runtime.block_on(task))
}

#[track_caller]
fn check(name: &str) {
    // Initializes statics.
    work(name, SMALL);
    let [small, large] = [SMALL, LARGE].map(|size| work(name, size));
    println!(
        "{name}: {} and {} allocations, {} and {} bytes",
        small.count_total, large.count_total, small.bytes_total, large.bytes_total
    );
    assert!(large.count_total <= MAX_GROWTH * small.count_total, "allocations of {name}");
    assert!(large.bytes_total <= MAX_GROWTH * small.bytes_total, "allocated bytes of {name}");
}

#[test]
fn the_work_of_a_turn_is_linear_in_its_calls() {
    check("calls in one turn");
}

#[test]
fn the_work_of_a_turn_is_linear_in_its_sub_agents() {
    check("sub-agents called in one turn");
}

#[test]
fn the_work_of_a_run_is_linear_in_its_sub_agents() {
    check("sub-agents called one after another");
}

#[test]
fn the_work_of_resuming_a_turn_is_linear_in_its_suspended_sub_agents() {
    check("suspended sub-agents called in one turn");
}

#[test]
fn the_work_of_a_hub_is_linear_in_the_sub_agents_of_a_run() {
    check("sub-agents in a hub");
}

#[test]
fn the_work_of_a_hub_is_linear_in_the_events_of_concurrent_sub_agents() {
    check("events of concurrent sub-agents in a hub");
}

#[test]
fn the_work_of_a_request_is_linear_in_its_tools() {
    check("tools offered in every request");
}

#[test]
fn the_work_of_a_request_is_linear_in_the_tools_that_a_hook_keeps() {
    check("tools restricted by a hook");
}

/// Prints the allocations of sub-agents that are called in one turn.
#[test]
#[ignore = "prints measurements and checks nothing"]
fn print_the_allocations_of_sub_agents_called_in_one_turn() {
    for size in [250, 500, 1000, 2000] {
        println!("{size}: {}", work("sub-agents called in one turn", size).count_total);
    }
}

#[test]
fn the_work_of_reading_growing_arguments_is_linear_in_the_calls() {
    check("calls in one turn, read while they arrive");
}

#[test]
fn the_work_of_reading_a_growing_answer_is_linear_in_its_length() {
    check("fields of an answer, read while they arrive");
}
