//! A summary that replaces old turns.

use std::time::Duration;

use futures::executor::block_on;
use serde_json::json;
use turnstream::context::{
    Compaction, CompactionFailure, Compactor, Summarizer, Truncator, compactor_fn,
    record_stale_usage,
};
use turnstream::item::{ItemFlag, MediaSource, Part};
use turnstream::provider::{Reply, Retry, Scripted};
use turnstream::request::Options;
use turnstream::turn::StopReason;
use turnstream::{Error, ErrorKind, History, Item};

use turnstream_test_support::compaction::{run_compactor, scripted_summarizer};
use turnstream_test_support::items::{
    apply_compaction, history_of, look_result, look_turn, message_texts, session_items, token_usage,
};

const SUMMARY_HEADING: &str =
    "Summary of the conversation up to here, which was too long to be kept:";

#[test]
fn old_turns_become_one_marked_item_and_the_newest_stay_whole() {
    let before = history_of(session_items(5));
    let (compactor, model) = scripted_summarizer(2);
    let compaction = run_compactor(&compactor, &before).unwrap();
    let after = apply_compaction(&compaction, &before);
    assert!(after.is_settled());
    let kept: Vec<Item> = before.iter().skip(13).cloned().collect();
    let items: Vec<Item> = after.iter().cloned().collect();
    let summary =
        Item::user(format!("{SUMMARY_HEADING}\n\nsummary 1")).with_flag(ItemFlag::Compacted);
    assert_eq!(items[..2], [summary, Item::user("Begin.")]);
    assert_eq!(items[2..], kept);
    assert_eq!((compaction.model.as_deref(), model.requests().len()), (Some("scripted"), 1));
}

#[test]
fn the_summary_request_is_one_message_without_reasoning_or_tools() {
    let mut items = session_items(1);
    items.push(Item::tool_call("c9", "look", format!("{{\"a\":\"{}\"}}", "y".repeat(9_000))));
    items.push(look_result(
        "c9",
        vec![
            "z".repeat(9_000).as_str().into(),
            Part::image("image/png", MediaSource::Data("AA".into())),
        ],
    ));
    items.push(Item::user("void").with_flag(ItemFlag::Tombstone));
    items.extend(look_turn(2));
    let (compactor, model) = scripted_summarizer(1);
    run_compactor(&compactor.with_max_result_bytes(100), &history_of(items)).unwrap();
    let request = &model.requests()[0];
    assert!(request.tools.is_empty() && request.system.stable.contains("open tasks"));
    let [text] = &message_texts(&request.context)[..] else { panic!("it is one message") };
    assert!(
        text.starts_with("<conversation>\n[user]\nBegin.\n\n[assistant]\ntext 0\n\n"),
        "{text}"
    );
    assert!(
        text.contains("[assistant calls look]\n{\"n\":0}\n\n[result of look, ok]\nresult 0\n\n")
    );
    assert!(text.contains("bytes were left out here") && text.contains("[image/png]"), "{text}");
    assert!(text.len() < 700 && text.ends_with("\n\n</conversation>"), "{text}");
    for gone in ["thought", "void", "text 2"] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
}

#[test]
fn the_transcript_to_summarize_is_bounded() {
    let (compactor, model) = scripted_summarizer(1);
    let mut items = vec![Item::user("u".repeat(5_000))];
    items.extend(session_items(3));
    run_compactor(&compactor.with_max_transcript_bytes(500), &history_of(items)).unwrap();
    let text = &message_texts(&model.requests()[0].context)[0];
    assert!((500..540).contains(&text.len()), "{}", text.len());

    let (compactor, model) = scripted_summarizer(1);
    let mut items = vec![Item::user("u".repeat(500_000))];
    items.extend(session_items(3));
    run_compactor(&compactor, &history_of(items)).unwrap();
    let text = &message_texts(&model.requests()[0].context)[0];
    assert!((400_000..400_040).contains(&text.len()), "{}", text.len());
}

#[test]
fn a_long_result_is_truncated_to_2048_bytes_in_the_transcript() {
    let mut items = session_items(1);
    items.push(Item::tool_call("c9", "look", "{}"));
    items.push(look_result("c9", "z".repeat(9_000)));
    items.extend(look_turn(2));
    let (compactor, model) = scripted_summarizer(1);
    run_compactor(&compactor, &history_of(items)).unwrap();
    let text = &message_texts(&model.requests()[0].context)[0];
    let kept_bytes = text.matches('z').count();
    assert!((1_900..2_048).contains(&kept_bytes), "{kept_bytes}");
}

#[test]
fn an_earlier_summary_is_included_in_the_next_and_not_summarized_alone() {
    let before = history_of(session_items(5));
    let (compactor, model) = scripted_summarizer(2);
    let mut it = apply_compaction(
        &record_stale_usage(run_compactor(&compactor, &before).unwrap(), &before),
        &before,
    );
    assert_eq!(run_compactor(&compactor, &it), None, "there is nothing but a summary");
    it.extend(look_turn(7));
    let it =
        apply_compaction(&record_stale_usage(run_compactor(&compactor, &it).unwrap(), &it), &it);
    let asked = &message_texts(&model.requests()[1].context)[0];
    assert!(asked.contains("summary 1") && asked.contains("text 3"), "{asked}");
    let said = message_texts(&it);
    assert_eq!(said, [&format!("{SUMMARY_HEADING}\n\nsummary 2"), "Begin.", "text 4", "text 7"]);
}

#[test]
fn system_instructions_and_the_newest_prompt_are_kept() {
    let mut items = vec![Item::system("first"), Item::user("old")];
    items.extend(look_turn(0));
    items.push(Item::system("later"));
    items.extend([Item::user("newest"), Item::user("and this")]);
    items.extend((1..4).flat_map(look_turn));
    let before = history_of(items);
    let (compactor, _) = scripted_summarizer(1);
    let compaction = run_compactor(&compactor, &before).unwrap();
    assert_eq!(compaction.from, 1);
    let after: Vec<Item> = apply_compaction(&compaction, &before).iter().take(5).cloned().collect();
    assert_eq!((&after[0], &after[1]), (&Item::system("first"), &Item::system("later")));
    assert!(after[2].compacted);
    assert_eq!(after[3..], [Item::user("newest"), Item::user("and this")]);
}

#[test]
fn as_many_recent_turns_are_kept_as_fit_and_at_least_one() {
    let before = history_of(session_items(6));
    let kept = |compactor: Summarizer| {
        let compaction = run_compactor(&compactor, &before).unwrap();
        (before.len() - compaction.to) / 4
    };
    let all = || scripted_summarizer(4).0;
    assert_eq!(kept(all()), 4);
    assert_eq!(kept(all().with_keep_turns(0)), 1);
    // A turn is estimated at about 27 tokens.
    assert_eq!(kept(all().with_keep_tokens(60)), 2);
    assert_eq!(kept(all().with_keep_tokens(0)), 1);
    assert_eq!(kept(all().with_keep_tokens(60).with_counter(|_: &str| 0)), 3);
}

#[test]
fn a_history_without_old_turns_is_not_summarized() {
    let (compactor, model) = scripted_summarizer(2);
    for items in
        [vec![], vec![Item::user("u")], session_items(2), vec![Item::system("s"), "u".into()]]
    {
        assert_eq!(run_compactor(&compactor, &history_of(items)), None);
    }
    assert!(model.requests().is_empty());
}

#[track_caller]
fn assert_fails_with(reply: Reply, kind: ErrorKind) {
    let compactor = Summarizer::new(Scripted::new([reply])).with_keep_turns(1);
    let error = block_on(compactor.compact(&history_of(session_items(3)))).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(CompactionFailure::usage_of(&error), token_usage(70, 7), "what was used is known");
}

#[test]
fn a_summary_that_may_be_incomplete_is_an_error() {
    let says = |text| Reply::text(text).usage(token_usage(70, 7));
    let said = || says("The user");
    assert_fails_with(says(" \n"), ErrorKind::GenerationFailed);
    assert_fails_with(said().stop(StopReason::MaxTokens), ErrorKind::GenerationFailed);
    assert_fails_with(said().stop(StopReason::Pause), ErrorKind::GenerationFailed);
    let odd = StopReason::Other("odd".into());
    assert_fails_with(said().stop(odd), ErrorKind::GenerationFailed);
    assert_fails_with(said().call("look", json!({})), ErrorKind::GenerationFailed);
    assert_fails_with(said().stop(StopReason::Refusal), ErrorKind::Filtered);
    assert_fails_with(said().stop(StopReason::ContentFilter), ErrorKind::Filtered);
    assert_fails_with(said().stop(StopReason::ContextWindow), ErrorKind::ContextWindow);
}

#[test]
fn a_provider_failure_is_an_error_and_retracted_attempts_are_counted() {
    let overloaded = || Error::new(ErrorKind::Overloaded, "busy");
    assert_fails_with(
        Reply::text("The").usage(token_usage(70, 7)).fail(overloaded()),
        ErrorKind::Overloaded,
    );
    let again = Reply::new().say("The").usage(token_usage(5, 1)).retract("again").say("All.");
    let compactor =
        Summarizer::new(Scripted::new([again.usage(token_usage(70, 7))])).with_keep_turns(1);
    let compaction = run_compactor(&compactor, &history_of(session_items(3))).unwrap();
    assert_eq!(compaction.usage, token_usage(75, 8));
}

#[tokio::test(start_paused = true)]
async fn a_summary_request_is_not_retried_after_a_long_retry_delay() {
    for (seconds, asked) in [(4, 2), (5, 2), (6, 1), (60, 1)] {
        let wait = Duration::from_secs(seconds);
        let busy = Error::new(ErrorKind::RateLimited, "busy").with_retry_after(wait);
        let model = Scripted::new([Reply::error(busy), "a summary".into()]);
        let summarize = Summarizer::new(Retry::new(model.clone())).with_keep_turns(1);
        let made = summarize.compact(&history_of(session_items(3))).await;
        assert_eq!((made.is_ok(), model.requests().len()), (asked == 2, asked), "{seconds}");
    }
}

#[test]
fn a_custom_prompt_and_options_are_used() {
    let (compactor, model) = scripted_summarizer(1);
    let options = Options { max_output_tokens: Some(900), ..Options::default() };
    let compactor = compactor.with_prompt("In one line.").with_options(options.clone());
    run_compactor(&compactor, &history_of(session_items(3))).unwrap();
    let request = &model.requests()[0];
    assert_eq!((&*request.system.stable, &request.options), ("In one line.", &options));
}

#[tokio::test(start_paused = true)]
async fn the_summary_request_starts_at_the_first_poll_and_is_dropped_with_the_future() {
    let model = Scripted::new([Reply::text("never").delay(Duration::from_mins(1))]);
    let compactor = Summarizer::new(model.clone()).with_keep_turns(1);
    let mut future = compactor.compact(&history_of(session_items(3)));
    assert!(model.requests().is_empty());
    assert!(futures::poll!(&mut future).is_pending());
    assert_eq!(model.in_flight(), 1);
    drop(future);
    assert_eq!(model.in_flight(), 0);
}

#[test]
fn or_else_uses_the_second_compactor_if_the_first_yields_nothing_or_fails() {
    let before = history_of(session_items(3));
    let none = || compactor_fn(|_: &History| Ok(None));
    let fails = || compactor_fn(|_: &History| Err(Error::new(ErrorKind::Other, "no")));
    let one = || compactor_fn(|_: &History| Ok(Some(Compaction::new(0, 1, vec![]))));
    let (summarize, model) = scripted_summarizer(1);
    assert_eq!(run_compactor(&one().or_else(summarize.clone()), &before).unwrap().to, 1);
    assert!(model.requests().is_empty());
    assert_eq!(run_compactor(&none().or_else(one()), &before).unwrap().to, 1);
    assert_eq!(run_compactor(&fails().or_else(one()), &before).unwrap().to, 1);
    assert_eq!(run_compactor(&none().or_else(none()), &before), None);
    assert!(block_on(fails().or_else(none()).compact(&before)).is_err());
    assert!(block_on(none().or_else(fails()).compact(&before)).is_err());
    // Truncation comes before the summary by a model.
    let chain =
        Truncator { keep_turns: 1, max_reasoning_bytes: 0, ..Truncator::new() }.or_else(summarize);
    let it = apply_compaction(&run_compactor(&chain, &before).unwrap(), &before);
    assert!(model.requests().is_empty() && it.iter().any(|item| item.turn.is_some()));
    assert!(run_compactor(&chain, &it).is_some());
    assert_eq!(model.requests().len(), 1);
}

#[test]
fn or_else_counts_the_usage_of_a_failed_first_compactor() {
    let cut = || {
        let reply = Reply::text("The").usage(token_usage(30, 3)).stop(StopReason::MaxTokens);
        Summarizer::new(Scripted::new([reply])).with_keep_turns(1)
    };
    let before = history_of(session_items(3));
    let second = Summarizer::new(Scripted::new([Reply::text("All.").usage(token_usage(40, 4))]));
    let chain = cut().or_else(second.with_keep_turns(1));
    assert_eq!(run_compactor(&chain, &before).unwrap().usage, token_usage(70, 7));
    let error = block_on(cut().or_else(cut()).compact(&before)).unwrap_err();
    assert_eq!(CompactionFailure::usage_of(&error), token_usage(60, 6));
}

#[test]
fn the_number_of_kept_turns_can_be_unlimited() {
    let before = history_of(session_items(6));
    let kept = |compactor: Summarizer| {
        let compaction = run_compactor(&compactor, &before).unwrap();
        (before.len() - compaction.to) / 4
    };
    let any = || scripted_summarizer(usize::MAX).0;
    assert_eq!(kept(any().with_keep_tokens(60)), 2);
    assert_eq!(kept(any().with_keep_tokens(0)), 1);
    assert_eq!(run_compactor(&any(), &before), None);
}
