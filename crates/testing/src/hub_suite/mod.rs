//! Tests that check whether an implementation of [`EventLog`](turnstream::hub::EventLog) and
//! [`CommandInbox`](turnstream::hub::CommandInbox) fulfills the traits' contracts, alone and in a
//! [`Hub`](turnstream::hub::Hub).
//!
//! A [`Backend`] creates the log. [`hub_suite!`](macro@crate::hub_suite) creates one test for each
//! check, named after the check, and [`check_claim`] runs a single one.
//!
//! ```
//! use futures::future::BoxFuture;
//! use futures::stream::BoxStream;
//! use turnstream::Error;
//! use turnstream::agent::InputReceipt;
//! use turnstream::hub::{
//!     Command, CommandInbox, EventLog, EventNumber, LogEntry, LogStats, MemoryInbox, MemoryLog,
//!     SentCommand,
//! };
//! use turnstream_testing::hub_suite::{self, Backend};
//!
//! // In place of a connection to a server:
//! #[derive(Clone, Default)]
//! struct MyEvents(MemoryLog, MemoryInbox);
//!
//! impl EventLog for MyEvents {
//!     fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>> {
//!         self.0.begin(run)
//!     }
//!
//!     fn append(
//!         &self,
//!         entries: Vec<LogEntry>,
//!         trim_before: Option<EventNumber>,
//!     ) -> BoxFuture<'_, Result<(), Error>> {
//!         self.0.append(entries, trim_before)
//!     }
//!
//!     fn read(
//!         &self,
//!         run: &str,
//!         after: Option<&EventNumber>,
//!     ) -> BoxStream<'static, Result<LogEntry, Error>> {
//!         self.0.read(run, after)
//!     }
//!
//!     fn remove(&self, run: &str, epoch: u64) {
//!         self.0.remove(run, epoch);
//!     }
//!
//!     fn stats(&self) -> LogStats {
//!         self.0.stats()
//!     }
//! }
//!
//! impl CommandInbox for MyEvents {
//!     fn open<'a>(
//!         &'a self,
//!         run: &'a str,
//!     ) -> BoxFuture<'a, Result<BoxStream<'static, SentCommand>, Error>> {
//!         self.1.open(run)
//!     }
//!
//!     fn send<'a>(
//!         &'a self,
//!         run: &'a str,
//!         id: String,
//!         command: Command,
//!     ) -> BoxFuture<'a, Result<InputReceipt, Error>> {
//!         self.1.send(run, id, command)
//!     }
//! }
//!
//! struct MyBackend;
//!
//! impl Backend for MyBackend {
//!     type Events = MyEvents;
//!
//!     async fn events() -> MyEvents {
//!         MyEvents::default()
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // In a file of tests: `turnstream_testing::hub_suite!(my_log, crate::MyBackend);`
//! hub_suite::check_claim::<MyBackend>("an_earlier_attempt_cannot_append").await;
//! # }
//! ```

mod backend;
mod commands;
mod endings;
mod folds;
mod logs;
mod pace;
mod readers;
mod sessions;

pub use backend::{Backend, Clock};

#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "the macro has the list of all claims")
)]
use self::{commands::*, endings::*, folds::*, logs::*, readers::*, sessions::*};

/// Creates a module that contains one test for each check of the log and inbox
/// [suite](mod@crate::hub_suite).
///
/// The arguments are a name for the module and the path of a
/// [`Backend`](crate::hub_suite::Backend). The tests run on two threads, so the crate that uses the
/// macro needs tokio with the features `macros` and `rt-multi-thread`.
///
/// If `ignore = "why"` is placed between the two arguments, each test is marked
/// `#[ignore = "why"]`. If `paused` is placed between them, the tests run on one thread with a
/// paused clock, which needs tokio's feature `test-util`; the backend's
/// [`clock`](crate::hub_suite::Backend::clock) must be
/// [`Clock::Paused`](crate::hub_suite::Clock::Paused).
///
/// For an example, see the [suite](mod@crate::hub_suite).
#[macro_export(local_inner_macros)]
macro_rules! hub_suite {
    ($name:ident, paused, $backend:path) => {
        hub_suite! { @claims tests $name, [#[tokio::test(start_paused = true)]] $backend }
    };
    ($name:ident, ignore = $reason:literal, $backend:path) => {
        hub_suite! {
            @claims tests $name,
            [#[tokio::test(flavor = "multi_thread", worker_threads = 2)] #[ignore = $reason]]
            $backend
        }
    };
    ($name:ident, $backend:path) => {
        hub_suite! {
            @claims tests $name,
            [#[tokio::test(flavor = "multi_thread", worker_threads = 2)]]
            $backend
        }
    };
    (@claims $rule:ident $($with:tt)*) => {
        hub_suite! { @$rule [
            input_is_appended_in_order_with_the_id_of_its_receipt
            a_verdict_answers_the_call_and_a_second_one_is_refused
            a_verdict_allows_further_calls_until_a_command_revokes_the_grant
            input_beyond_the_limits_of_a_runs_queue_is_refused_but_an_interrupt_is_not
            a_command_to_an_ended_or_unknown_run_is_an_error
            an_interrupt_ends_the_run
            an_interrupt_of_the_model_lets_the_tools_finish_and_the_input_follow
            a_stream_that_is_not_a_run_accepts_no_commands
            runs_end_with_their_runtime
            dropping_the_owner_synchronously_drops_the_run_and_ends_its_readers
            dropping_the_hub_synchronously_drops_its_runs
            dropping_readers_cancels_nothing
            a_panic_in_a_run_ends_it_with_a_panic_error
            a_key_has_at_most_one_active_run
            a_run_without_readers_is_interrupted_after_the_configured_time
            a_stream_without_commands_or_readers_is_dropped
            shutdown_waits_then_interrupts_and_stores_partial_turns
            shutting_down_a_hub_without_runs_returns_at_once
            the_log_of_an_ended_run_can_be_read_from_a_number_until_it_is_removed
            a_hub_that_loses_its_run_drops_it_and_readers_follow_the_next_attempt
            a_reader_attached_at_the_start_receives_every_event
            a_reader_attached_at_any_number_ends_with_the_history_of_the_run
            a_snapshot_equals_the_fold_of_all_earlier_events
            a_snapshot_contains_no_more_events_than_necessary
            a_snapshot_contains_no_deltas_of_complete_turns
            an_earlier_attempt_cannot_append
            reading_an_unknown_run_is_an_error
            an_event_number_of_another_run_or_beyond_the_log_is_ignored
            a_reader_that_is_up_to_date_skips_the_snapshots_of_its_attempt
            a_slow_reader_is_disconnected_with_its_last_number
            readers_that_detach_and_attach_at_random_lose_and_duplicate_nothing
            a_disconnected_slow_reader_can_reattach_without_loss_and_the_log_stays_small
            stats_count_runs_and_readers
            a_reader_of_a_session_follows_it_from_run_to_run
            after_a_restart_history_and_pending_calls_come_from_the_store
            reading_from_a_number_of_an_earlier_run_returns_a_snapshot_of_the_active_run
            a_reader_polled_after_a_failure_receives_the_error
            a_reader_not_polled_during_a_run_receives_a_snapshot_of_the_session
            reading_from_a_number_before_a_missed_run_returns_a_snapshot_of_the_session
            a_reader_polled_or_reattached_at_any_time_ends_with_the_whole_session
        ] $($with)* }
    };
    (@tests [$($claim:ident)*] $name:ident, $attributes:tt $backend:path) => {
        #[cfg(test)]
        mod $name {
            $(hub_suite! { @test $claim, $attributes $backend })*
        }
    };
    (@test $claim:ident, [$($attribute:tt)*] $backend:path) => {
        $($attribute)*
        async fn $claim() {
            let name = ::core::stringify!($claim);
            $crate::hub_suite::check_claim::<$backend>(name).await;
        }
    };
    (@run [$($claim:ident)*] $backend:ident, $chosen:ident, $found:ident) => {
        $(
            if $chosen == ::core::stringify!($claim) {
                $found = true;
                $claim::<$backend>().await;
            }
        )*
    };
}

/// Runs the check with this name.
///
/// # Panics
///
/// Panics if the check fails, or if no check has this name.
pub async fn check_claim<B: Backend>(name: &str) {
    let mut found = false;
    hub_suite! { @claims run B, name, found }
    assert!(found, "there is no claim `{name}`");
}
