//! Contract tests for providers that communicate with a server. The tests are for authors of a
//! [`Provider`](turnstream::provider::Provider) or a [wire
//! format](turnstream::provider).
//!
//! A [`Subject`] creates the provider and writes its server's answers. The suite consists of
//! checks, which are called claims in the API. Each check tests one requirement, using a server on
//! the loopback interface. [`check`] runs all checks, and
//! [`provider_suite!`](macro@crate::provider_suite) creates a test for each check, named after the check.
//!
//! ```
//! use serde_json::json;
//! use turnstream::provider::{OpenAiChat, Piece};
//! use turnstream_testing::provider_suite::{self, Subject};
//! use turnstream::turn::StopReason;
//!
//! struct Chat;
//!
//! impl Subject for Chat {
//!     type Provider = OpenAiChat;
//!
//!     fn provider(&self, url: &str, key: &str) -> OpenAiChat {
//!         OpenAiChat::new("any").with_base_url(url).expect("a URL").with_api_key(key)
//!     }
//!
//!     fn response_body(&self, pieces: &[Piece]) -> Option<Vec<u8>> {
//!         let mut body = String::new();
//!         for piece in pieces {
//!             let choice = match piece {
//!                 Piece::Text(text) => json!({ "delta": { "content": text } }),
//!                 Piece::Stop(StopReason::Stop) => json!({ "delta": {}, "finish_reason": "stop" }),
//!                 // Claims about calls and reasoning are skipped.
//!                 _ => return None,
//!             };
//!             body += &format!("data: {}\n\n", json!({ "choices": [choice] }));
//!         }
//!         Some(body.into_bytes())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // In a test: `#[tokio::test] async fn my_provider_keeps_the_contract()`.
//! let report = provider_suite::check(&Chat).await;
//! report.assert();
//! assert!(report.skipped().any(|(claim, _why)| claim == "a_call_comes_whole"));
//! # }
//! ```
//!
//! The suite requires a tokio runtime with I/O and time enabled. The runtime's clock must not be
//! paused. No check waits for a fixed amount of time. A check fails if an event that it waits for
//! does not occur within ten seconds. The suite does not check how far a provider reads ahead of
//! its consumer, because reading ahead cannot be distinguished from buffering in the sockets.

mod report;
mod subject;

mod sample_requests;
mod server;

mod agent_claims;
mod error_claims;
mod interrupted_response_claims;
mod request_claims;
mod response_claims;

#[cfg(test)]
mod tests;

pub use report::{Report, UnmetClaim};
pub use subject::Subject;

#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "the macro has the list of all claims")
)]
use self::{
    agent_claims::*, error_claims::*, interrupted_response_claims::*, request_claims::*,
    response_claims::*,
};

/// Creates a module that contains a test for each check in the [provider test
/// suite](mod@crate::provider_suite).
///
/// The macro takes a name for the module and an expression that creates a
/// [`Subject`](crate::provider_suite::Subject). The tests are `#[tokio::test]` functions,
/// so the crate that uses the macro needs tokio with the features `macros` and `rt`.
///
/// ```
/// # struct Mine;
/// # impl turnstream_testing::provider_suite::Subject for Mine {
/// #     type Provider = turnstream::provider::Scripted;
/// #     fn provider(&self, _: &str, _: &str) -> Self::Provider { Self::Provider::new([""]) }
/// #     fn response_body(&self, _: &[turnstream::provider::Piece]) -> Option<Vec<u8>> { None }
/// # }
/// turnstream_testing::provider_suite!(my_provider, super::Mine);
/// ```
#[macro_export(local_inner_macros)]
macro_rules! provider_suite {
    ($name:ident, $subject:expr) => {
        provider_suite! { @claims tests $name, $subject }
    };
    (@claims $rule:ident $($with:tt)*) => {
        provider_suite! { @$rule [
            nothing_is_sent_before_the_first_poll
            the_same_request_is_sent_as_the_same_bytes
            the_next_request_begins_with_the_one_before
            an_open_call_is_answered_before_it_is_sent
            the_model_that_a_request_names_is_asked
            a_dropped_turn_closes_its_connection
            a_whole_answer_is_one_complete_turn
            text_arrives_while_the_server_still_sends
            a_turn_is_the_sum_of_its_events
            text_comes_as_the_server_wrote_it
            reasoning_is_not_text
            a_turn_does_not_depend_on_how_its_bytes_are_cut
            a_call_comes_whole
            each_call_of_a_turn_has_an_id_of_its_own
            no_call_has_an_id_of_the_history
            the_stop_reason_is_what_the_server_said
            the_usage_is_what_the_server_counted
            an_answer_that_breaks_off_is_an_error_with_what_was_said
            a_call_of_an_answer_that_breaks_off_does_not_run
            an_error_status_is_an_error_of_that_status
            the_time_to_wait_is_the_servers
            a_request_that_forbids_retries_is_sent_once
            an_error_within_the_stream_is_an_error
            no_error_and_no_debug_output_shows_the_key
            a_tool_loop_runs_through_an_agent
        ] $($with)* }
    };
    (@tests [$($claim:ident)*] $name:ident, $subject:expr) => {
        #[cfg(test)]
        mod $name {
            $(
                #[tokio::test]
                async fn $claim() {
                    let name = ::core::stringify!($claim);
                    $crate::provider_suite::check_claim(&$subject, name).await.assert();
                }
            )*
        }
    };
    (@run [$($claim:ident)*] $report:ident, $subject:ident, $chosen:ident) => {
        $(
            if $chosen.is_none_or(|chosen| chosen == ::core::stringify!($claim)) {
                $report.run_check($subject, ::core::stringify!($claim), $claim($subject)).await;
            }
        )*
    };
}

/// Runs all checks, one after another.
///
/// Dropping the future cancels the check that is running, and the remaining checks do not run.
///
/// This function does not panic if a check fails. To panic if any check failed, call
/// [`Report::assert`] on the returned report.
pub async fn check<S: Subject>(subject: &S) -> Report {
    run_claim(subject, None).await
}

/// Runs only the check named `claim`. An unknown name counts as a failure.
pub async fn check_claim<S: Subject>(subject: &S, claim: &str) -> Report {
    let mut report = run_claim(subject, Some(claim)).await;
    if report.is_empty() {
        report.fail_unknown_claim(claim);
    }
    report
}

async fn run_claim<S: Subject>(subject: &S, chosen: Option<&str>) -> Report {
    let mut report = Report::default();
    provider_suite! { @claims run report, subject, chosen }
    report
}
