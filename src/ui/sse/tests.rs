use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::*;
use crate::agent::hook::{self, StopDecision};
use crate::agent::{Agent, Limits};
use crate::env::CountingIds;
use crate::error::{Error, ErrorKind};
use crate::event::{AppendReason, Event, ToolEvent};
use crate::framing::Framing;
use crate::item::{Item, ResultKind, ToolCall, ToolResult};
use crate::provider::{Reply, Scripted};
use crate::sse::FrameReader;
use crate::tool::{Tool, ToolSpec};
use crate::turn::TurnEvent;
use crate::ui::ErrorTexts;
use crate::usage::Usage;

/// The whole body as text.
async fn body_of(sse: Sse, events: impl Stream<Item = Result<Event, Error>>) -> String {
    let body: Vec<_> = sse.respond(events).body.try_collect().await.unwrap();
    String::from_utf8(body.concat()).unwrap()
}

/// The frames of a body: type and data.
fn frames_of(body: &str) -> Vec<(String, String)> {
    let mut reader = FrameReader::new();
    reader.feed(body.to_owned().into());
    let mut frames = Vec::new();
    while let Some(frame) = Framing::next_frame(&mut reader) {
        let frame = frame.unwrap();
        frames.push((frame.event.to_owned(), frame.data.to_owned()));
    }
    frames
}

/// The data of the last frame, which must be the end.
fn end_of(body: &str) -> Value {
    assert!(body.ends_with("\n\n") && !body.contains('\r'), "{body}");
    let frames = frames_of(body);
    let ends: Vec<_> = frames.iter().filter(|(event, _)| event == "end").collect();
    assert_eq!(ends.len(), 1, "{body}");
    assert_eq!(frames.last(), ends.last().copied(), "nothing follows the end");
    serde_json::from_str(&ends[0].1).unwrap()
}

fn failing_agent() -> Agent {
    let secret = Error::new(ErrorKind::Auth, "the key sk-123 is wrong");
    Agent::new(Scripted::new([Reply::text("Let me see.").fail(secret)]))
        .with_limits(Limits { max_turns: Some(1), ..Limits::default() })
}

/// An agent whose tool fails with a message that must stay hidden.
fn agent_with_failing_tool() -> Agent {
    let spec = ToolSpec::new("read", "Reads a file", json!({ "type": "object" }));
    let read = Tool::raw(spec, |_, cx| async move {
        cx.record_change("/home/ada/touched.txt");
        Err::<String, _>("no /home/ada/secret.txt")
    });
    let model = Scripted::new([Reply::new().call("read", json!({})), Reply::text("I cannot.")]);
    Agent::new(model).with_tools([read.unwrap()])
}

#[tokio::test]
async fn the_events_of_a_run_are_read_back_as_they_were() {
    let model = Scripted::new([Reply::new().think("Hm.").say("Two\nlines, \"ü\".")]);
    let run: Vec<_> = Agent::new(model).run("Hi").collect().await;
    let expected: Vec<Event> = run.iter().map(|event| event.clone().unwrap()).collect();
    let body = body_of(Sse::new(), stream::iter(run)).await;
    let frames = frames_of(&body);
    let (end, events) = frames.split_last().unwrap();
    assert_eq!(end, &("end".to_owned(), r#"{"finished":true}"#.to_owned()));
    assert!(events.iter().all(|(event, _)| event == "message"));
    let read: Vec<Event> =
        events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(read, expected);
    let ids: Vec<_> = body.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    let counted: Vec<_> = (1..=expected.len()).map(|number| number.to_string()).collect();
    assert_eq!(ids, counted);
    assert!(body.starts_with("retry: 2000\n\n"));
}

#[tokio::test]
async fn error_texts_are_replaced_by_a_logged_id() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&log);
    let texts = ErrorTexts::hidden().with_ids(CountingIds::new("e")).log(move |id, text| {
        lines.lock().unwrap().push(format!("{id}: {text}"));
    });
    let body = body_of(Sse::new().with_error_texts(texts), failing_agent().run("Hi")).await;
    assert!(!body.contains("sk-123"), "{body}");
    assert!(body.contains("auth (error e-"), "{body}");
    assert_eq!(end_of(&body), json!({ "finished": true }), "the run told of its error itself");
    let log = log.lock().unwrap();
    assert!(log.iter().any(|line| line.starts_with("e-") && line.contains("sk-123")), "{log:?}");
}

#[tokio::test]
async fn the_message_of_a_hook_that_ended_the_run_is_replaced_by_a_logged_id() {
    let agent = || {
        let stop = hook::before_stop(|_state, _turn| async {
            StopDecision::EndRun("no such host: db.internal".to_owned())
        });
        Agent::new(Scripted::new(["Done."])).with_hook(stop)
    };
    let outcome = agent().run("Hi").outcome().await;
    assert_eq!(outcome.why.as_deref(), Some("no such host: db.internal"));
    let body = body_of(Sse::new(), agent().run("Hi")).await;
    let ended = format!("{} (error ", outcome.reason.as_str());
    assert!(body.contains(&ended) && !body.contains("db.internal"), "{body}");
    let shown = Sse::new().with_error_texts(ErrorTexts::shown());
    assert!(body_of(shown, agent().run("Hi")).await.contains("db.internal"));
}

#[tokio::test]
async fn error_texts_of_sub_agents_are_hidden_at_any_depth() {
    let call = ToolCall { call_id: "c".into(), name: "read".into(), arguments: "{}".into() };
    let failed = ToolResult::for_call(&call, ResultKind::Error, "no /home/ada/secret.txt");
    let appended = |item: Item| {
        let (why, id) = (AppendReason::Input, "i".to_owned());
        Event::Appended { why, id, items: vec![item] }
    };
    let error = || Error::new(ErrorKind::Auth, "the key secret is wrong");
    let (attempt, delay_ms) = (1, 1);
    let with_secret: Vec<Event> = vec![
        TurnEvent::Retrying { attempt, delay_ms, error: Arc::new(error()) }.into(),
        TurnEvent::Retracted { why: "the key secret".into(), usage: Usage::default().into() }
            .into(),
        Event::Tool(ToolEvent::Output(failed.clone())),
        appended(Item::tool_result(failed)),
    ];
    let outcome = failing_agent().run("Hi").outcome().await;
    let with_secret = with_secret.into_iter().chain([Event::Finished(Box::new(outcome))]);
    let id_and_name = || ("p".to_owned(), "child".to_owned());
    let nested = |event: Event| {
        let ((call_id, name), event) = (id_and_name(), Box::new(event));
        Event::Nested { call_id, name, event }
    };
    let of_tool = |event: Event| {
        let ((call_id, name), event) = (id_and_name(), Box::new(event));
        Event::Tool(ToolEvent::Nested { call_id, name, event })
    };
    for event in with_secret {
        for event in [nested(event.clone()), nested(nested(event.clone())), of_tool(event)] {
            let body = body_of(Sse::new(), stream::iter([Ok(event.clone())])).await;
            assert!(body.contains("\"nested\""), "{body}");
            assert!(!body.contains("secret") && !body.contains("sk-123"), "{body}");
            let shown = Sse::new().with_error_texts(ErrorTexts::shown());
            let body = body_of(shown, stream::iter([Ok(event)])).await;
            assert!(body.contains("secret") || body.contains("sk-123"), "{body}");
        }
    }
}

#[tokio::test]
async fn error_texts_are_shown_if_configured() {
    let sse = Sse::new().with_error_texts(ErrorTexts::shown());
    let body = body_of(sse, failing_agent().run("Hi")).await;
    assert!(body.contains("sk-123"), "{body}");
}

#[tokio::test]
async fn the_text_of_a_failed_tool_is_hidden_in_every_event() {
    let body = body_of(Sse::new(), agent_with_failing_tool().run("Hi")).await;
    assert!(!body.contains("/home/ada"), "{body}");
    assert!(body.contains("I cannot."), "{body}");
    let shown = Sse::new().with_error_texts(ErrorTexts::shown());
    let body = body_of(shown, agent_with_failing_tool().run("Hi")).await;
    assert_eq!(body.matches("secret.txt").count(), 2, "as output, and in the items: {body}");
}

#[tokio::test]
async fn a_sub_agents_error_text_is_hidden_in_a_hand_written_loop() {
    let call = ToolCall { call_id: "c1".into(), name: "cat".into(), arguments: "{}".into() };
    let result = ToolResult::for_call(&call, ResultKind::Error, "no /home/ada/secret.txt");
    let failed = Event::Tool(ToolEvent::Output(result));
    let nested = |event| ToolEvent::Nested {
        call_id: "c0".into(),
        name: "helper".into(),
        event: Box::new(event),
    };
    let events = stream::iter([Ok(Event::Tool(nested(Event::Tool(nested(failed)))))]);
    let body = body_of(Sse::new(), events).await;
    assert!(body.contains("error (c1)") && !body.contains("/home/ada"), "{body}");
}

#[tokio::test]
async fn a_stream_without_an_outcome_ends_as_not_finished() {
    let events = || stream::iter([Ok(Event::Unknown)]);
    let end = end_of(&body_of(Sse::new(), events()).await);
    assert_eq!((&end["finished"], &end["error"]["kind"]), (&json!(false), &json!("other")));
    let failed = events()
        .chain(stream::iter([Err(Error::new(ErrorKind::Store, "disk full")), Ok(Event::Unknown)]));
    let body = body_of(Sse::new(), failed).await;
    assert_eq!(end_of(&body)["error"]["kind"], "store");
    assert!(!body.contains("disk full"), "{body}");
    assert_eq!(frames_of(&body).len(), 2, "what comes after an error is not sent: {body}");
}

#[tokio::test]
async fn a_panic_in_the_stream_is_the_final_event() {
    let panics = stream::poll_fn(|_| -> Poll<Option<Result<Event, Error>>> { panic!("no {}", 7) });
    let body = body_of(Sse::new(), panics).await;
    assert_eq!(end_of(&body)["error"]["kind"], "panic");
    assert!(!body.contains("no 7"), "{body}");
}

#[tokio::test]
async fn an_interrupted_run_ends_like_any_other() {
    let agent = Agent::new(Scripted::new([Reply::text("Once").hang()]));
    let run = agent.run("Hi");
    let handle = run.handle();
    let events = run.inspect(move |event| {
        if event.as_ref().is_ok_and(|event| event.text_delta().is_some()) {
            handle.interrupt();
        }
    });
    let body = body_of(Sse::new(), events).await;
    assert!(body.contains(r#""reason":"interrupted"#), "{body}");
    assert_eq!(end_of(&body), json!({ "finished": true }));
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_gets_a_comment() {
    let mut body = Sse::new().respond(stream::pending::<Result<Event, Error>>()).body;
    assert!(body.next().await.unwrap().unwrap().starts_with(b"retry: "));
    let begin = tokio::time::Instant::now();
    for _ in 0..3 {
        assert_eq!(body.next().await.unwrap().unwrap(), &b": keep-alive\n\n"[..]);
    }
    assert!(begin.elapsed() <= Duration::from_secs(45), "{:?}", begin.elapsed());
    let mut silent =
        Sse::new().with_keep_alive(None).respond(stream::pending::<Result<Event, Error>>()).body;
    assert!(silent.next().await.is_some());
    let waited = tokio::time::timeout(Duration::from_hours(1), silent.next()).await;
    assert!(waited.is_err(), "no comments were asked for");
}

#[tokio::test]
async fn a_dropped_body_drops_the_stream_of_events() {
    let held = Arc::new(());
    let witness = Arc::clone(&held);
    let events = stream::pending::<Result<Event, Error>>().inspect(move |_| {
        let _ = &witness;
    });
    let mut body = Box::pin(Sse::new().respond(events).body);
    assert!(body.next().now_or_never().is_some(), "the head comes at once");
    assert!(body.next().now_or_never().is_none());
    assert_eq!(Arc::strong_count(&held), 2);
    drop(body);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test]
async fn a_finished_run_is_dropped_before_its_end_is_sent() {
    let held = Arc::new(());
    let witness = Arc::clone(&held);
    let run = Agent::new(Scripted::new(["Hello!"])).run("Hi").inspect(move |_| {
        let _ = &witness;
    });
    let mut body = Box::pin(Sse::new().respond(run).body);
    let mut last = body.next().await.unwrap().unwrap();
    while let Some(bytes) = body.next().await {
        last = bytes.unwrap();
        let is_end = last.ends_with(b"event: end\ndata: {\"finished\":true}\n\n");
        assert_eq!(Arc::strong_count(&held), if is_end { 1 } else { 2 });
    }
    assert!(last.ends_with(b"{\"finished\":true}\n\n"));
}

mod readers {
    use super::*;
    use crate::hub::{EventNumber, Hub, HubEvent, RunSource, ShuttingDown, TooSlow};
    use crate::item::History;

    async fn body_of_reader(
        reader: impl Stream<Item = Result<HubEvent, Error>>,
    ) -> (String, Vec<Value>) {
        let body: Vec<_> = Sse::new().respond_to_reader(reader).body.try_collect().await.unwrap();
        let body = String::from_utf8(body.concat()).unwrap();
        let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
        let data = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        (body, data)
    }

    #[tokio::test]
    async fn a_reader_can_continue_after_any_hub_event_id() {
        let hub = Hub::new();
        let run = hub.start("s", failing_agent().run("Hi")).await.unwrap();
        let (body, data) = body_of_reader(run.read()).await;
        let types: Vec<&str> = data.iter().filter_map(|data| data["type"].as_str()).collect();
        assert_eq!(types[..3], ["snapshot", "appended", "turn_started"]);
        assert_eq!(types[types.len() - 2..], ["finished", "ended"]);
        assert!(body.ends_with("event: end\ndata: {\"finished\":true}\n\n"), "{body}");
        assert!(!body.contains("sk-123"), "{body}");
        let ids: Vec<EventNumber> = body
            .lines()
            .filter_map(|line| line.strip_prefix("id: "))
            .map(|id| id.parse().unwrap())
            .collect();
        let rest = hub.read_run(run.run_id(), Some(&ids[2])).unwrap();
        let rest = body_of_reader(rest).await.1;
        assert_eq!(rest.len(), data.len() - 3);
        assert_eq!(rest[..3], data[3..6]);
    }

    #[tokio::test]
    async fn a_snapshot_hides_the_texts_of_errors_too() {
        let hub = Hub::builder().with_capacity(16).build();
        let run = hub.start("s", agent_with_failing_tool().run("Hi")).await.unwrap();
        run.read().collect::<Vec<_>>().await;
        let (body, data) = body_of_reader(run.read()).await;
        assert!(!data[0]["events"].as_array().unwrap().is_empty(), "{body}");
        assert!(!body.contains("/home/ada"), "{body}");
    }

    #[tokio::test]
    async fn a_browser_connects_again_after_a_cut_and_after_a_shut_down() {
        let too_slow = Error::from(TooSlow { last: None });
        let (body, _) = body_of_reader(stream::iter([Err(too_slow)])).await;
        assert!(body.ends_with("\n\nevent: too_slow\ndata: {}\n\n"), "{body}");
        let shutting_down = Error::from(ShuttingDown);
        let (body, _) = body_of_reader(stream::iter([Err(shutting_down)])).await;
        let end = "\n\nretry: 5000\nevent: shutting_down\ndata: {}\n\n";
        assert!(body.ends_with(end), "{body}");
        let dropped = Error::new(ErrorKind::Other, "secret");
        let (body, data) = body_of_reader(stream::iter([Err(dropped)])).await;
        assert_eq!(data.last().unwrap()["finished"], false);
        assert!(!body.contains("secret"), "{body}");
    }

    #[tokio::test]
    async fn the_id_of_a_run_cannot_add_a_line() {
        let hub = Hub::new();
        let source = RunSource::new(History::empty("h"), stream::empty());
        let run = hub.start("s", source.with_run_id("r\nevent: end")).await.unwrap();
        let (body, _) = body_of_reader(run.read()).await;
        assert!(!body.contains("id: r"), "{body}");
        assert_eq!(body.matches("\nevent: end").count(), 1, "{body}");
    }
}
