//! The hard cases of an agent's loop: each is a module whose first line states the case.
//!
//! | file | cases |
//! |---|---|
//! | `interrupt` | an interrupt, in every phase |
//! | `interrupt_turn` | an interrupt of the model that lets the tools finish |
//! | `stop_and_drop` | a stop, a drop, a consumer that pauses |
//! | `interrupt_races` | an interrupt that coincides with failures, sub-agents, approvals |
//! | `interrupt_during_waits` | an interrupt during a wait, and the notifications of hooks at the end |
//! | `failing_tools` | tools that fail, do not exist, or return too much |
//! | `arguments` | unusable arguments, ids that are not unique |
//! | `approvals` | approvals, and tools that run elsewhere |
//! | `approval_attacks` | approvals that are replayed, raced, stale, foreign or forged |
//! | `hooks` | hooks that fail |
//! | `end_of_turn` | the end of a turn, and turns without an end marker |
//! | `stop_reasons` | other stop reasons |
//! | `limits` | the order of results, and the limits of a run |
//! | `input_during_a_run` | input during a run, and hooks that prevent its end |
//! | `history` | compaction, crashes, handoff to another model |
//! | `refused_reasoning` | reasoning that its provider no longer accepts |
//! | `unsettled_histories` | histories that are not settled |
//! | `transport` | caches, transforms, frames that are split anywhere |
//! | `on_each_wire` | five of the cases again, on each of the wires |
//!
//! `stop_after_turn`, `refusal` and `crash_of_a_stored_run` are also checked with each store, in
//! the binary `sessions`, and `hooks_at_the_end` at every ending of a run, in the binary `agent`.

mod approval_attacks;
mod approvals;
mod arguments;
mod end_of_turn;
mod failing_tools;
mod history;
mod hooks;
mod input_during_a_run;
mod interrupt;
mod interrupt_during_waits;
mod interrupt_races;
mod interrupt_turn;
mod limits;
mod on_each_wire;
mod refused_reasoning;
mod stop_and_drop;
mod stop_reasons;
mod transport;
mod unsettled_histories;

/// The source files with tests.
const TEST_SOURCES: [&str; 18] = [
    include_str!("interrupt.rs"),
    include_str!("interrupt_turn.rs"),
    include_str!("stop_and_drop.rs"),
    include_str!("interrupt_races.rs"),
    include_str!("interrupt_during_waits.rs"),
    include_str!("failing_tools.rs"),
    include_str!("arguments.rs"),
    include_str!("approvals.rs"),
    include_str!("hooks.rs"),
    include_str!("end_of_turn.rs"),
    include_str!("stop_reasons.rs"),
    include_str!("limits.rs"),
    include_str!("input_during_a_run.rs"),
    include_str!("history.rs"),
    include_str!("refused_reasoning.rs"),
    include_str!("unsettled_histories.rs"),
    include_str!("transport.rs"),
    include_str!("on_each_wire.rs"),
];

/// Each case has a module of this name.
const CASE_MODULES: [&str; 71] = [
    "interrupt_while_a_call_streams",
    "interrupt_before_tools_start",
    "interrupt_while_tools_run",
    "interrupt_before_the_first_poll",
    "interrupt_twice_or_late",
    "interrupt_of_a_streaming_turn",
    "interrupt_of_a_turn_while_tools_run",
    "interrupt_of_a_turn_during_waits",
    "stop_after_turn",
    "drop_cancels",
    "slow_consumer",
    "interrupt_versus_other_endings",
    "interrupt_and_sub_agents",
    "interrupt_and_approvals",
    "interrupt_during_a_wait",
    "hooks_at_the_end",
    "failing_tool",
    "panicking_tool",
    "tool_timeout",
    "unknown_tool",
    "invalid_json_arguments",
    "schema_mismatch",
    "empty_arguments",
    "non_object_arguments",
    "identical_calls_with_one_id",
    "different_calls_with_one_id",
    "empty_call_ids",
    "denied_call",
    "scope_of_an_approval",
    "external_calls",
    "provider_executed_calls",
    "oversized_result",
    "failing_hooks",
    "special_tool_names",
    "tool_calls_reason_without_calls",
    "calls_with_reason_stop",
    "missing_end_marker",
    "calls_without_end_marker",
    "error_as_first_event",
    "error_mid_stream",
    "calls_truncated_by_output_limit",
    "complete_calls_of_a_truncated_turn",
    "text_truncated_by_output_limit",
    "content_filter",
    "calls_of_a_filtered_turn",
    "refusal",
    "paused_turn",
    "words_for_the_end_of_a_turn",
    "unknown_stop_reason",
    "calls_for_the_client",
    "empty_turn",
    "events_after_the_end",
    "empty_reply_after_tool_results",
    "result_order",
    "concurrency",
    "turn_limit",
    "call_limit",
    "budgets",
    "missing_or_repeated_usage",
    "steering_during_tools",
    "steering_at_the_end",
    "stop_hooks",
    "context_overflow",
    "crash_of_a_stored_run",
    "calls_running_at_a_crash",
    "model_handoff",
    "refused_reasoning",
    "unsettled_histories",
    "prompt_cache_prefix",
    "turn_transforms",
    "split_frames",
];

#[test]
fn every_case_has_a_sentence_and_a_test() {
    let has_test = |case: &&str| {
        let module = format!("\nmod {case} {{\n    //! ");
        let tests = TEST_SOURCES.iter().filter_map(|source| source.split_once(&module));
        tests.clone().next().is_some()
            && tests.into_iter().all(|(_, module)| {
                let end = module.find("\n}\n").unwrap_or(module.len());
                module[..end].contains("#[test]") || module[..end].contains("#[tokio::test")
            })
    };
    let missing: Vec<_> = CASE_MODULES.iter().filter(|case| !has_test(case)).collect();
    assert_eq!(missing, [&""; 0]);
}
