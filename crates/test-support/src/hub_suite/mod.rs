//! The claims that hold for hubs with any log and inbox.
//!
//! A test binary implements [`Backend`] for its log, and creates the tests with
//! [`hub_suite!`](crate::hub_suite).
#![allow(missing_docs, reason = "a test's name is its claim")]

mod backend;
pub mod commands;
pub mod endings;
pub mod folds;
pub mod logs;
pub mod readers;
pub mod sessions;

pub use backend::Backend;

/// Creates a module with tests for each module of [`hub_suite`](crate::hub_suite).
///
/// `hub_suite!(tests, crate::MyBackend)` calls the macro `tests!` with the backend, the name of the
/// module and the names of its claims, which are functions with the backend as their parameter.
/// Before a name, `paused` means that the claim is about times, so that the clock should be paused
/// if possible, and `sync` means that the function is not async.
#[macro_export]
macro_rules! hub_suite {
    ($tests:ident, $backend:path) => {
        mod commands {
            mod tests {
                $tests! {
                    $backend, commands:
                    input_is_appended_in_order_with_the_id_of_its_receipt,
                    a_verdict_answers_the_call_and_a_second_one_is_refused,
                    input_beyond_the_limits_of_a_runs_queue_is_refused_but_an_interrupt_is_not,
                    a_command_to_an_ended_or_unknown_run_is_an_error,
                    an_interrupt_ends_the_run,
                    a_stream_that_is_not_a_run_accepts_no_commands,
                }
            }
        }
        mod endings {
            mod tests {
                $tests! {
                    $backend, endings:
                    sync runs_end_with_their_runtime,
                    dropping_the_owner_synchronously_drops_the_run_and_ends_its_readers,
                    dropping_the_hub_synchronously_drops_its_runs,
                    dropping_readers_cancels_nothing,
                    a_panic_in_a_run_ends_it_with_a_panic_error,
                    a_key_has_at_most_one_active_run,
                    paused a_run_without_readers_is_interrupted_after_the_configured_time,
                    paused a_stream_without_commands_or_readers_is_dropped,
                    paused shutdown_waits_then_interrupts_and_stores_partial_turns,
                    paused shutting_down_a_hub_without_runs_returns_at_once,
                    paused the_log_of_an_ended_run_can_be_read_from_a_number_until_it_is_removed,
                    a_hub_that_loses_its_run_drops_it_and_readers_follow_the_next_attempt,
                }
            }
        }
        mod folds {
            mod tests {
                $tests! {
                    $backend, folds:
                    paused a_reader_attached_at_the_start_receives_every_event,
                    paused a_reader_attached_at_any_number_ends_with_the_history_of_the_run,
                    a_snapshot_equals_the_fold_of_all_earlier_events,
                    a_snapshot_contains_no_more_events_than_necessary,
                    a_snapshot_contains_no_deltas_of_complete_turns,
                }
            }
        }
        mod logs {
            mod tests {
                $tests! {
                    $backend, logs:
                    an_earlier_attempt_cannot_append,
                    reading_an_unknown_run_is_an_error,
                    an_event_number_of_another_run_or_beyond_the_log_is_ignored,
                    a_slow_reader_is_disconnected_with_its_last_number,
                }
            }
        }
        mod readers {
            mod tests {
                $tests! {
                    $backend, readers:
                    paused readers_that_detach_and_attach_at_random_lose_and_duplicate_nothing,
                    paused a_disconnected_slow_reader_can_reattach_without_loss_and_the_log_stays_small,
                    paused stats_count_runs_and_readers,
                }
            }
        }
        mod sessions {
            mod tests {
                $tests! {
                    $backend, sessions:
                    a_reader_of_a_session_follows_it_from_run_to_run,
                    after_a_restart_history_and_pending_calls_come_from_the_store,
                    reading_from_a_number_of_an_earlier_run_returns_a_snapshot_of_the_active_run,
                    a_reader_polled_after_a_failure_receives_the_error,
                    a_reader_not_polled_during_a_run_receives_a_snapshot_of_the_session,
                    reading_from_a_number_before_a_missed_run_returns_a_snapshot_of_the_session,
                    a_reader_polled_or_reattached_at_any_time_ends_with_the_whole_session,
                }
            }
        }
    };
}
