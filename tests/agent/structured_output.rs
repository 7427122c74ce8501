//! Answers with a type: parsing, validation and corrections, and JSON lines.

use std::collections::HashMap;

use futures::{StreamExt, stream};
use serde::Deserialize;
#[cfg(feature = "schemars")]
use serde_json::{Value, json};
use turnstream::agent::Limits;
use turnstream::env::CountingIds;
use turnstream::event::{AppendReason, EndReason, Transition};
use turnstream::provider::{Provider, Reply, Scripted};
#[cfg(feature = "schemars")]
use turnstream::request::{Cache, Options, Output};
use turnstream::stream::{JsonLine, LineError};
use turnstream::turn::{ParseError, StopReason};
use turnstream::{
    Agent, Error, ErrorKind, Event, History, Item, Outcome, Request, Turn, TurnEvent, TurnStreamExt,
};
#[cfg(feature = "schemars")]
use turnstream_testing::Wire;

use turnstream_test_support::models::ChunkedProvider;
use turnstream_test_support::runs::limits_with_max_turns;
#[cfg(feature = "schemars")]
use turnstream_test_support::wires::sse_body;

#[derive(Clone, Debug, Deserialize, PartialEq)]
struct City {
    name: String,
    people: u8,
    #[serde(default)]
    parts: Vec<HashMap<String, u8>>,
}

fn oslo_city() -> City {
    City { name: "Oslo".into(), people: 7, parts: Vec::new() }
}

const OSLO_JSON: &str = r#"{"name":"Oslo","people":7}"#;

async fn turn_from_reply(reply: impl Into<Reply>) -> std::sync::Arc<Turn> {
    let model = Scripted::new([reply.into()]);
    let events = model.stream_turn(Request::new(History::empty("h")));
    events.into_turn().await.unwrap()
}

#[cfg(feature = "schemars")]
#[tokio::test]
async fn later_options_keep_the_output_schema_and_all_options_that_they_do_not_set() {
    #[derive(Deserialize, schemars::JsonSchema)]
    struct Answer {
        #[serde(rename = "answer")]
        _answer: u8,
    }
    let model = Scripted::new([r#"{"answer":4}"#]);
    let first = Options {
        seed: Some(1),
        stop_sequences: vec!["END".into()],
        metadata: [("a".into(), "1".into()), ("b".into(), "1".into())].into(),
        ..Options::default()
    };
    let second = Options {
        seed: Some(2),
        cache: Cache::Off,
        metadata: [("b".into(), "2".into())].into(),
        ..Options::default()
    };
    let agent = Agent::new(model.clone()).with_output::<Answer>().with_options(first.clone());
    let third = Options { temperature: Some(0.5), ..Options::default() };
    agent.with_options(third).with_options(second.clone()).run("go").outcome().await;
    let asked = model.requests().remove(0).options;
    assert_eq!(asked.output, Output::for_type::<Answer>());
    assert_eq!((asked.temperature, asked.seed, asked.cache), (Some(0.5), Some(2), Cache::Off));
    assert_eq!(asked.stop_sequences, first.stop_sequences);
    let metadata: Vec<_> = asked.metadata.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(metadata, [("a", "1"), ("b", "2")]);

    let request = Request::new(History::empty("h")).with_options(first).with_options(second);
    assert_eq!((request.options.seed, request.options.stop_sequences.len()), (Some(2), 1));
}

#[track_caller]
fn assert_fits(answer: &str) {
    assert_eq!(ParseError::read_text::<City>(answer), Ok(oslo_city()), "{answer:?}");
}

#[track_caller]
fn assert_not_json(answer: &str, at: (usize, usize)) {
    match ParseError::read_text::<City>(answer).unwrap_err() {
        ParseError::NotJson { line, column, .. } => assert_eq!((line, column), at, "{answer:?}"),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_does_not_fit(answer: &str, at: &str) {
    match ParseError::read_text::<City>(answer).unwrap_err() {
        ParseError::TypeMismatch { path, text, .. } => {
            assert_eq!((path.as_str(), text.as_str()), (at, answer));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_may_be_wrapped_in_white_space_and_one_code_fence() {
    assert_fits(OSLO_JSON);
    for around in [
        format!(" \r\n\t{OSLO_JSON}\n\n"),
        format!("\u{feff}{OSLO_JSON}"),
        format!("```json\n{OSLO_JSON}\n```"),
        format!("\u{feff}\n```JSON \r\n{OSLO_JSON}\r\n```\n"),
        format!("```\n{OSLO_JSON}```"),
    ] {
        assert_fits(&around);
    }
}

#[test]
fn an_answer_may_follow_reasoning_or_one_sentence_or_be_in_the_only_code_fence() {
    for around in [
        format!("Here it is: {OSLO_JSON}"),
        format!("Sure! Here is the JSON:\n\n{OSLO_JSON}"),
        format!("I looked it up. It is this:\n```json\n{OSLO_JSON}\n```\nAnything else?"),
        format!("<think>\nIs it {{\"name\":\"Bergen\"}}? No.\n</think>\n\n{OSLO_JSON}"),
        format!("<think>Hm.</think>\n```json\n{OSLO_JSON}\n```"),
    ] {
        assert_fits(&around);
    }
}

#[test]
fn json_is_not_extracted_where_its_meaning_is_uncertain() {
    assert_not_json(&format!("I am not sure. An example: {OSLO_JSON}"), (1, 1));
    assert_not_json(&format!("Either {OSLO_JSON} or {OSLO_JSON}"), (1, 1));
    assert_not_json(&format!("{OSLO_JSON} I hope it helps."), (1, OSLO_JSON.len() + 2));
    assert_not_json(&format!("```rust\n{OSLO_JSON}\n```"), (1, 1));
    assert_not_json(&format!("```json\n{OSLO_JSON}"), (1, 1));
    assert_not_json(&format!("A:\n```\n{OSLO_JSON}\n```\nB:\n```\n{OSLO_JSON}\n```"), (1, 1));
    assert_not_json(&format!("{OSLO_JSON}{OSLO_JSON}"), (1, OSLO_JSON.len() + 1));
    assert_not_json("{\"name\":\n\"Oslo", (2, 5));
}

#[derive(Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
struct Rating {
    stars: u8,
    #[serde(default)]
    votes: u32,
    note: Option<String>,
    mean: f64,
}

const RATING_JSON: &str = r#"{"stars":4.0,"votes":null,"note":null,"mean":4.0}"#;

#[test]
fn whole_numbers_and_nulls_of_an_answer_are_read_as_its_type_accepts_them() {
    let expected = Rating { stars: 4, votes: 0, note: None, mean: 4.0 };
    assert_eq!(ParseError::read_text::<Rating>(RATING_JSON), Ok(expected));
    for (wrong, path) in [
        (r#"{"stars":4.5,"mean":1}"#, "stars"),
        (r#"{"stars":"4","mean":1}"#, "stars"),
        (r#"{"stars":256.0,"mean":1}"#, "stars"),
        (r#"{"stars":4.0,"mean":null}"#, "mean"),
        (r#"{"stars":4,"mean":null}"#, "mean"),
    ] {
        match ParseError::read_text::<Rating>(wrong).unwrap_err() {
            ParseError::TypeMismatch { path: found, text, .. } => {
                assert_eq!((found.as_str(), text.as_str()), (path, wrong));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[cfg(feature = "schemars")]
#[tokio::test]
async fn an_answer_with_a_whole_number_for_an_integer_costs_no_second_turn() {
    let text = format!("Here it is:\n```json\n{RATING_JSON}\n```\nEnjoy!");
    let model = Scripted::new([Reply::text(text.as_str()), Reply::text("never")]);
    let outcome = Agent::new(model).with_output::<Rating>().run("Rate it").outcome().await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 1));
    assert_eq!(outcome.text, text, "the history keeps the model's text");
    let rating = Rating { stars: 4, votes: 0, note: None, mean: 4.0 };
    assert_eq!(outcome.parse::<Rating>(), Ok(rating));
}

#[test]
fn a_schema_mismatch_is_reported_with_its_path() {
    assert_does_not_fit(r#"{"name":"Oslo","people":700}"#, "people");
    assert_does_not_fit(r#"{"name":"Oslo","people":7,"parts":[{"a":1},{"b":null}]}"#, "parts[1].b");
    assert_does_not_fit(r#"{"name":"Oslo"}"#, ".");
    assert_does_not_fit("[]", ".");
    let error = ParseError::read_text::<City>(r#"{"name":"Oslo","people":"no"}"#).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("invalid type: string \"no\", expected u8"), "{message}");
    assert!(message.ends_with("(at `people`)"), "{message}");
}

#[tokio::test]
async fn a_turn_without_an_answer_reports_why() {
    let text = || OSLO_JSON.to_owned();
    for (reply, expected) in [
        (Reply::new(), ParseError::NoText),
        (Reply::new().call("t", serde_json::json!({})), ParseError::NoText),
        (Reply::text(" \n"), ParseError::NoText),
        (
            Reply::new().refuse("I would rather not.").stop(StopReason::Refusal),
            ParseError::Refused { text: "I would rather not.".into() },
        ),
        (
            Reply::text(OSLO_JSON).stop(StopReason::ContentFilter),
            ParseError::Filtered { text: text() },
        ),
        (
            Reply::text(OSLO_JSON).stop(StopReason::MaxTokens),
            ParseError::Truncated { text: text() },
        ),
        (
            Reply::text(OSLO_JSON).stop(StopReason::ContextWindow),
            ParseError::Truncated { text: text() },
        ),
        (Reply::text(OSLO_JSON).stop(StopReason::Pause), ParseError::Truncated { text: text() }),
    ] {
        assert_eq!(turn_from_reply(reply).await.parse::<City>(), Err(expected));
    }
    let odd = Reply::text(OSLO_JSON).stop(StopReason::Other("odd".into()));
    assert_eq!(turn_from_reply(odd).await.parse(), Ok(oslo_city()));
    let think = Reply::new().think("{").say(OSLO_JSON);
    assert_eq!(turn_from_reply(think).await.parse(), Ok(oslo_city()));
}

#[test]
fn an_output_failure_is_the_source_of_a_one_line_error() {
    for (failure, kind) in [
        (ParseError::Refused { text: "no\nno".into() }, ErrorKind::Filtered),
        (ParseError::Filtered { text: String::new() }, ErrorKind::Filtered),
        (ParseError::Truncated { text: String::new() }, ErrorKind::Malformed),
        (ParseError::NoText, ErrorKind::Malformed),
        (ParseError::read_text::<City>("x\ny").unwrap_err(), ErrorKind::Malformed),
        (ParseError::TooLong { limit: 1 }, ErrorKind::TooLarge),
    ] {
        let error = Error::from(failure.clone());
        assert_eq!((error.kind(), error.find_source()), (kind, Some(&failure)));
        assert!(!error.message().contains('\n'), "{error}");
    }
}

fn city_agent(replies: impl IntoIterator<Item = Reply>) -> (Agent, Scripted) {
    let model = Scripted::new(replies);
    let agent = Agent::new(model.clone()).with_ids(CountingIds::new("id"));
    let agent = agent.with_validation(|turn| match turn.parse::<City>() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    });
    (agent, model)
}

async fn run_outcome(replies: impl IntoIterator<Item = Reply>) -> Outcome {
    city_agent(replies).0.run("go").outcome().await
}

#[track_caller]
fn assert_outcome(outcome: &Outcome, reason: EndReason, turns: u32) {
    assert_eq!((outcome.reason, outcome.turns), (reason, turns), "{outcome:?}");
}

#[tokio::test]
async fn an_answer_that_matches_the_schema_completes_the_run() {
    let outcome = run_outcome([OSLO_JSON.into()]).await;
    assert_outcome(&outcome, EndReason::Completed, 1);
    assert_eq!(outcome.parse(), Ok(oslo_city()));
}

#[tokio::test]
async fn an_answer_that_does_not_match_is_corrected_and_requested_again() {
    let (agent, model) =
        city_agent([r#"{"name":"Oslo","people":"no"}"#.to_owned().into(), OSLO_JSON.into()]);
    let run = agent.run("go");
    let events: Vec<_> = run.map(Result::unwrap).collect().await;
    let corrective = events.iter().find_map(|event| match event {
        Event::Appended { why: AppendReason::Corrective, items, .. } => Some(items.clone()),
        _ => None,
    });
    let corrective = corrective.unwrap();
    let told = serde_json::to_string(&corrective).unwrap();
    assert!(told.contains("expected u8") && told.contains("(at `people`)"), "{told}");
    assert!(events.contains(&Event::Continued { reason: Transition::Corrective }));
    assert_outcome(events.last().unwrap().outcome().unwrap(), EndReason::Completed, 2);
    let sent = &model.requests()[1].history;
    assert_eq!(sent.last(), corrective.last());
    assert_eq!(sent.len(), 3);
    assert!(sent.is_settled());
}

#[tokio::test]
async fn the_third_consecutive_mismatch_ends_as_malformed() {
    let wrong = || Reply::text("Oslo");
    let outcome_ = run_outcome([wrong(), wrong(), wrong(), OSLO_JSON.into()]).await;
    assert_outcome(&outcome_, EndReason::Malformed, 3);
    assert!(outcome_.partial && outcome_.error.is_none());
    // Every answer and every correction is in the history.
    assert_eq!(outcome_.new_items().len(), 6);
    assert!(matches!(outcome_.parse::<City>(), Err(ParseError::NotJson { .. })));
    assert_eq!(outcome_.into_result().unwrap_err().kind(), ErrorKind::Unfinished);
    // An empty reply counts as an invalid answer.
    let outcome_ = run_outcome([wrong(), Reply::new(), wrong(), OSLO_JSON.into()]).await;
    assert_outcome(&outcome_, EndReason::Malformed, 3);
}

fn limits_with_max_corrections(max_corrections: u32) -> Limits {
    Limits { max_corrections, ..Limits::default() }
}

#[tokio::test]
async fn the_number_of_corrections_is_configurable() {
    let wrong = || Reply::text("Oslo");
    let (none, _) = city_agent([wrong(), OSLO_JSON.into()]);
    assert_outcome(
        &none.with_limits(limits_with_max_corrections(0)).run("go").outcome().await,
        EndReason::Malformed,
        1,
    );
    let (more, _) = city_agent([wrong(), wrong(), wrong(), OSLO_JSON.into()]);
    assert_outcome(
        &more.with_limits(limits_with_max_corrections(3)).run("go").outcome().await,
        EndReason::Completed,
        4,
    );
    let (capped, _) = city_agent([wrong(), wrong(), OSLO_JSON.into()]);
    assert_outcome(
        &capped.with_limits(limits_with_max_turns(2)).run("go").outcome().await,
        EndReason::MaxTurns,
        2,
    );
}

#[tokio::test]
async fn a_validator_can_reject_an_answer_that_matches_the_schema() {
    let (agent, _) = city_agent([OSLO_JSON.into(), OSLO_JSON.into()]);
    let agent =
        agent.with_validation(|_| Err("not that one")).with_limits(limits_with_max_corrections(1));
    let outcome = agent.run("go").outcome().await;
    assert_outcome(&outcome, EndReason::Malformed, 2);
    assert_eq!(outcome.why.as_deref(), Some("not that one"));
    // The text can be parsed, but its turn was malformed.
    let expected = ParseError::RunEndedEarly { reason: "malformed".into() };
    assert_eq!(outcome.parse::<City>(), Err(expected));
}

#[tokio::test]
async fn refusals_and_truncated_answers_are_not_corrected() {
    for (stop, reason) in [
        (StopReason::Refusal, EndReason::Refused),
        (StopReason::ContentFilter, EndReason::Filtered),
        (StopReason::MaxTokens, EndReason::Truncated),
        (StopReason::ContextWindow, EndReason::ContextWindow),
    ] {
        let outcome = run_outcome([Reply::text("I").stop(stop), OSLO_JSON.into()]).await;
        assert_outcome(&outcome, reason, 1);
        let error = outcome.parse::<City>().unwrap_err();
        assert!(
            matches!(
                &error,
                ParseError::Refused { text } | ParseError::Filtered { text }
                | ParseError::Truncated { text } if text == "I"
            ),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_turn_with_calls_is_not_validated() {
    let call = Reply::text("Let me look.").call("nobody", serde_json::json!({}));
    assert_outcome(&run_outcome([call, OSLO_JSON.into()]).await, EndReason::Completed, 2);
}

#[tokio::test]
async fn an_empty_reply_after_tool_results_is_validated() {
    let call = || Reply::new().call("nobody", serde_json::json!({}));
    assert_outcome(
        &run_outcome([call(), Reply::new(), OSLO_JSON.into()]).await,
        EndReason::Completed,
        3,
    );
}

#[tokio::test]
async fn a_steered_run_continues_instead_of_being_validated() {
    let (agent, _) = city_agent(["Oslo".into(), OSLO_JSON.into()]);
    let mut run = agent.run("go");
    while run.next().await.unwrap().unwrap().turn_complete().is_none() {}
    run.steer("as JSON, please").unwrap();
    let outcome = run.outcome().await;
    assert_outcome(&outcome, EndReason::Completed, 2);
    let correctives =
        outcome.new_items().iter().filter(|item| **item == Item::user("as JSON, please"));
    assert_eq!((correctives.count(), outcome.new_items().len()), (1, 4));
}

#[tokio::test]
async fn a_validator_that_panics_ends_the_run_with_an_error() {
    let agent = Agent::new(Scripted::new([OSLO_JSON]))
        .with_validation(|_| -> Result<(), String> { std::panic::resume_unwind(Box::new("boom")) });
    let outcome = agent.run("go").outcome().await;
    assert_outcome(&outcome, EndReason::HookError, 1);
    assert_eq!(outcome.text, OSLO_JSON);
    let error = outcome.error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Hook);
    assert!(error.message().contains("boom"), "{error}");
}

#[cfg(feature = "schemars")]
#[tokio::test]
async fn an_agent_with_a_typed_output_sends_its_schema_and_validates_the_answer() {
    #[derive(Debug, Deserialize, PartialEq, schemars::JsonSchema)]
    struct Page<T> {
        /// From 1.
        number: T,
    }
    let model = Scripted::new([r#"{"number":300}"#, r#"{"number":3}"#]);
    let agent = Agent::new(model.clone()).with_output::<Page<u8>>();
    let outcome = agent.run("go").outcome().await;
    assert_outcome(&outcome, EndReason::Completed, 2);
    assert_eq!(outcome.parse(), Ok(Page { number: 3_u8 }));
    let requests = model.requests();
    let Output::Schema(schema) = &requests[0].options.output else { panic!("{requests:?}") };
    assert_eq!(schema.name, "Page");
    assert_eq!(schema.schema["properties"]["number"]["description"], "From 1.");
    assert_eq!(schema.schema.get("title"), None);
    assert_eq!(requests[0].options.output, Output::for_type::<Page<u8>>());
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Row {
    n: u32,
    #[serde(default)]
    s: String,
}

type ParsedRows = Vec<Result<JsonLine<Row>, Error>>;

fn text_events(pieces: &[&str]) -> Vec<Result<TurnEvent, Error>> {
    let delta = |text: &&str| Ok(TurnEvent::TextDelta { index: 0, text: (*text).into() });
    pieces.iter().map(delta).collect()
}

async fn turn_complete_event(stop: StopReason) -> Result<TurnEvent, Error> {
    Ok(TurnEvent::TurnComplete { turn: turn_from_reply(Reply::text("all").stop(stop)).await })
}

/// The parsed lines of a complete turn with these text pieces.
async fn parse_lines(pieces: &[&str]) -> ParsedRows {
    let mut events = text_events(pieces);
    events.push(turn_complete_event(StopReason::Stop).await);
    stream::iter(events).json_lines().with_max_line_bytes(40).collect().await
}

fn parsed_row(n: u32) -> JsonLine<Row> {
    JsonLine::Object(Row { n, s: String::new() })
}

#[tokio::test]
async fn every_complete_line_is_an_object_and_the_last_needs_no_newline() {
    let found =
        parse_lines(&["{\"n\":1}\n{\"n\"", ":2}\r\n\n```json\n{\"n\":3}\n```\n  {\"n\":4}"]).await;
    assert_eq!(found, [1, 2, 3, 4].map(|n| Ok(parsed_row(n))));
    assert_eq!(parse_lines(&[]).await, []);
}

#[tokio::test]
async fn an_object_is_yielded_in_the_poll_that_completes_its_line() {
    let mut events = text_events(&["{\"n\":1}", "\n{\"n\":2}\n{\"n\":3}\n"]);
    events.push(turn_complete_event(StopReason::Stop).await);
    let mut taken = 0;
    let counted = stream::iter(events).inspect(|_| taken += 1);
    let mut rows = counted.json_lines::<Row>();
    for n in 1..=3 {
        assert_eq!(rows.next().await, Some(Ok(parsed_row(n))));
    }
    drop(rows);
    assert_eq!(taken, 2);
}

#[tokio::test]
async fn an_invalid_line_is_reported_and_later_lines_are_parsed() {
    let found = parse_lines(&["oh\n{\"n\":1}\n{\"n\":-1}\n", "{\"n\":2}\n{\"n\":"]).await;
    let invalid = |at: usize| match &found[at] {
        Ok(JsonLine::Invalid(LineError { line, error })) => (*line, error.clone()),
        other => panic!("{other:?}"),
    };
    assert!(matches!(invalid(0), (1, ParseError::NotJson { .. })));
    assert_eq!(found[1], Ok(parsed_row(1)));
    assert!(matches!(invalid(2), (3, ParseError::TypeMismatch { path, .. }) if path == "n"));
    assert_eq!(found[3], Ok(parsed_row(2)));
    assert!(matches!(invalid(4), (5, ParseError::NotJson { text, .. }) if text == "{\"n\":"));
    assert_eq!(found.len(), 5);
}

#[tokio::test]
async fn only_a_line_feed_terminates_a_line() {
    let odd = "{\"n\":1,\"s\":\"a\u{2028}b\u{85}c\u{b}\"}";
    let found = parse_lines(&["{\"n\":1,\"s\":\"a\u{2028}b\u{85}\"}\n"]).await;
    assert_eq!(found, [Ok(JsonLine::Object(Row { n: 1, s: "a\u{2028}b\u{85}".into() }))]);
    // A raw control character is invalid in JSON.
    assert!(matches!(&parse_lines(&[odd]).await[..], [Ok(JsonLine::Invalid(_))]));
}

#[tokio::test]
async fn an_overlong_line_is_reported_once_and_not_buffered() {
    let long = format!("{{\"n\":1,\"s\":\"{}\"}}", "x".repeat(40));
    let too_long = |line| {
        let error = ParseError::TooLong { limit: 40 };
        Ok(JsonLine::Invalid(LineError { line, error }))
    };
    let whole = format!("{long}\n{{\"n\":2}}\n{long}");
    let expected = [too_long(1), Ok(parsed_row(2)), too_long(3)];
    assert_eq!(parse_lines(&[&whole]).await, expected);
    let pieces: Vec<_> = whole.split_inclusive('x').collect();
    assert_eq!(parse_lines(&pieces).await, expected);
}

#[tokio::test]
async fn a_retracted_turn_invalidates_its_lines_and_restarts_line_numbers() {
    let mut parts = text_events(&["{\"n\":1}\n{\"n\":2}\n{\"n\":"]);
    let (why, usage) = ("again".into(), turnstream::Usage::default());
    parts.push(Ok(TurnEvent::Retracted { why, usage: usage.into() }));
    parts.extend(text_events(&["3\n{\"n\":4}\n"]));
    parts.push(turn_complete_event(StopReason::Stop).await);
    let found: ParsedRows = stream::iter(parts).json_lines().collect().await;
    assert_eq!(found[..3], [Ok(parsed_row(1)), Ok(parsed_row(2)), Ok(JsonLine::Retracted)]);
    assert!(matches!(&found[3], Ok(JsonLine::Invalid(LineError { line: 1, .. }))));
    assert_eq!(found[4..], [Ok(parsed_row(4))]);
}

#[tokio::test]
async fn a_possibly_truncated_list_ends_with_an_error() {
    for (stop, kind) in [
        (StopReason::MaxTokens, ErrorKind::Malformed),
        (StopReason::ContextWindow, ErrorKind::Malformed),
        (StopReason::ContentFilter, ErrorKind::Filtered),
        (StopReason::Refusal, ErrorKind::Filtered),
    ] {
        let mut parts = text_events(&["{\"n\":1}\n{\"n\":2}"]);
        parts.push(turn_complete_event(stop).await);
        let found: ParsedRows = stream::iter(parts).json_lines().collect().await;
        assert_eq!((found.len(), &found[0]), (2, &Ok(parsed_row(1))));
        let error = found[1].as_ref().unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.find_source::<ParseError>().is_some());
    }
    let found: ParsedRows =
        stream::iter(text_events(&["{\"n\":1}\n{\"n\":2}"])).json_lines().collect().await;
    assert_eq!(found[1].as_ref().unwrap_err().kind(), ErrorKind::IncompleteTurn);
    let mut parts = text_events(&["{\"n\":1}\n{\"n\":2}"]);
    parts.push(Err(Error::new(ErrorKind::Server, "gone")));
    parts.extend(text_events(&["\n"]));
    let found: ParsedRows = stream::iter(parts).json_lines().collect().await;
    assert_eq!((found.len(), &found[0]), (2, &Ok(parsed_row(1))));
    assert_eq!(found[1].as_ref().unwrap_err().kind(), ErrorKind::Server);
}

#[cfg(feature = "schemars")]
#[test]
fn the_example_corrects_twice_and_prints_the_review() {
    let example = turnstream_test_support::programs::example_program("structured_output");
    let output = std::process::Command::new(example).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("> Your last answer cannot be used: there are at most 5 stars."));
    assert!(printed.contains("(at `stars`)"), "{printed}");
    assert!(printed.ends_with("5 stars for the food: Great!\n"), "{printed}");
}

#[cfg(feature = "schemars")]
#[tokio::test]
async fn commentary_before_an_answer_is_not_parsed_as_typed_output() {
    let said = |id: &str, phase: &str, text: &str| {
        json!({ "type": "message", "id": id, "role": "assistant", "phase": phase,
            "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
    };
    let output = [said("msg_1", "commentary", "Let me see."), said("msg_2", "final_answer", "7")];
    let done = |(at, item): (usize, &Value)| json!({ "type": "response.output_item.done", "output_index": at, "item": item });
    let mut events: Vec<Value> = output.iter().enumerate().map(done).collect();
    let response = json!({ "id": "r", "status": "completed", "output": output });
    events.push(json!({ "type": "response.completed", "response": response }));
    let events: Vec<String> = events.iter().map(Value::to_string).collect();
    let model = ChunkedProvider::new(vec![vec![sse_body(&events)]], Wire::OpenAiResponses);
    let outcome = Agent::new(model).with_output::<u32>().run("go").outcome().await;
    assert_eq!((outcome.text.as_str(), outcome.turns), ("7", 1));
    assert_eq!(outcome.parse::<u32>().unwrap(), 7);
}

#[test]
fn a_mismatch_message_quotes_only_a_short_part_of_the_answer() {
    let answer = serde_json::json!({ "k".repeat(100_000): "x".repeat(100_000) }).to_string();
    let error = ParseError::read_text::<HashMap<String, u32>>(&answer).unwrap_err();
    assert!(error.to_string().len() < 1000, "{} bytes", error.to_string().len());
}
