//! The claims that hold for stores beyond those of `session_suite!`: whole runs, and for stores on
//! disk, processes that are killed and file operations that fail.
//!
//! A test binary creates the tests with [`store_suite!`](crate::store_suite!) and
//! [`disk_store_suite!`](crate::disk_store_suite).
#![allow(missing_docs, reason = "a test's name is its claim")]

pub mod compaction;
#[cfg(target_os = "linux")]
pub mod failing_files;
mod forward_to_inner;
pub mod growth;
pub mod processes;
pub mod removal;
pub mod runs;
mod salvage;
pub mod suspended_sub_agents;
mod temp_store;
pub mod tombstones;
mod tools;

pub use salvage::assert_damage;
pub use temp_store::{FileRemovingClock, OpenStore, ReopenableStore, TempStore};
pub use tools::{IdempotencyKeys, key_recording_tool, open_session};

/// Creates a module with a test for each claim that holds for every store.
///
/// The arguments are the name of the module and a function that returns an empty
/// [`ReopenableStore`]. The crate that uses this macro needs tokio with the features `macros` and
/// `rt`.
#[macro_export]
macro_rules! store_suite {
    ($name:ident, $empty:expr) => {
        $crate::store_suite! {
            @tests $name, $empty;
            compaction::a_session_that_was_compacted_reactively_can_be_compacted_again_and_keeps_the_note,
            removal::sessions_are_removed_even_through_a_shared_store,
            runs::a_crash_between_a_turn_and_its_results_is_repaired_and_no_call_runs_again,
            runs::a_session_can_be_forked_before_the_refused_prompt,
            runs::a_stop_after_the_turn_stores_its_results_and_usage_and_starts_no_later_turn,
            runs::a_turn_is_durable_before_its_tools_start_and_each_result_before_the_next,
            suspended_sub_agents::rewriting_items_before_a_suspended_call_lets_it_continue,
            tombstones::items_of_an_idle_session_are_tombstoned_permanently,
        }
    };
    (@tests $name:ident, $empty:expr; $($module:ident::$claim:ident,)*) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $claim() {
                    $crate::store_suite::$module::$claim($empty).await;
                }
            )*
        }
    };
}

/// Creates a module with a test for each claim that holds for stores on disk.
///
/// The arguments are the name of the module, an [`OpenStore`], and the step of the sample of the
/// file operations that fail: see [`sample_step`](crate::cases::sample_step).
#[macro_export]
macro_rules! disk_store_suite {
    ($name:ident, $open:expr, step = $step:literal) => {
        mod $name {
            $crate::disk_store_suite! {
                @tests $open;
                growth::the_size_of_a_session_is_linear_in_the_conversation,
                processes::a_killed_writer_loses_no_acknowledged_append,
                processes::concurrent_processes_lose_nothing_in_a_session,
                processes::racing_processes_never_settle_a_running_session,
                processes::the_lease_of_a_session_ends_with_its_process,
            }

            #[cfg(unix)]
            $crate::disk_store_suite! {
                @tests $open;
                processes::a_full_disk_loses_nothing_of_a_session,
            }

            #[cfg(target_os = "linux")]
            $crate::disk_store_suite! {
                @tests $open;
                failing_files::a_store_on_a_read_only_file_system_is_read_and_writes_state_the_reason,
            }

            #[cfg(target_os = "linux")]
            #[test]
            fn no_failing_file_operation_loses_or_splits_an_append_or_is_misreported() {
                $crate::store_suite::failing_files::no_failing_file_operation_loses_or_splits_an_append_or_is_misreported(
                    $crate::test_name!(
                        no_failing_file_operation_loses_or_splits_an_append_or_is_misreported
                    ),
                    $open,
                    $step,
                );
            }

            #[tokio::test]
            async fn a_suspended_sub_agent_survives_its_process_and_its_call_runs_once() {
                $crate::store_suite::suspended_sub_agents::a_suspended_sub_agent_survives_its_process_and_its_call_runs_once(
                    $crate::test_name!(
                        a_suspended_sub_agent_survives_its_process_and_its_call_runs_once
                    ),
                    $open,
                )
                .await;
            }
        }
    };
    (@tests $open:expr; $($module:ident::$claim:ident,)*) => {
        $(
            #[test]
            fn $claim() {
                $crate::store_suite::$module::$claim($crate::test_name!($claim), $open);
            }
        )*
    };
}

/// The name of a test of the current module, with which the test binary can run it alone.
#[macro_export]
macro_rules! test_name {
    ($test:ident) => {
        // Without the name of the crate.
        ::core::concat!(::core::module_path!(), "::", ::core::stringify!($test))
            .split_once("::")
            .expect("a test of a module")
            .1
    };
}
