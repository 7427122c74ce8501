use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::*;
use crate::agent::Agent;
use crate::event::Event;
use crate::item::{Content, Item, Part};
use crate::provider::{Reply, Scripted};
use crate::session::{MemoryStore, Session};
use crate::tool::{Tool, ToolOutput, ToolSpec, Verdict};
use crate::turn::TurnEvent;
use crate::ui::ClientLimits;

fn parse(body: &Value) -> Result<RunRequest, RequestError> {
    parse_with(body, &ClientLimits::default())
}

fn parse_with(body: &Value, limits: &ClientLimits) -> Result<RunRequest, RequestError> {
    RunRequest::parse(Some("application/json"), body.to_string().as_bytes(), limits)
}

fn status<T: std::fmt::Debug>(result: Result<T, RequestError>) -> u16 {
    result.unwrap_err().status()
}

fn request(messages: &Value) -> Value {
    json!({ "threadId": "c", "runId": "r1", "messages": messages })
}

fn hello() -> Value {
    request(&json!([{ "id": "u1", "role": "user", "content": "Hi" }]))
}

fn resume(entries: &Value) -> RunRequest {
    let mut body = hello();
    body["messages"].as_array_mut().unwrap().push(json!({ "id": "a", "role": "assistant" }));
    body["resume"] = entries.clone();
    parse(&body).unwrap()
}

/// An agent whose model calls these tools. `delete` needs an approval, `ask` is external.
fn agent(names: &[&str]) -> Agent {
    let spec = |name: &str| ToolSpec::new(name, "A tool", json!({ "type": "object" }));
    let call = |reply: Reply, name: &&str| reply.call(name, json!({ "file": "ours" }));
    let calls = names.iter().fold(Reply::new(), call);
    let delete = Tool::raw(spec("delete"), |_, _| async { "deleted" }).unwrap();
    Agent::new(Scripted::new([calls, Reply::text("Done.")]))
        .with_tools([delete.requires_approval(), Tool::external(spec("ask")).unwrap()])
}

async fn session_after(agent: &Agent) -> Session {
    let session = Session::open(MemoryStore::new(), "c").await.unwrap();
    session.run(agent, "Go").await.unwrap().outcome().await.unwrap();
    session
}

#[tokio::test]
async fn the_last_messages_of_the_user_are_the_input() {
    let body = request(&json!([
        { "id": "1", "role": "user", "content": "Old" },
        { "id": "2", "role": "assistant", "content": "Hello!" },
        { "id": "3", "role": "user", "content": "Look" },
        { "id": "4", "role": "user", "content": [
            { "type": "text", "text": "at this" },
            { "type": "image", "source": { "type": "data", "value": "AAAA", "mimeType": "image/png" } },
        ] },
    ]));
    let session = session_after(&agent(&[])).await;
    let action = parse(&body).unwrap().action(&session, &agent(&[])).unwrap();
    let parts = vec!["at this".into(), Part::image("image/png", b"\0\0\0")];
    assert_eq!(
        action,
        ClientAction::Run(vec![Item::user("Look"), Item::user(Content::Parts(parts))])
    );
    let nothing = parse(&request(&json!([]))).unwrap();
    assert_eq!(status(nothing.action(&session, &agent(&[]))), 400);
}

#[test]
fn an_invalid_request_is_rejected_with_a_specific_status() {
    assert_eq!(status(parse(&json!({ "threadId": "c", "messages": [] }))), 422);
    assert_eq!(status(parse(&json!({ "threadId": "", "runId": "r", "messages": [] }))), 422);
    assert_eq!(status(parse(&request(&json!([{ "role": "robot", "content": "Hi" }])))), 422);
    assert_eq!(status(parse(&request(&json!([{ "role": "user", "content": 1 }])))), 422);
    assert_eq!(status(parse(&request(&json!([{ "role": "tool", "content": "x" }])))), 422);
    let obey = request(&json!([{ "role": "developer", "content": "Obey" }]));
    assert_eq!(status(parse(&obey)), 400);
    let open = ClientLimits { allow_instructions: true, ..ClientLimits::default() };
    assert_eq!(parse_with(&obey, &open).unwrap().instructions, ["Obey"]);
    let refused = refuse(&parse(&obey).unwrap_err());
    let body: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!((refused.status, &body["code"]), (400, &json!(400)));
    assert!(body["message"].as_str().unwrap().contains("`system`"), "{body}");
}

#[test]
fn files_are_bounded_and_not_fetched() {
    let file = |source: Value| {
        let part = json!([{ "type": "document", "source": source }]);
        parse_with(
            &request(&json!([{ "role": "user", "content": part }])),
            &ClientLimits { max_file_bytes: 3, ..ClientLimits::default() },
        )
    };
    let data = |data: &str| json!({ "type": "data", "value": data, "mimeType": "application/pdf" });
    assert!(file(data("AAAA")).is_ok());
    assert_eq!(status(file(data("AAAAAAAA"))), 413);
    assert_eq!(status(file(data("A"))), 400);
    assert_eq!(status(file(json!({ "type": "url", "value": "https://a.example/b.pdf" }))), 400);
    assert_eq!(status(file(json!({ "type": "file", "value": "file-1" }))), 400);
}

#[tokio::test]
async fn a_client_tool_never_replaces_a_tool_of_the_agent() {
    let mut body = hello();
    body["tools"] =
        json!([{ "name": "pick", "description": "Picks", "parameters": { "type": "object" } }]);
    let with_tools = parse(&body).unwrap().add_client_tools(&agent(&[])).unwrap();
    assert!(with_tools.toolkit().get("pick").unwrap().is_external());
    assert!(with_tools.toolkit().get("delete").is_some(), "those of the agent stay");
    body["tools"][0]["name"] = json!("delete");
    assert_eq!(status(parse(&body).unwrap().add_client_tools(&agent(&[]))), 400);
    body["tools"][0]["name"] = json!("not a name!");
    assert_eq!(status(parse(&body).unwrap().add_client_tools(&agent(&[]))), 400);
    body["tools"] = json!([{ "name": "a", "description": "" }, { "name": "a", "description": "" }]);
    assert_eq!(status(parse(&body).unwrap().add_client_tools(&agent(&[]))), 400);
    let none = ClientLimits { max_tools: 1, ..ClientLimits::default() };
    assert_eq!(status(parse_with(&body, &none)), 413);
}

#[tokio::test]
async fn all_open_interrupts_must_be_answered_and_arguments_come_from_the_session() {
    let agent = agent(&["delete", "delete"]);
    let session = session_after(&agent).await;
    let entry = |id: &str, approved: bool| json!({ "interruptId": id, "status": "resolved", "payload": { "approved": approved } });
    let ids: Vec<String> = {
        let pending = session.history().pending_calls();
        pending.into_iter().map(|call| call.approval_id).collect()
    };
    let both = resume(&json!([entry(&ids[0], true), entry(&ids[1], false)]));
    let ClientAction::Resume(verdicts) = both.action(&session, &agent).unwrap() else {
        panic!("it continues")
    };
    assert_eq!(verdicts[0].1, Verdict::Approve);
    assert_eq!(verdicts[0].0.arguments, r#"{"file":"ours"}"#);
    assert!(matches!(verdicts[1].1, Verdict::Deny(_)));

    let by_call_id = resume(&json!([entry("call_1_1", true), entry("call_1_2", true)]));
    assert_eq!(status(by_call_id.action(&session, &agent)), 409);
    let one = resume(&json!([entry(&ids[0], true)])).action(&session, &agent).unwrap_err();
    assert_eq!(one.status(), 409);
    assert!(one.to_string().contains("call_1_2"), "{one}");
    let stale = json!([entry(&ids[0], true), entry(&ids[1], true), entry("x", true)]);
    assert_eq!(status(resume(&stale).action(&session, &agent)), 409);
    let unclear = json!([
        { "interruptId": ids[0], "status": "resolved", "payload": "yes" },
        { "interruptId": ids[1], "status": "cancelled" },
    ]);
    assert_eq!(status(resume(&unclear).action(&session, &agent)), 422);

    session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    assert_eq!(status(both.action(&session, &agent)), 409, "an answer that comes twice");
}

#[tokio::test]
async fn answers_that_come_with_a_new_message_are_refused_with_the_reason() {
    let message = |request: &RunRequest, session: &Session, agent: &Agent| {
        let error = request.action(session, agent).unwrap_err();
        assert_eq!(error.status(), 409);
        error.to_string()
    };
    let with_answers = |messages: &Value, resume: &Value| {
        let mut body = request(messages);
        body["resume"] = resume.clone();
        parse(&body).unwrap()
    };
    let call = json!([{ "id": "c1", "type": "function", "function": { "name": "delete", "arguments": "{}" } }]);
    let user = json!({ "id": "u2", "role": "user", "content": "Yes, and be quick" });
    let entry = |id: &str| json!([{ "interruptId": id, "status": "resolved", "payload": { "approved": true } }]);

    let deletes = agent(&["delete"]);
    let session = session_after(&deletes).await;
    let approval_id = session.history().pending_calls()[0].approval_id.clone();
    let messages = json!([{ "id": "a", "role": "assistant", "toolCalls": call }, user]);
    for id in [approval_id.as_str(), "call_1_1"] {
        let text = message(&with_answers(&messages, &entry(id)), &session, &deletes);
        assert!(text.starts_with("calls are waiting") && text.contains("new message"), "{text}");
    }
    // The message alone gives up the calls, and the answers alone answer them.
    let alone = with_answers(&messages, &json!([])).action(&session, &deletes).unwrap();
    assert_eq!(alone, ClientAction::Run(vec![Item::user("Yes, and be quick")]));
    let answers = with_answers(&json!([messages[0]]), &entry(&approval_id));
    assert!(matches!(answers.action(&session, &deletes).unwrap(), ClientAction::Resume(_)));

    let asks = agent(&["ask"]);
    let session = session_after(&asks).await;
    let result = |id: &str| {
        json!([
            { "id": "a", "role": "assistant" },
            { "id": "t", "role": "tool", "toolCallId": id, "content": "yes" },
            user,
        ])
    };
    let text = message(&with_answers(&result("call_1_1"), &json!([])), &session, &asks);
    assert!(text.contains("new message"), "{text}");
    let earlier = with_answers(&result("another"), &json!([])).action(&session, &asks).unwrap();
    assert!(
        matches!(earlier, ClientAction::Run(_)),
        "the result of an earlier call does not answer this one"
    );

    // Nothing is waiting any more.
    session.run(&asks, "Never mind").await.unwrap().outcome().await.unwrap();
    let late = with_answers(&messages, &entry(&approval_id));
    assert_eq!(message(&late, &session, &asks), "no call is waiting for this answer");
}

#[tokio::test]
async fn a_result_is_accepted_only_for_an_external_tool() {
    let asks = agent(&["ask"]);
    let session = session_after(&asks).await;
    let result = |id: &str| {
        let messages = json!([
            { "id": "a", "role": "assistant" },
            { "id": "t", "role": "tool", "toolCallId": id, "content": "yes" },
        ]);
        parse(&request(&messages)).unwrap()
    };
    let action = result("call_1_1").action(&session, &asks).unwrap();
    let ClientAction::Resume(verdicts) = action else { panic!("it continues") };
    assert_eq!(verdicts[0].1, Verdict::Output(ToolOutput::ok("yes")));
    assert_eq!(status(result("other").action(&session, &asks)), 409);

    let deletes = agent(&["delete"]);
    let session = session_after(&deletes).await;
    assert_eq!(status(result("call_1_1").action(&session, &deletes)), 409);
}

#[tokio::test]
async fn message_ids_are_derived_from_the_session_entries() {
    let read = ToolSpec::new("read", "Reads", json!({ "type": "object" }));
    let read = Tool::raw(read, |_, _| async { "four lines" }).unwrap();
    let model = Scripted::new([Reply::new().call("read", json!({})), Reply::text("Four lines.")]);
    let agent = Agent::new(model).with_tools([read]);
    let session = Session::open(MemoryStore::new(), "c").await.unwrap();
    let run = session.run(&agent, "Go").await.unwrap();
    let response = AgUi::new(&parse(&hello()).unwrap()).with_session(&session).respond(run);
    let body: Vec<_> = response.body.try_collect().await.unwrap();
    let body = String::from_utf8(body.concat()).unwrap();
    let entries = session.entries().await.unwrap();
    assert_eq!(entries.len(), 4, "the prompt, the call, its result, the answer");
    for expected in [
        r#""parentMessageId":"c:1""#,
        r#"{"type":"TOOL_CALL_RESULT","messageId":"c:2""#,
        r#"{"type":"TEXT_MESSAGE_START","messageId":"c:3""#,
    ] {
        assert!(body.contains(expected), "{expected}\n{body}");
    }
}

/// The events of a run, as sent to the client.
async fn events<S>(response: crate::ui::Response<crate::ui::ResponseBody<S>>) -> Vec<Value>
where
    S: futures::Stream<Item = Result<crate::event::Event, crate::error::Error>>,
{
    let body: Vec<_> = response.body.try_collect().await.unwrap();
    let body = String::from_utf8(body.concat()).unwrap();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn a_run_with_pending_calls_is_not_reported_as_a_success() {
    for (names, outcome) in [
        (&["ask"][..], json!(null)),
        (&["ask", "ask"], json!(null)),
        (&["delete"], json!("interrupt")),
        (&["ask", "delete"], json!("interrupt")),
        (&[], json!("success")),
    ] {
        let run = agent(names).run("Go");
        let events = events(AgUi::new(&parse(&hello()).unwrap()).respond(run)).await;
        let end = events.last().unwrap();
        assert_eq!(end["type"], "RUN_FINISHED");
        assert_eq!(end["outcome"]["type"], outcome, "{names:?}: {end}");
        if outcome.is_null() {
            assert_eq!(end.get("outcome"), None, "clients reject null");
            assert_eq!(end["result"]["reason"], "pending");
        }
    }
}

#[tokio::test]
async fn loaded_messages_have_the_ids_and_contents_of_the_stream() {
    let read = ToolSpec::new("read", "Reads", json!({ "type": "object" }));
    let read = Tool::raw(read, |_, _| async { Err::<String, _>("no /home/ada/notes.txt") });
    let model = Scripted::new([
        Reply::new().think("Hm.").say("Reading.").call("read", json!({})),
        Reply::text("As you say."),
        Reply::text("Yes."),
    ]);
    let agent = Agent::new(model).with_tools([read.unwrap()]).with_validation(|turn| {
        match turn.text() == "As you say." {
            true => Err("say yes"),
            false => Ok(()),
        }
    });
    let session = Session::open(MemoryStore::new(), "c").await.unwrap();
    let mut run = session.run(&agent, "Go").await.unwrap();
    let handle = run.handle();
    let steered = futures::stream::poll_fn(move |cx| {
        let event = futures::StreamExt::poll_next_unpin(&mut run, cx);
        if let std::task::Poll::Ready(Some(Ok(crate::event::Event::Tool(
            crate::event::ToolEvent::Started { .. },
        )))) = &event
        {
            handle.steer(vec![Item::user("Hurry."), Item::user("Please.")]).unwrap();
        }
        event
    });
    let settings = AgUi::new(&parse(&hello()).unwrap()).with_session(&session);
    let events = events(settings.clone().respond(steered)).await;

    let messages = settings.load_messages(&session, &agent).await.unwrap();
    let id = |message: &Value| message["id"].as_str().unwrap().to_owned();
    let ids: Vec<String> = messages.iter().map(id).collect();
    let mut streamed = vec!["c:0".to_owned()];
    for event in &events {
        let id = event["messageId"].as_str().or(event["parentMessageId"].as_str());
        let is_start = event["type"].as_str().unwrap().ends_with("_START")
            || event["type"] == "TOOL_CALL_RESULT";
        if let Some(id) = id.filter(|_| is_start)
            && !streamed.iter().any(|seen| seen == id)
        {
            streamed.push(id.to_owned());
        }
    }
    assert_eq!(ids, streamed);
    let shown: Vec<_> = messages.iter().map(|it| (&it["role"], &it["content"])).collect();
    let expected = [
        ("user", "Go"),
        ("reasoning", "Hm."),
        ("assistant", "Reading."),
        ("tool", "error (call_1_1)"),
        ("user", "Hurry."),
        ("user", "Please."),
        ("assistant", "As you say."),
        ("assistant", "Yes."),
    ];
    let expected = expected.map(|(role, content)| (json!(role), json!(content)));
    assert_eq!(shown, expected.iter().map(|(role, content)| (role, content)).collect::<Vec<_>>());
    assert_eq!(messages[2]["toolCalls"][0]["function"]["name"], "read");
    assert_eq!(messages[3]["metadata"]["kind"], "error");
}

#[tokio::test]
async fn loaded_messages_include_the_open_interrupts() {
    let agent = agent(&["delete", "ask"]);
    let session = session_after(&agent).await;
    let settings = AgUi::new(&parse(&hello()).unwrap());
    let messages = settings.load_messages(&session, &agent).await.unwrap();
    let pending = session.history().pending_calls();
    let open: Vec<_> =
        messages.iter().filter(|message| message["activityType"] == "interrupt").collect();
    assert_eq!(open.len(), 2);
    for ((interrupt, call), reason) in
        open.iter().zip(&pending).zip(["tool_approval", "tool_output"])
    {
        assert_eq!(interrupt["content"]["id"], call.approval_id.as_str());
        assert_eq!(interrupt["content"]["toolCallId"], call.call_id.as_str());
        assert_eq!(interrupt["content"]["reason"], reason);
    }
    // A client posts its messages back, with these activities among them.
    parse(&request(&json!(messages))).unwrap();
}

#[tokio::test]
async fn a_loaded_call_of_an_incomplete_turn_is_answered() {
    let cut = Reply::text("Let me").call_unfinished("c1", "delete", "{\"file\":").disconnect();
    let agent = Agent::new(Scripted::new([cut])).with_limits(crate::agent::Limits {
        max_turn_retries: 0,
        ..crate::agent::Limits::default()
    });
    let session = Session::open(MemoryStore::new(), "c").await.unwrap();
    session.run(&agent, "Go").await.unwrap().outcome().await.unwrap();
    let settings = AgUi::new(&parse(&hello()).unwrap());
    let messages = settings.load_messages(&session, &agent).await.unwrap();
    let calls =
        messages.iter().flat_map(|message| message["toolCalls"].as_array().into_iter().flatten());
    for call in calls {
        assert!(messages.iter().any(|message| message["toolCallId"] == call["id"]), "{messages:?}");
    }
    assert_eq!(messages[1]["content"], "Let me");
}

/// A session with a picture, a turn with reasoning, text and a call whose id contains separators,
/// the result of the call, and an answer. Returns it with the messages that a page shows.
async fn session_with_a_picture_and_a_call() -> (Session, Agent, Vec<Value>) {
    let model = Scripted::new([
        Reply::new().think("Hm.").say("Reading.").call_raw("r/1~0", "read", "{}").say("Soon."),
        Reply::new().think("So.").say("It is a cat."),
        Reply::text("Yes."),
    ]);
    let read = ToolSpec::new("read", "Reads", json!({ "type": "object" }));
    let agent = Agent::new(model).with_tool(Tool::raw(read, |_, _| async { "cat" }).unwrap());
    let session = Session::open(MemoryStore::new(), "c").await.unwrap();
    let question = Item::user(vec!["What is it?".into(), Part::image("image/png", b"\0\0\0")]);
    session.run(&agent, question).await.unwrap().outcome().await.unwrap();
    let settings = AgUi::new(&parse(&hello()).unwrap());
    let mut messages = settings.load_messages(&session, &agent).await.unwrap();
    messages.push(json!({ "id": "u9", "role": "user", "content": "Sure?" }));
    (session, agent, messages)
}

/// The messages of a client that has sent `messages` and received these events: for each message,
/// its role, its content, and its calls. Like real clients, it keeps reasoning that is missing from
/// a snapshot.
fn shown_by_client(messages: &[Value], events: &[Value]) -> Vec<String> {
    let mut shown = messages.to_vec();
    for event in events.iter().filter(|event| event["type"] == "MESSAGES_SNAPSHOT") {
        let snapshot = event["messages"].as_array().unwrap();
        let is_known = |it: &Value| snapshot.iter().any(|other| other["id"] == it["id"]);
        let missing = shown.iter().filter(|it| it["role"] == "reasoning" && !is_known(it)).cloned();
        shown = missing.collect::<Vec<_>>().into_iter().chain(snapshot.iter().cloned()).collect();
    }
    let line = |message: &Value| {
        let calls = message["toolCalls"].as_array().map_or(0, Vec::len);
        let content = match &message["content"] {
            Value::Array(_) => "a picture",
            content => content.as_str().unwrap_or_default(),
        };
        let calls = if calls > 0 { " and a call" } else { "" };
        format!("{}: {content}{calls}", message["role"].as_str().unwrap())
    };
    let is_visible = |message: &&Value| message["role"] != "reasoning" || message["content"] != "";
    shown.iter().filter(is_visible).map(line).collect()
}

#[tokio::test]
async fn tombstones_are_removed_from_the_messages_that_a_client_has_sent() {
    let all = [
        "user: a picture",
        "reasoning: Hm.",
        "assistant: Reading.Soon. and a call",
        "tool: cat",
        "reasoning: So.",
        "assistant: It is a cat.",
        "user: Sure?",
    ];
    let cases: [(&[usize], &[&str]); 5] = [
        // The reasoning of a turn is marked together with any other item of it.
        (&[2], &[all[0], "assistant: Soon. and a call", all[3], all[4], all[5], all[6]]),
        (&[4], &[all[0], "assistant: Reading. and a call", all[3], all[4], all[5], all[6]]),
        (&[3], &[all[0], "assistant: Reading.Soon.", all[4], all[5], all[6]]),
        (&[0, 2, 3, 4], &[all[4], all[5], all[6]]),
        (&[7], &[all[0], all[1], all[2], all[3], all[6]]),
    ];
    for (positions, expected) in cases {
        for has_session in [true, false] {
            let (session, agent, messages) = session_with_a_picture_and_a_call().await;
            assert_eq!(shown_by_client(&messages, &[]), all);
            let settings = AgUi::new(&parse(&request(&json!(messages))).unwrap());
            let events = match has_session {
                true => {
                    let run = session.run(&agent, "Sure?").await.unwrap();
                    run.tombstone(positions.iter().copied()).unwrap();
                    events(settings.with_session(&session).respond(run)).await
                }
                false => {
                    let run = agent.run_from(session.history(), "Sure?");
                    run.tombstone(positions.iter().copied()).unwrap();
                    events(settings.respond(run)).await
                }
            };
            let mut shown = shown_by_client(&messages, &events);
            let mut expected: Vec<_> = expected.iter().map(|&line| line.to_owned()).collect();
            // A client decides where it keeps reasoning.
            shown.sort();
            expected.sort();
            assert_eq!(shown, expected, "{positions:?}, {has_session}");
            if has_session {
                let loaded = AgUi::new(&parse(&hello()).unwrap());
                let loaded = loaded.load_messages(&session, &agent).await.unwrap();
                let mut shown = shown_by_client(&loaded, &[]);
                expected.push("assistant: Yes.".to_owned());
                shown.sort();
                expected.sort();
                assert_eq!(shown, expected, "{positions:?}, loaded");
            }
        }
    }
}

#[tokio::test]
async fn of_equal_messages_only_the_tombstone_is_removed() {
    let agent = Agent::new(Scripted::new(["Same.", "Same.", "Bye."]));
    let session = session_after(&agent).await;
    session.run(&agent, "Go").await.unwrap().outcome().await.unwrap();
    let settings = AgUi::new(&parse(&hello()).unwrap());
    let messages = settings.load_messages(&session, &agent).await.unwrap();
    let settings = AgUi::new(&parse(&request(&json!(messages))).unwrap()).with_session(&session);
    let run = session.run(&agent, "Go").await.unwrap();
    run.tombstone([1]).unwrap();
    let events = events(settings.respond(run)).await;
    let snapshot = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    let ids: Vec<_> = snapshot["messages"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, [&messages[0]["id"], &messages[2]["id"], &messages[3]["id"]]);
}

#[tokio::test]
async fn the_last_text_of_a_turn_is_removed_from_the_message_of_the_turn() {
    let answer = Reply::new().think("Hm.").say("Kept.").think("So.").say("Gone.");
    let agent = Agent::new(Scripted::new([answer, Reply::text("Bye.")]));
    let session = session_after(&agent).await;
    let settings = AgUi::new(&parse(&hello()).unwrap());
    let messages = settings.load_messages(&session, &agent).await.unwrap();
    assert!(json!(messages).to_string().contains("Kept.Gone."), "one message has both texts");
    let settings = AgUi::new(&parse(&request(&json!(messages))).unwrap()).with_session(&session);
    let run = session.run(&agent, "Go").await.unwrap();
    run.tombstone([4]).unwrap();
    let events = events(settings.respond(run)).await;
    let snapshot = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    let snapshot = snapshot.to_string();
    assert!(snapshot.contains("Kept.") && !snapshot.contains("Gone."), "{snapshot}");
    assert!(!snapshot.contains("Hm.") && !snapshot.contains("So."), "{snapshot}");
}

#[tokio::test]
async fn a_turn_that_becomes_tombstones_in_its_own_run_is_removed_with_its_reasoning() {
    let model = Scripted::new([
        Reply::new().think("Hm.").say("Reading.").call("read", json!({})),
        Reply::text("Done."),
    ]);
    let read = ToolSpec::new("read", "Reads", json!({ "type": "object" }));
    let agent = Agent::new(model).with_tool(Tool::raw(read, |_, _| async { "cat" }).unwrap());
    let mut run = agent.run("Hi");
    let mut collected = Vec::new();
    while let Some(event) = run.next().await {
        if event.as_ref().unwrap().tool_output().is_some() {
            run.tombstone([2, 3]).unwrap();
        }
        collected.push(event);
    }
    let events =
        events(AgUi::new(&parse(&hello()).unwrap()).respond(stream::iter(collected))).await;
    let snapshot = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    let shown: Vec<_> = snapshot["messages"].as_array().unwrap().iter().collect();
    assert_eq!(shown.len(), 2, "{snapshot}");
    assert_eq!((&shown[0]["content"], &shown[1]["content"]), (&json!("Hi"), &json!("")));
    let reasoning = events.iter().find(|event| event["type"] == "REASONING_START").unwrap();
    assert_eq!(shown[1]["id"], reasoning["messageId"]);
}

#[tokio::test]
async fn the_call_of_an_interrupted_turn_is_answered_and_the_run_goes_on() {
    let half = Reply::text("Let me").call_unfinished("c1", "delete", r#"{"fi"#).hang();
    let mut run = Agent::new(Scripted::new([half, Reply::text("Fine.")])).run("Go");
    let handle = run.handle();
    let mut collected = Vec::new();
    while let Some(event) = run.next().await {
        if matches!(&event, Ok(Event::Turn(TurnEvent::ToolCallArgsDelta { .. }))) {
            handle.steer("Do not").unwrap();
            handle.interrupt_turn();
        }
        collected.push(event);
    }
    let settings = AgUi::new(&parse(&hello()).unwrap());
    let shown = events(settings.respond(stream::iter(collected))).await;
    let of = |kind: &str| shown.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let [result] = &of("TOOL_CALL_RESULT")[..] else { panic!("{shown:?}") };
    assert_eq!(result["toolCallId"], "c1");
    assert!(result["content"].as_str().unwrap().contains("the turn was interrupted"), "{result}");
    let ended: Vec<_> = of("TEXT_MESSAGE_END");
    assert_eq!(ended.len(), of("TEXT_MESSAGE_START").len());
    assert_eq!(of("TOOL_CALL_END").len(), 1);
    assert_eq!(of("RUN_FINISHED")[0]["outcome"]["type"], "success");
}
