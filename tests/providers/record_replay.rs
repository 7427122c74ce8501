//! `Record` and `Replay`: the contents of the files, replays, and errors.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use turnstream::env::{CountingIds, SeededRandom};
use turnstream::item::{ProviderData, RawJson};
use turnstream::provider::{Provider, Reply, Retry, Scripted};
use turnstream::replay::{Record, Recorder, Replay, ReplayMismatch};
use turnstream::request::{Effort, Options, Reasoning};
use turnstream::stream::{TurnStream, TurnStreamExt};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::turn::{PartialTurn, StopReason, TurnBuilder, TurnEvent};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Request, Turn, Usage};

use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::providers::{collect_turn, error_of_kind};
use turnstream_test_support::runs::limits_with_max_turns;

/// A path in the temporary folder, removed on drop.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        let name = format!("turnstream-{name}-{}.jsonl", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn user_request(text: &str) -> Request {
    Request::new(History::from_items("h", [Item::user(text)]))
}

fn completed_turn(events: &[TurnEvent]) -> &Arc<Turn> {
    match events.last() {
        Some(TurnEvent::TurnComplete { turn }) => turn,
        _ => panic!("no turn"),
    }
}

/// Records one request, replays it, checks that both have the same events, and returns them.
async fn check_round_trip(provider: impl Provider + 'static) -> (Vec<TurnEvent>, Option<Error>) {
    let paper = SharedBuffer::new();
    let record = Record::to_writer(provider, paper.clone());
    let said = collect_turn(record.stream_turn(user_request("hi"))).await;
    assert_eq!(record.failure(), None);
    let replay = Replay::from_text(&paper.text()).unwrap();
    assert_eq!(replay.model(), record.model());
    let played = collect_turn(replay.stream_turn(user_request("hi"))).await;
    assert_eq!(played, said);
    if let (Some(TurnEvent::TurnComplete { turn: a }), Some(TurnEvent::TurnComplete { turn: b })) =
        (said.0.last(), played.0.last())
    {
        assert_eq!(a.calls().veto(), b.calls().veto(), "{}", paper.text());
    }
    played
}

#[tokio::test]
async fn a_replay_yields_the_recorded_events() {
    let usage = Usage { input_tokens: 9, output_tokens: 4, ..Usage::default() };
    let reply = || {
        Reply::new()
            .usage(Usage { input_tokens: 9, ..Usage::default() })
            .think("hm, a \"thought\"\n")
            .say("Two calls. ☃")
            .call_raw("", "t", "{\"x\": 1}")
            .call_raw("b", "u", "")
            .say("And words.")
            .usage(usage)
    };
    let (events, _) = check_round_trip(Scripted::new([reply()])).await;
    let turn = completed_turn(&events);
    assert_eq!((turn.usage(), turn.model()), (usage, Some("scripted")));
    assert!(turn.calls().veto().is_none() && turn.calls().len() == 2);
    check_round_trip(Scripted::new([Reply::new().refuse("I will not.").stop(StopReason::Refusal)]))
        .await;
    check_round_trip(Scripted::new([reply().stop(StopReason::MaxTokens)])).await;
    check_round_trip(Scripted::new([reply().stop(StopReason::Other("odd".into()))])).await;
    check_round_trip(Scripted::new([Reply::new()])).await;
    check_round_trip(Scripted::new([reply().retract("again").say("anew")])).await;
}

#[tokio::test]
async fn a_replay_yields_the_recorded_error() {
    let limited = error_of_kind(ErrorKind::RateLimited)
        .with_status(429)
        .with_retry_after(std::time::Duration::from_secs(3))
        .with_request_id("req_1");
    let (_, failed) =
        check_round_trip(Scripted::new([Reply::text("half").fail(limited.clone())])).await;
    assert_eq!(failed, Some(limited));
    let (_, failed) = check_round_trip(Scripted::new([Reply::text("half").disconnect()])).await;
    assert_eq!(failed.unwrap().find_source::<PartialTurn>().unwrap().text(), "half");
}

/// A provider whose turns are built by a function.
struct FnProvider(fn(&mut TurnBuilder));

impl Provider for FnProvider {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let mut turn = TurnBuilder::from(&request.history);
        (self.0)(&mut turn);
        turn.complete().unwrap();
        let events: Vec<_> = std::iter::from_fn(|| turn.next_event()).map(Ok).collect();
        futures::stream::iter(events).seal(&request.history)
    }

    fn model(&self) -> &'static str {
        "pushes"
    }
}

#[tokio::test]
async fn provider_data_is_replayed_byte_for_byte() {
    fn provider_data(json: &str) -> ProviderData {
        let value = RawJson::parse(json).unwrap();
        ProviderData { provider: "p".into(), model: "m".into(), value }
    }
    let (events, _) = check_round_trip(FnProvider(|turn| {
        turn.set_model("m-1");
        turn.set_response_id("r");
        turn.push_provider_item(provider_data(r#"{"z":1,"a":[2]}"#));
        // Reasoning without text, before and after reasoning with text.
        turn.set_reasoning_data(0, provider_data(r#"{"signature":"s0"}"#));
        turn.push_reasoning(1, "hm", turnstream::turn::ReasoningKind::Summary);
        turn.set_reasoning_data(1, provider_data(r#"{"signature":"s1"}"#));
        turn.push_text(7, "hi");
        turn.set_text_data(7, provider_data(r#"{"t":true}"#));
        turn.push_provider_item(provider_data(r#"{"b":{}}"#));
        turn.start_tool_call(3, "a", "t");
        turn.set_tool_call_data(3, provider_data(r#"{"signature":"s2"}"#));
        turn.push_tool_call_args(3, "{}");
        turn.end_tool_call(3);
        turn.push_provider_item(provider_data(r#"{"c":1}"#));
        turn.stop(StopReason::ToolCalls, "tool_use");
    }))
    .await;
    let turn = completed_turn(&events);
    assert_eq!(turn.items().len(), 7);
    assert_eq!((turn.raw_stop_reason(), turn.response_id()), (Some("tool_use"), Some("r")));
    let first = turn.items()[0].provider_data.as_ref().unwrap();
    assert_eq!(first.value.as_str(), r#"{"z":1,"a":[2]}"#);
}

#[tokio::test]
async fn calls_that_were_not_runnable_when_recorded_are_not_runnable_in_a_replay() {
    let json = r#"{"items":[{"type":"tool_call","call_id":"a","name":"t","arguments":"{}"}],"stop_reason":"tool_calls"}"#;
    let read_back: Turn = serde_json::from_str(json).unwrap();
    let event = TurnEvent::TurnComplete { turn: Arc::new(read_back) };
    let (events, _) = check_round_trip(Scripted::new([Reply::new().event(event)])).await;
    assert!(completed_turn(&events).calls().veto().is_some());
}

#[tokio::test]
async fn an_inconsistent_recorded_turn_is_rejected() {
    let line = |turn: &str| {
        format!(
            "{{\"type\":\"recording\",\"version\":1}}\n\
             {{\"type\":\"request\",\"turn\":1,\"request\":{{}}}}\n\
             {{\"type\":\"event\",\"turn\":1,\"event\":{{\"type\":\"turn_complete\",\"turn\":{turn}}}}}\n"
        )
    };
    let turn = r#"{"items":[{"type":"user","content":"x"}],"stop_reason":"stop"}"#;
    let replay = Replay::from_text(&line(turn)).unwrap();
    let asked = Request::new(History::empty("h"));
    let failed = replay.stream_turn(asked).into_turn().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Store);
}

fn add_tool(ran: &Arc<Mutex<u32>>) -> Tool {
    let spec = ToolSpec::new(
        "add",
        "Adds",
        json!({ "type": "object", "properties": { "a": { "type": "number" } } }),
    );
    let ran = ran.clone();
    Tool::raw(spec, move |args, _| {
        *ran.lock().unwrap() += 1;
        async move { args["a"].as_f64().unwrap_or(0.0) + 0.5 }
    })
    .unwrap()
}

async fn event_lines(agent: Agent) -> Vec<String> {
    let events: Vec<Event> = agent.run("go").map(|event| event.unwrap()).collect().await;
    events.iter().map(|event| serde_json::to_string(event).unwrap()).collect()
}

#[tokio::test]
async fn an_agent_over_a_replay_repeats_its_run() {
    let file = TempFile::new("run");
    let model = Scripted::new([
        Reply::text("Adding.").call("add", json!({ "a": 0.7 })).call("add", json!({ "a": 2 })),
        Reply::text("Done."),
    ]);
    let ran = Arc::default();
    let options = Options {
        temperature: Some(0.7),
        top_p: Some(0.1),
        seed: Some(u64::MAX),
        reasoning: Some(Reasoning::Effort(Effort::Low)),
        ..Options::default()
    };
    let agent = |provider: Arc<dyn Provider>, ids: &str| {
        Agent::new(provider)
            .with_system("be brief")
            .with_options(options.clone())
            .with_tools([add_tool(&ran)])
            .with_ids(CountingIds::new(ids))
    };
    let record: Arc<dyn Provider> = Arc::new(Record::to_file(model, &file.0).unwrap());
    let first = event_lines(agent(record, "id")).await;
    let replay = Replay::from_file(&file.0).unwrap();
    let second = event_lines(agent(Arc::new(replay.clone()), "id")).await;
    assert_eq!(second, first);
    assert_eq!((*ran.lock().unwrap(), replay.remaining()), (4, 0), "the calls ran again");
    // Under other ids, too.
    let replay = Replay::from_file(&file.0).unwrap();
    let third = event_lines(agent(Arc::new(replay.clone()), "other")).await;
    assert_eq!((third.len(), replay.remaining()), (first.len(), 0));
}

#[tokio::test]
async fn the_first_divergence_is_reported_with_its_path() {
    let paper = SharedBuffer::new();
    let options = Options { temperature: Some(0.5), ..Options::default() };
    let spec = ToolSpec::new("t", "d", json!({}));
    let asked = || {
        user_request("secret words")
            .with_system("brief")
            .with_options(options.clone())
            .with_tools([spec.clone()])
    };
    let record = Record::to_writer(Scripted::new(["fine"]), paper.clone());
    collect_turn(record.stream_turn(asked())).await;
    let replay = Replay::from_text(&paper.text()).unwrap();
    let differs = async |request: Request| {
        let failed = replay.stream_turn(request).into_turn().await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::ReplayMismatch);
        assert!(!failed.to_string().contains("secret words"), "{failed}");
        let mismatch = failed.find_source::<ReplayMismatch>().unwrap().clone();
        assert_eq!((failed.parameter(), mismatch.turn), (Some(mismatch.part.as_str()), 1));
        let path = mismatch.part.strip_prefix("request.").unwrap().to_owned();
        (path, mismatch.recorded.to_string(), mismatch.replayed.to_string())
    };
    let told = |path: &str, recorded: &str, asked: &str| {
        (path.to_owned(), recorded.to_owned(), asked.to_owned())
    };
    let other = Request { model: Some("m".into()), ..asked() };
    assert_eq!(differs(other).await, told("model", "null", r#""m""#));
    let other = asked().with_system("long");
    assert_eq!(differs(other).await, told("system.stable", r#""brief""#, r#""long""#));
    let other = asked().with_tools([]);
    assert_eq!(differs(other).await.0, "tools[0]");
    let other = Request { options: Options::default(), ..asked() };
    assert_eq!(differs(other).await, told("options.temperature", "0.5", "null"));
    let mut other = asked();
    other.context.push(Item::text("more"));
    let more = r#"{"type":"text","text":"more"}"#;
    assert_eq!(differs(other).await, told("context[1]", "null", more));
    assert_eq!(replay.remaining(), 1, "nothing was played");
    assert!(collect_turn(replay.stream_turn(asked())).await.1.is_none());
    let failed = replay.stream_turn(asked()).into_turn().await.unwrap_err();
    assert_eq!(failed.to_string(), "every turn of the recording was already replayed");
}

#[tokio::test]
async fn concurrent_turns_share_a_record_and_replay_in_any_order() {
    let paper = SharedBuffer::new();
    let model = Scripted::from_fn(|request, _| match request.context.last().map(|i| &i.kind) {
        Some(turnstream::item::ItemKind::User { content }) => {
            Reply::text(format!("you said {}", content.text()))
        }
        _ => Reply::new(),
    });
    let record = Record::to_writer(model, paper.clone());
    let (mut a, mut b) =
        (record.stream_turn(user_request("a")), record.clone().stream_turn(user_request("b")));
    loop {
        let (x, y) = (a.next().await, b.next().await);
        if x.is_none() && y.is_none() {
            break;
        }
    }
    let turns: Vec<u64> =
        paper.json_lines().iter().filter_map(|line| line["turn"].as_u64()).collect();
    assert!(turns.windows(2).filter(|pair| pair[0] != pair[1]).count() > 4, "{turns:?}");
    let replay = Replay::from_text(&paper.text()).unwrap();
    let (mut b, mut a) =
        (replay.stream_turn(user_request("b")), replay.clone().stream_turn(user_request("a")));
    assert!(b.next().await.is_some() && a.next().await.is_some());
    let (a, b) = (a.into_turn().await.unwrap(), b.into_turn().await.unwrap());
    assert_eq!((a.text().as_str(), b.text().as_str()), ("you said a", "you said b"));
}

#[tokio::test(start_paused = true)]
async fn identical_requests_are_replayed_in_recorded_order() {
    let paper = SharedBuffer::new();
    let busy = Reply::error(error_of_kind(ErrorKind::Overloaded));
    let record = Record::to_writer(Scripted::new([busy, "fine".into()]), paper.clone());
    let retry = |provider: Arc<dyn Provider>| {
        Retry::new(provider).with_random(SeededRandom::new(1)).stream_turn(user_request("hi"))
    };
    let first = collect_turn(retry(Arc::new(record))).await;
    let replay = Replay::from_text(&paper.text()).unwrap();
    assert_eq!(replay.remaining(), 2);
    assert_eq!(collect_turn(retry(Arc::new(replay))).await, first);
}

#[tokio::test]
async fn a_record_dropped_at_any_poll_replays_up_to_that_point() {
    let model = || Scripted::from_fn(|_, _| Reply::text("a b c").call("t", json!({ "x": 1 })));
    let whole = collect_turn(model().stream_turn(user_request("hi"))).await.0;
    for secret in [None, Some("a b c d e")] {
        for at in 0..=whole.len() {
            let paper = SharedBuffer::new();
            let mut record = Record::to_writer(model(), paper.clone());
            if let Some(secret) = secret {
                record = record.with_secret(secret);
            }
            let mut turn = record.stream_turn(user_request("hi"));
            for _ in 0..at {
                assert!(turn.next().now_or_never().unwrap().is_some());
            }
            drop(turn);
            if at == 0 {
                assert_eq!(paper.text(), "", "nothing was asked");
                continue;
            }
            let replay = Replay::from_text(&paper.text()).unwrap();
            let (events, failed) = collect_turn(replay.stream_turn(user_request("hi"))).await;
            assert_eq!(events.len(), at);
            match at == whole.len() {
                true => assert_eq!(failed, None),
                false => assert_eq!(failed.unwrap().kind(), ErrorKind::IncompleteTurn),
            }
            if secret.is_none() {
                assert_eq!(events, whole[..at]);
            }
        }
    }
}

#[tokio::test]
async fn a_record_truncated_at_any_byte_affects_only_its_last_turn() {
    let paper = SharedBuffer::new();
    let record = Record::to_writer(Scripted::new(["first ☃", "second"]), paper.clone());
    collect_turn(record.stream_turn(user_request("1"))).await;
    let first = paper.text().len();
    collect_turn(record.stream_turn(user_request("2"))).await;
    let text = paper.text();
    let header = text.find('\n').unwrap();
    let file = TempFile::new("torn");
    for cut in 0..text.len() {
        let bytes = &text.as_bytes()[..cut];
        // Through a file, also with an incomplete character.
        let opened = match cut % 50 == 0 || !text.is_char_boundary(cut) {
            true => {
                std::fs::write(&file.0, bytes).unwrap();
                Replay::from_file(&file.0)
            }
            false => Replay::from_text(std::str::from_utf8(bytes).unwrap()),
        };
        let replay = match opened {
            Ok(replay) => replay,
            Err(refused) => {
                assert!(cut < header, "cut at {cut}: {refused}");
                assert_eq!(refused.kind(), ErrorKind::Store);
                continue;
            }
        };
        let (_, one) = collect_turn(replay.stream_turn(user_request("1"))).await;
        let (events, two) = collect_turn(replay.stream_turn(user_request("2"))).await;
        // A complete last line without its line feed counts.
        assert_eq!(one.is_none(), cut + 1 >= first, "cut at {cut}: {one:?}");
        assert_eq!(two.is_none(), cut + 1 >= text.len(), "cut at {cut}: {two:?}");
        let whole_line = text.as_bytes()[cut - 1] == b'\n' || text.as_bytes()[cut] == b'\n';
        if cut > first && !whole_line && !events.is_empty() {
            let told = two.unwrap().to_string();
            assert!(told.contains("its last line, of this turn, is cut off"), "{told}");
        }
    }
}

#[test]
fn an_invalid_record_is_rejected_with_its_line_number() {
    let check = |text: &str, why: &str| {
        let refused = Replay::from_text(text).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Store);
        assert!(refused.to_string().contains(why), "{refused}");
    };
    let begin = r#"{"type":"recording","version":1,"model":"m"}"#;
    let asked = r#"{"type":"request","turn":1,"request":{}}"#;
    check("", "it is empty");
    check("hello\n", "line 1");
    check("{\"type\":\"recording\",\"version\":2}\n", "version 2");
    check(&format!("{asked}\n"), "line 1: a recording begins");
    check(&format!("{begin}\nnonsense\n{asked}\n"), "line 2");
    check(&format!("{begin}\n{begin}\n"), "line 2: a second recording");
    check(&format!("{begin}\n{asked}\n{asked}\n"), "line 3: turn 1 is requested twice");
    let event = r#"{"type":"event","turn":7,"event":{"type":"text_delta","index":0,"text":"x"}}"#;
    check(&format!("{begin}\n{event}\n"), "turn 7 was not requested");
    // A line of a later version is skipped.
    assert!(Replay::from_text(&format!("{begin}\n{{\"type\":\"weather\",\"x\":1}}\n")).is_ok());
    let missing = std::env::temp_dir().join("turnstream-no-such-folder").join("x");
    assert_eq!(Replay::from_file(missing).unwrap_err().kind(), ErrorKind::Store);
}

#[tokio::test]
async fn secrets_never_appear_in_a_record() {
    const SECRET: &str = "s3cr\"et";
    let paper = SharedBuffer::new();
    let arguments = json!({ "key": SECRET, "n": 1 }).to_string();
    let letters: Vec<String> = SECRET.chars().map(String::from).collect();
    let mut said = Reply::new().think(format!("it is {SECRET} then"));
    for letter in &letters {
        said = said.say(letter);
    }
    let said = said
        .say(" and s3cr is none")
        .refuse(SECRET)
        .call_raw(&format!("id-{SECRET}"), "t", &arguments)
        .usage(Usage { input_tokens: 3, ..Usage::default() });
    let failing = Reply::text("s3c").fail(Error::new(ErrorKind::Server, format!("bad {SECRET}")));
    let model = Scripted::new([said, failing]);
    let record = Record::to_writer(model, paper.clone()).with_secret(format!("{SECRET}\n"));
    let asked = || user_request(&format!("my key is {SECRET}, do not tell")).with_system(SECRET);
    let (events, _) = collect_turn(record.stream_turn(asked())).await;
    assert!(completed_turn(&events).text().contains(SECRET), "what is streamed is not touched");
    collect_turn(record.stream_turn(asked())).await;
    let text = paper.text();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert!(!value.to_string().contains("s3cr\\\"et"), "{line}");
        assert!(!line.contains("cr\\\\\\\"et") && !line.contains("s3c\""), "{line}");
    }
    // The deltas add up to the text in the turn, and the arguments are still JSON.
    let replay = Replay::from_text(&text).unwrap().with_secret(SECRET);
    let (played, _) = collect_turn(replay.stream_turn(asked())).await;
    let said: String = played
        .iter()
        .filter_map(|event| match event {
            TurnEvent::TextDelta { text, .. } | TurnEvent::RefusalDelta { text, .. } => {
                Some(text.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(said, "… and s3cr is none…");
    let turn = completed_turn(&played);
    assert_eq!((turn.text(), turn.reasoning().as_str()), (said, "it is … then"));
    assert_eq!(turn.tool_calls().next().unwrap().arguments, r#"{"key":"…","n":1}"#);
    assert_eq!(played.len(), events.len());
    let (_, failed) = collect_turn(replay.stream_turn(asked())).await;
    assert_eq!(failed.unwrap().message(), "bad …");
    // Without the secret, the request does not match.
    let strict = Replay::from_text(&text).unwrap();
    assert!(collect_turn(strict.stream_turn(asked())).await.1.is_some());
}

#[test]
fn an_unwritable_path_is_reported_before_any_request() {
    let missing = std::env::temp_dir().join("turnstream-no-such-folder").join("x");
    let refused = Record::to_file(Scripted::new(["hi"]), missing).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Store);
}

#[tokio::test]
async fn a_full_disk_never_fails_a_turn_and_is_reported_once() {
    let whole = {
        let paper = SharedBuffer::new();
        let record = Record::to_writer(Scripted::new(["a few words"]), paper.clone());
        collect_turn(record.stream_turn(user_request("hi"))).await;
        paper.text().len()
    };
    let asked = {
        let paper = SharedBuffer::new();
        let record = Record::to_writer(Scripted::new([Reply::new().hang()]), paper.clone());
        assert!(record.stream_turn(user_request("hi")).next().now_or_never().is_none());
        paper.text().len()
    };
    for room in 0..whole {
        let model = Scripted::from_fn(|_, _| "a few words");
        let record = Record::to_writer(model.clone(), SharedBuffer::with_capacity(room));
        let (events, failed) = collect_turn(record.stream_turn(user_request("hi"))).await;
        assert_eq!(record.failure().unwrap().kind(), ErrorKind::Store, "{room}");
        if room < asked {
            // The error was detected before anything was sent.
            assert_eq!((model.requests().len(), events.len()), (0, 0), "{room}");
            assert_eq!(failed, record.failure());
        } else {
            assert_eq!((completed_turn(&events).text().as_str(), failed), ("a few words", None));
            let (events, failed) = collect_turn(record.stream_turn(user_request("hi"))).await;
            assert_eq!((events.len(), failed), (0, record.failure()));
            assert_eq!(model.requests().len(), 1, "nothing was sent for it");
        }
        let (events, failed) = collect_turn(record.stream_turn(user_request("hi"))).await;
        assert_eq!((completed_turn(&events).text().as_str(), failed), ("a few words", None));
    }
}

#[tokio::test]
async fn each_record_line_is_one_object_in_a_stable_format() {
    let paper = SharedBuffer::new();
    let record = Record::to_writer(Scripted::new(["Hi"]), paper.clone());
    let mut asked = user_request("hi").with_system("Be brief.");
    asked.context.push(Item::user("more"));
    collect_turn(record.stream_turn(asked)).await;
    let zero = r#"{"input_tokens":0,"output_tokens":0,"cache_read_input_tokens":0,"cache_write_input_tokens":0,"reasoning_tokens":0}"#;
    let text = paper.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], r#"{"type":"recording","version":1,"model":"scripted"}"#);
    let request = r#"{"type":"request","turn":1,"request":{"system":{"stable":"Be brief.","volatile":""},"context":[{"type":"user","content":"hi"},{"type":"user","content":"more"}]}}"#;
    assert_eq!(lines[1], request);
    let delta = r#"{"type":"event","turn":1,"event":{"type":"text_delta","index":0,"text":"Hi"}}"#;
    assert_eq!(lines[2], delta);
    let turn = r#"{"items":[{"type":"text","text":"Hi"}],"stop_reason":"stop","raw_stop_reason":"stop","usage":"#;
    let complete = format!(
        r#"{{"type":"event","turn":1,"event":{{"type":"turn_complete","turn":{turn}{zero},"model":"scripted"}}}}}}"#
    );
    assert_eq!(lines[3], complete);
    assert_eq!(lines.len(), 4);
}

#[tokio::test]
async fn the_size_of_a_record_is_linear_in_the_conversation() {
    let bytes = async |turns: usize| {
        let model = Scripted::from_fn(move |_, turn| match turn + 1 < turns {
            true => Reply::new().call("add", json!({ "a": 1, "b": turn })),
            false => "Done.".into(),
        });
        let paper = SharedBuffer::new();
        let ran = Arc::default();
        let agent =
            Agent::new(Record::to_writer(model, paper.clone())).with_tools([add_tool(&ran)]);
        agent.with_limits(limits_with_max_turns(500)).run("go").outcome().await;
        paper.text()
    };
    let texts = [bytes(10).await, bytes(100).await, bytes(400).await];
    let [ten, hundred, more] = [0, 1, 2].map(|at| texts[at].len());
    let (first, second) = ((hundred - ten) / 90, (more - hundred) / 300);
    assert!(second < first * 11 / 10, "{first} bytes a turn, then {second}");

    // The file can be replayed.
    let replay = Replay::from_text(&texts[0]).unwrap();
    let agent = Agent::new(replay.clone()).with_tools([add_tool(&Arc::default())]);
    assert_eq!(agent.run("go").outcome().await.text, "Done.");
    assert_eq!(replay.remaining(), 0);
    let lost = texts[0].replacen("\"shared_prefix\":1,", "\"shared_prefix\":77,", 1);
    let refused = Replay::from_text(&lost).unwrap_err().to_string();
    assert!(refused.contains("it continues 77 items of a request that has 1"), "{refused}");
}

#[tokio::test]
async fn the_turns_of_a_recorded_run_are_replayed_by_a_provider() {
    let paper = SharedBuffer::new();
    let model = Scripted::new([
        Reply::text("Adding.").call("add", json!({ "a": 1 })),
        Reply::text("half").fail(error_of_kind(ErrorKind::Overloaded)),
        Reply::text("Done."),
    ]);
    let ran = Arc::default();
    let agent = |provider: Arc<dyn Provider>| {
        Agent::new(provider)
            .with_system("be brief")
            .with_tools([add_tool(&ran)])
            .with_ids(CountingIds::new("id"))
    };
    let recorder = Recorder::to_writer(paper.clone());
    let first = event_lines(agent(Arc::new(model)).with_recorder(&recorder)).await;
    let replay = Replay::from_text(&paper.text()).unwrap();
    assert_eq!((replay.model(), replay.remaining()), ("scripted", 3));
    let second = event_lines(agent(Arc::new(replay.clone()))).await;
    assert_eq!(second, first);
    assert_eq!((*ran.lock().unwrap(), replay.remaining()), (2, 0), "the call ran again");
}
