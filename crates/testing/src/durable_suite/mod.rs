//! Tests that check whether a durable [`Engine`](turnstream::durable::Engine) fulfills its
//! contract.
//!
//! [`check_engine`] runs all checks on an [`EngineHost`], and panics if a check fails.
//! [`durable_suite!`](macro@crate::durable_suite) creates one test for each check, with the same name as
//! the check.
//!
//! ```
//! use turnstream_testing::durable_suite;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // In a test: `#[tokio::test] async fn my_engine_keeps_the_contract()`.
//! durable_suite::check_engine(&durable_suite::MemoryHost::new()).await;
//! # }
//! ```
//!
//! Most checks first execute a run without injecting a loss, and then repeat the run for each
//! engine operation, losing the first attempt before, during or after that operation. Each session
//! has a random id and is not removed afterwards.
mod claims;
mod faulty_engine;
mod host;
mod memory_engine;
mod scenario;

pub use faulty_engine::{FaultyEngine, Loss, LossMoment, LossPlan};
pub use host::{EngineHost, MemoryHost, SuiteRun, SuiteRuns};
pub use memory_engine::MemoryEngine;

/// Creates a module that contains one test for each check in the engine
/// [suite](mod@crate::durable_suite). The arguments are a name for the module and an async function
/// that creates an [`EngineHost`](crate::durable_suite::EngineHost). The tests are marked with
/// `#[tokio::test]`, so the crate that uses the macro needs tokio with the `macros` and `rt`
/// features.
///
/// ```
/// use turnstream_testing::durable_suite::MemoryHost;
///
/// turnstream_testing::durable_suite!(in_memory, || async { super::MemoryHost::new() });
/// ```
///
/// If `ignore = "why"` is placed between the two arguments, each test is marked
/// `#[ignore = "why"]`.
#[macro_export(local_inner_macros)]
macro_rules! durable_suite {
    ($name:ident, $make:expr) => {
        durable_suite! { @claims tests $name, $make }
    };
    // Tests for an engine that needs a server run only with `--ignored`.
    ($name:ident, ignore = $reason:literal, $make:expr) => {
        durable_suite! { @claims ignored_tests $name, $reason, $make }
    };
    (@claims $rule:ident $($with:tt)*) => {
        durable_suite! { @$rule [
            an_attempt_lost_at_any_operation_changes_neither_history_nor_outcome
            a_recorded_turn_is_not_requested_again
            a_non_idempotent_call_starts_at_most_once
            separately_executed_non_idempotent_calls_start_at_most_once
            an_exclusive_non_idempotent_call_starts_at_most_once
            a_lost_idempotent_call_runs_again_with_its_idempotency_key
            a_published_result_never_changes
            the_outcome_is_recorded_before_it_is_published
            input_queued_before_the_run_is_delivered_once
            input_sent_while_a_tool_runs_is_delivered_once
            follow_ups_are_delivered_once_each
            input_that_arrives_too_late_is_delivered_by_the_next_run
            an_interrupt_sent_while_a_tool_runs_ends_the_run
            a_stop_sent_while_a_tool_runs_ends_the_run_after_the_turn
            an_interrupt_of_a_run_that_has_ended_is_refused
            a_run_that_waits_for_an_approval_ends_and_is_resumed
            an_approved_call_of_a_failed_run_does_not_start_again
            a_denied_call_does_not_run
            a_verdict_that_answers_no_open_request_is_a_conflict_and_runs_nothing
            an_interactive_run_waits_for_verdicts
            an_approver_of_an_interactive_run_needs_only_the_status
            the_status_lists_a_call_only_while_the_run_waits_for_its_verdict
            an_interactive_run_ends_pending_after_its_limit
            a_sub_agent_runs_at_most_once
            a_sub_agent_that_waits_for_an_approval_is_resumed
            a_slow_hook_is_called_once_for_each_request
            rewritten_arguments_are_recorded_with_the_call
            a_compaction_is_performed_once
            a_failing_model_ends_the_run_with_its_error
            a_reply_that_is_cut_off_is_requested_again
            the_tool_call_limit_is_enforced
            the_next_run_of_a_session_continues_its_history
            a_failed_run_is_settled_by_the_next_run
            a_turn_larger_than_eight_mebibytes_ends_the_run
            a_run_survives_the_loss_of_two_attempts
        ] $($with)* }
    };
    (@tests [$($claim:ident)*] $name:ident, $make:expr) => {
        #[cfg(test)]
        mod $name {
            $(
                #[tokio::test]
                async fn $claim() {
                    let host = ($make)().await;
                    $crate::durable_suite::check_claim(&host, ::core::stringify!($claim)).await;
                }
            )*
        }
    };
    (@ignored_tests [$($claim:ident)*] $name:ident, $reason:literal, $make:expr) => {
        #[cfg(test)]
        mod $name {
            $(
                #[tokio::test]
                #[ignore = $reason]
                async fn $claim() {
                    let host = ($make)().await;
                    $crate::durable_suite::check_claim(&host, ::core::stringify!($claim)).await;
                }
            )*
        }
    };
    (@run [$($claim:ident)*] $host:ident, $chosen:ident, $found:ident) => {
        $(
            if $chosen.is_none_or(|chosen| chosen == ::core::stringify!($claim)) {
                $found = true;
                claims::$claim($host).await;
            }
        )*
    };
}

/// Runs all checks, one after the other.
///
/// Dropping the future cancels the check that is running, and the remaining checks do not run.
///
/// # Panics
///
/// Panics if a check fails. The panic message contains the location of the failure.
pub async fn check_engine(host: &dyn EngineHost) {
    run_claims(host, None).await;
}

/// Runs the check with this name.
///
/// # Panics
///
/// Panics if the check fails, or if no check has this name.
pub async fn check_claim(host: &dyn EngineHost, name: &str) {
    run_claims(host, Some(name)).await;
}

async fn run_claims(host: &dyn EngineHost, chosen: Option<&str>) {
    let mut found = false;
    durable_suite! { @claims run host, chosen, found }
    assert!(found, "there is no claim `{}`", chosen.unwrap_or_default());
}
