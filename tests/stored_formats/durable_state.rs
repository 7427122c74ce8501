//! The state that a durable engine stores for a session: commands, verdicts, status and entries.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};
use turnstream::Item;
use turnstream::durable::storage::{
    CommandQueue, CommandWaiter, GivenVerdicts, SessionSegments, SessionStatus,
};
use turnstream::durable::{StoredCommand, ToolCallRequest};
use turnstream::hub::Command;
use turnstream::item::{GrantDuration, GrantScope, PendingCall, ToolCall};
use turnstream::session::Entry;
use turnstream::tool::{ToolOutput, Verdict};
use turnstream_testing::session_suite::numbered_entries;

use crate::{assert_written, stored};

fn tool_call() -> ToolCall {
    ToolCall {
        call_id: "c1".to_owned(),
        name: "delete".to_owned(),
        arguments: r#"{"file":"notes"}"#.to_owned(),
    }
}

fn pending_call() -> PendingCall {
    PendingCall::from(tool_call()).with_parent_call("c0")
}

fn commands() -> Vec<StoredCommand> {
    let verdict = |verdict| Command::Verdict { call: pending_call(), verdict };
    let commands = [
        Command::Interrupt,
        Command::InterruptWithReason("the user left".to_owned()),
        Command::StopAfterTurn,
        Command::Steer(vec![Item::user("left")]),
        Command::FollowUp(vec![Item::user("then"), Item::user("right")]),
        verdict(Verdict::Approve),
        verdict(Verdict::deny("no")),
        verdict(Verdict::output("done")),
        verdict(Verdict::Output(ToolOutput::error("failed"))),
        Command::ToolProgress { call_id: "c1".to_owned(), data: json!({ "done": 3 }).into() },
        verdict(Verdict::approve_always(GrantScope::AnyArguments, GrantDuration::Session)),
        Command::RevokeGrant { grant_id: "a1".to_owned() },
    ];
    let stored = |(n, command)| StoredCommand { id: format!("id-{n}"), command };
    (1..).zip(commands).map(stored).collect()
}

/// A queue whose run waits for a command, and the same queue after input has arrived.
fn queues() -> [CommandQueue; 2] {
    let mut queue = CommandQueue::default();
    queue.take("run-1", Some(7));
    let waiter = CommandWaiter { id: "waiter-1".to_owned(), timer: Some("timer-1".to_owned()) };
    queue.wait(waiter);
    queue.wait_for_stop("waiter-2".to_owned());
    let waiting = queue.clone();
    queue.push("s", commands().swap_remove(3)).unwrap();
    queue.expire("timer-1");
    [waiting, queue]
}

fn status() -> SessionStatus {
    let pending = Entry::Pending { calls: vec![pending_call()] };
    let call = Entry::from(Item::tool_call("c0", "agent", "{}"));
    let mut status = SessionStatus::from_entries(vec![call, pending], Some("run-1".to_owned()));
    status.awaited_calls = vec![pending_call()];
    status
}

fn verdicts() -> GivenVerdicts {
    let mut verdicts: GivenVerdicts = [(pending_call(), Verdict::Approve)].into_iter().collect();
    verdicts.run = Some("run-2".to_owned());
    verdicts
}

fn request() -> ToolCallRequest {
    ToolCallRequest { session: "s".to_owned(), run: Some("run-1".to_owned()), call: tool_call() }
}

/// The values of a session's entries, by key, in the middle of a run.
fn segments() -> BTreeMap<String, String> {
    let mut segments = SessionSegments::open(None).unwrap();
    let mut writes = segments.append(&numbered_entries(0..3)).unwrap();
    writes.extend(segments.merge().unwrap());
    writes.extend(segments.append(&numbered_entries(3..4)).unwrap());
    let mut state = BTreeMap::new();
    for write in writes {
        match write.value {
            Some(value) => drop(state.insert(write.key, value)),
            None => drop(state.remove(&write.key)),
        }
    }
    state
}

#[test]
fn commands_are_written_in_their_stored_format() {
    let mut text = String::new();
    let mut push = |line: String| writeln!(text, "{line}").unwrap();
    for command in commands() {
        push(serde_json::to_string(&command).unwrap());
    }
    for queue in queues() {
        push(serde_json::to_string(&queue).unwrap());
    }
    assert_written("durable_commands.jsonl", &text);
}

#[test]
fn stored_commands_are_read() {
    let text = stored("durable_commands.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    let (first, last) = lines.split_at(lines.len() - 2);
    let read: Vec<StoredCommand> =
        first.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, commands());
    let read: Vec<CommandQueue> =
        last.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, queues());
}

#[test]
fn the_state_of_a_session_is_written_in_its_stored_format() {
    #[derive(Serialize)]
    struct State {
        status: SessionStatus,
        verdicts: GivenVerdicts,
        tool_call: ToolCallRequest,
        segments: BTreeMap<String, String>,
    }

    let (status, verdicts, tool_call, segments) = (status(), verdicts(), request(), segments());
    let state = State { status, verdicts, tool_call, segments };
    assert_written("durable_session.json", &(serde_json::to_string_pretty(&state).unwrap() + "\n"));
}

#[test]
fn the_stored_state_of_a_session_is_read() {
    let mut state: Value = serde_json::from_str(&stored("durable_session.json")).unwrap();
    let mut part = |name: &str| state[name].take();
    assert_eq!(serde_json::from_value::<SessionStatus>(part("status")).unwrap(), status());
    assert_eq!(serde_json::from_value::<GivenVerdicts>(part("verdicts")).unwrap(), verdicts());
    assert_eq!(serde_json::from_value::<ToolCallRequest>(part("tool_call")).unwrap(), request());
    let state: BTreeMap<String, String> = serde_json::from_value(part("segments")).unwrap();
    let head = state.get(SessionSegments::head_key()).map(String::as_str);
    let mut segments = SessionSegments::open(head).unwrap();
    let values: Vec<String> = segments.keys().iter().map(|key| state[key].clone()).collect();
    assert_eq!(segments.read(values).unwrap(), numbered_entries(0..4));
}
