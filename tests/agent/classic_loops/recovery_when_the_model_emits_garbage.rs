//! "Recovery: when the model emits garbage": a reply that cannot be read gets a corrective message
//! that lists the tools, and invalid arguments get a failed result. A mistake of the program is an
//! error.

use futures::{TryStreamExt, stream};
use serde_json::{Value, json};
use turnstream::env::{Ids, SystemIds};
use turnstream::event::AppendReason;
use turnstream::item::{ItemKind, ResultKind};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::tool::{Tool, ToolSpec, Toolkit};
use turnstream::{
    Error, ErrorKind, Event, EventStreamExt, History, Item, Journal, Request, Steps, TurnStreamExt,
    loop_stream,
};

use turnstream_test_support::items::history_of;

/// The number of unreadable replies in a row that ends the loop.
const MAX_MALFORMED: u32 = 3;
const MAX_STEPS: u32 = 20;

#[derive(Clone)]
struct LoopState {
    history: History,
    consecutive_malformed: u32,
    steps: u32,
}

/// The message that answers a reply which could not be read.
fn corrective(error: &Error, toolkit: &Toolkit) -> Item {
    let specs = toolkit.specs();
    let names: Vec<&str> = specs.iter().map(|spec| &*spec.name).collect();
    Item::user(format!(
        "Your previous reply could not be parsed: {}\n\nThis usually means you called a tool that \
         doesn't exist or used the wrong argument shape. The only tools available are: {}. Reply \
         again using one of those tools, or plain text if you're done.",
        error.message(),
        names.join(", "),
    ))
}

/// Continues with the corrective, which is an event as well, so that the journal contains it. It
/// costs a step.
fn ask_again(error: Error, state: LoopState, toolkit: &Toolkit) -> Steps<'static, LoopState> {
    let LoopState { mut history, consecutive_malformed, steps } = state;
    if consecutive_malformed + 1 == MAX_MALFORMED || steps + 1 == MAX_STEPS {
        return Steps::new(stream::iter([Err(error)]));
    }
    let message = corrective(&error, toolkit);
    history.push(message.clone());
    let (why, id) = (AppendReason::Corrective, SystemIds.next_id());
    let event = Event::Appended { why, id, items: vec![message] };
    let consecutive_malformed = consecutive_malformed + 1;
    let state = LoopState { history, consecutive_malformed, steps: steps + 1 };
    Steps::next(state).preceded_by([event])
}

/// A tool that reads a file, whose arguments have a schema.
fn read_file() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": { "path": { "type": "string" } },
        "required": ["path"],
    });
    let spec = ToolSpec::new("read_file", "Reads a file", schema);
    Tool::raw(spec, |args: Value, _| async move { format!("the text of {}", args["path"]) })
        .unwrap()
}

/// How a loop ended, the number of its requests, and the items that it has added.
struct LoopEnd {
    ended: Result<(), Error>,
    requests: usize,
    new_items: Vec<Item>,
}

async fn run_corrective_loop(replies: Vec<Reply>) -> LoopEnd {
    let model = Scripted::new(replies);
    let toolkit = Toolkit::new([read_file()]);
    let journal = Journal::new(history_of([Item::user("go")]));
    let start = LoopState { history: journal.history(), consecutive_malformed: 0, steps: 0 };
    let events = loop_stream(start, |state: LoopState| {
        let request = Request::new(state.history.clone()).with_tools(toolkit.specs());
        let (tools, before) = (toolkit.clone(), state.clone());
        let steps = model.stream_turn(request).on_turn_complete(move |turn| async move {
            if turn.calls().is_empty() {
                return Ok(Steps::stop());
            }
            let LoopState { history, steps, .. } = before;
            // A reply that can be read resets the count.
            let next =
                move |history| LoopState { history, consecutive_malformed: 0, steps: steps + 1 };
            Ok(tools.run(&history, &turn).then_next(next))
        });
        let toolkit = toolkit.clone();
        // Only the model's mistakes are answered. Other errors end the loop.
        Steps::new(steps)
            .recover(ErrorKind::GenerationFailed, move |error| ask_again(error, state, &toolkit))
    });
    let ended = events.journal_to(&journal).try_for_each(|_| async { Ok(()) }).await;
    LoopEnd { ended, requests: model.requests().len(), new_items: journal.new_items() }
}

/// A reply that the provider could not read, because it calls a tool that does not exist.
fn hallucinated_tool() -> Reply {
    let message = "the tool `read_files` does not exist";
    Reply::text("I will look.").fail(Error::new(ErrorKind::GenerationFailed, message))
}

fn read_call(arguments: Value) -> Reply {
    Reply::new().call("read_file", arguments)
}

fn kinds_of(items: &[Item]) -> Vec<&'static str> {
    let kind = |item: &Item| match &item.kind {
        ItemKind::User { .. } => "corrective",
        ItemKind::ToolCall(_) => "call",
        ItemKind::ToolResult(_) => "result",
        _ => "text",
    };
    items.iter().map(kind).collect()
}

#[tokio::test]
async fn an_unreadable_reply_gets_a_corrective_that_lists_the_tools() {
    let end = run_corrective_loop(vec![hallucinated_tool(), "Done.".into()]).await;
    assert!(end.ended.is_ok());
    let text = end.new_items[0].as_user().unwrap().text();
    let expected = "Your previous reply could not be parsed: the tool `read_files` does not exist";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("The only tools available are: read_file."), "{text}");
    // The text of the unreadable reply is not part of the history.
    assert_eq!(kinds_of(&end.new_items), ["corrective", "text"]);
}

#[tokio::test]
async fn correctives_cost_a_request_are_recorded_and_a_good_reply_resets_their_count() {
    let bad = hallucinated_tool;
    let good = || read_call(json!({ "path": "a.md" }));
    let end = run_corrective_loop(vec![bad(), bad(), good(), bad(), bad(), "Done.".into()]).await;
    assert_eq!((end.ended.is_ok(), end.requests), (true, 6));
    let expected =
        ["corrective", "corrective", "call", "result", "corrective", "corrective", "text"];
    assert_eq!(kinds_of(&end.new_items), expected);

    let end = run_corrective_loop(vec![bad(), bad(), bad(), "Unused.".into()]).await;
    assert_eq!((end.ended.unwrap_err().kind(), end.requests), (ErrorKind::GenerationFailed, 3));
    assert_eq!(kinds_of(&end.new_items), ["corrective", "corrective"]);
}

#[tokio::test]
async fn invalid_arguments_are_the_models_mistake_and_get_a_failed_result() {
    let replies = vec![
        read_call(json!({ "file": "a.md" })),
        read_call(json!({ "path": "a.md" })),
        "Done.".into(),
    ];
    let end = run_corrective_loop(replies).await;
    assert_eq!((end.ended.is_ok(), end.requests), (true, 3));
    let results: Vec<_> = end.new_items.iter().filter_map(Item::as_tool_result).collect();
    assert_eq!(results[0].kind, ResultKind::InvalidArguments);
    assert!(
        results[0].content.text().contains("missing `path`")
            || results[0].content.text().contains("path")
    );
    assert_eq!(results[1].kind, ResultKind::Ok);
}

#[tokio::test]
async fn a_mistake_of_the_program_ends_the_loop_and_the_model_is_not_blamed() {
    let broken = Reply::error(Error::new(ErrorKind::InvalidRequest, "the schema is invalid"));
    let end = run_corrective_loop(vec![broken, "Unused.".into()]).await;
    assert_eq!((end.ended.unwrap_err().kind(), end.requests), (ErrorKind::InvalidRequest, 1));
    assert_eq!(end.new_items, []);
}
