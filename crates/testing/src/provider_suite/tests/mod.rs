//! Each claim fails for a provider that breaks it, and holds for one that does not.

mod broken_provider;
mod plain_wire;

use tokio::runtime::Builder;

use self::broken_provider::{Broken, Fault};
use crate::provider_suite::{check, check_claim};

/// The claim that each fault breaks.
const BROKEN: &[(Fault, &str)] = &[
    (Fault::SendsAtOnce, "nothing_is_sent_before_the_first_poll"),
    (Fault::NumbersItsRequests, "the_same_request_is_sent_as_the_same_bytes"),
    (Fault::SendsTheLastItem, "the_next_request_begins_with_the_one_before"),
    (Fault::RewritesTheFirstItem, "the_next_request_begins_with_the_one_before"),
    (Fault::DoesNotSettle, "an_open_call_is_answered_before_it_is_sent"),
    (Fault::AsksItsOwnModel, "the_model_that_a_request_names_is_asked"),
    (Fault::ReadsInATask, "a_dropped_turn_closes_its_connection"),
    (Fault::SendsAgainWhenDropped, "a_dropped_turn_closes_its_connection"),
    (Fault::HasNoEnd, "a_whole_answer_is_one_complete_turn"),
    (Fault::GathersTheTurn, "text_arrives_while_the_server_still_sends"),
    (Fault::LosesADelta, "a_turn_is_the_sum_of_its_events"),
    (Fault::TrimsText, "text_comes_as_the_server_wrote_it"),
    (Fault::SpeaksItsThoughts, "reasoning_is_not_text"),
    (Fault::DecodesEachChunk, "a_turn_does_not_depend_on_how_its_bytes_are_cut"),
    (Fault::LosesArguments, "a_call_comes_whole"),
    (Fault::NamesItsCalls, "a_call_comes_whole"),
    (Fault::LosesTheSecondCall, "each_call_of_a_turn_has_an_id_of_its_own"),
    (Fault::KnowsNoHistory, "no_call_has_an_id_of_the_history"),
    (Fault::AlwaysStops, "the_stop_reason_is_what_the_server_said"),
    (Fault::CountsNothing, "the_usage_is_what_the_server_counted"),
    (Fault::CompletesWhatBreaksOff, "an_answer_that_breaks_off_is_an_error_with_what_was_said"),
    (Fault::TakesABreakForAFailure, "an_answer_that_breaks_off_is_an_error_with_what_was_said"),
    (Fault::CompletesWhatBreaksOff, "a_call_of_an_answer_that_breaks_off_does_not_run"),
    (Fault::HasOneError, "an_error_status_is_an_error_of_that_status"),
    (Fault::HasOneError, "the_time_to_wait_is_the_servers"),
    (Fault::Retries, "a_request_that_forbids_retries_is_sent_once"),
    (Fault::CompletesWhatFails, "an_error_within_the_stream_is_an_error"),
    (Fault::ShowsItsKey, "no_error_and_no_debug_output_shows_the_key"),
    (Fault::RepeatsTheKey, "no_error_and_no_debug_output_shows_the_key"),
    (Fault::SendsTheLastItem, "a_tool_loop_runs_through_an_agent"),
    (Fault::Panics, "a_whole_answer_is_one_complete_turn"),
];

#[track_caller]
fn names<'a>(claims: impl Iterator<Item = (&'static str, &'a str)>) -> Vec<&'static str> {
    claims.map(|(claim, _)| claim).collect()
}

#[tokio::test]
async fn every_claim_holds_without_a_fault_and_fails_under_some_fault() {
    let report = check(&Broken::by(Fault::None)).await;
    assert_eq!(names(report.failed()), [""; 0], "{report}");
    assert_eq!(names(report.skipped()), [""; 0], "{report}");
    report.assert();
    for claim in report.passed() {
        assert!(BROKEN.iter().any(|(_, broken)| *broken == claim), "no fault breaks {claim}");
    }
}

#[test]
fn every_claim_fails_for_a_provider_that_breaks_it() {
    for (fault, claim) in BROKEN {
        // Some faults pause the clock of their runtime.
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let report = runtime.block_on(check_claim(&Broken::by(*fault), claim));
        assert_eq!(names(report.failed()), [*claim], "{fault:?}: {report}");
        let panicked = report.to_string().contains("it panicked");
        assert_eq!(panicked, *fault == Fault::Panics, "{fault:?}: {report}");
    }
}

#[tokio::test]
async fn an_unknown_claim_name_fails() {
    let report = check_claim(&Broken::by(Fault::None), "a_call_comes_hole").await;
    let failed: Vec<_> = report.failed().map(|(_, why)| why).collect();
    assert_eq!(failed, ["no claim has this name: `a_call_comes_hole`"]);
}
