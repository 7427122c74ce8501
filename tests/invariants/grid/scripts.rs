//! The scripts, and tools that count.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::provider::Reply;
use turnstream::tool::{Tool, ToolSpec, ToolUpdate};
use turnstream::turn::StopReason;
use turnstream::{Error, ErrorKind, Toolkit, Usage};

use turnstream_test_support::tools::Executions;

/// One script.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) replies: Vec<Reply>,
    /// The maximum number of a turn's concurrent calls.
    pub(crate) max_concurrency: usize,
    /// The run never ends on its own.
    pub(crate) hangs: bool,
}

fn panic_with_boom() {
    std::panic::resume_unwind(Box::new("boom"))
}

fn tool_spec(name: &str) -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": { "x": { "type": "integer" } },
        "additionalProperties": false,
    });
    ToolSpec::new(name, "", parameters)
}

pub(crate) fn case_toolkit(seen: &Arc<Executions>, case: &Case) -> Toolkit {
    let at_once = std::num::NonZeroUsize::new(case.max_concurrency).unwrap();
    Toolkit::new(counted_tools(seen)).with_max_concurrency(at_once)
}

fn counted_tools(seen: &Arc<Executions>) -> Vec<Tool> {
    let (ok, slow, bad, wild) = (seen.clone(), seen.clone(), seen.clone(), seen.clone());
    let chatty = seen.clone();
    vec![
        Tool::raw(tool_spec("ok"), move |_, cx| {
            let running = ok.enter(&cx);
            async move {
                drop(running);
                "fine"
            }
        })
        .unwrap(),
        Tool::raw(tool_spec("slow"), move |_, cx| {
            let running = slow.enter(&cx);
            async move {
                tokio::time::sleep(Duration::from_millis(25)).await;
                drop(running);
                "late"
            }
        })
        .unwrap(),
        Tool::raw(tool_spec("bad"), move |_, cx| {
            let running = bad.enter(&cx);
            async move {
                let _running = running;
                Err::<(), _>("no")
            }
        })
        .unwrap(),
        Tool::raw(tool_spec("wild"), move |_, cx| {
            let running = wild.enter(&cx);
            async move {
                let _running = running;
                tokio::task::yield_now().await;
                panic_with_boom();
            }
        })
        .unwrap(),
        Tool::raw(tool_spec("chatty"), move |_, cx| {
            let running = chatty.enter(&cx);
            let updates =
                futures::stream::iter([ToolUpdate::progress(&1), ToolUpdate::output("done")]);
            ready(updates.map(move |update| (&running, update).1).boxed())
        })
        .unwrap(),
    ]
}

/// The shapes of a turn: a name, the reply, and whether it hangs.
fn first_turns() -> Vec<(String, Reply, bool)> {
    let usage = Usage { input_tokens: 10, output_tokens: 3, ..Usage::default() };
    let text = || Reply::new().think("hm").say("some words").usage(usage);
    let call = |name: &str| Reply::text("so").call(name, json!({ "x": 1 })).usage(usage);
    let pair = |a: &str, b: &str| call(a).call(b, json!({}));
    let error = || Error::new(ErrorKind::Overloaded, "busy");
    let mut turns = vec![
        ("text", text(), false),
        ("nothing", Reply::new(), false),
        ("thought only", Reply::new().think("hm"), false),
        ("ok", call("ok"), false),
        ("slow ok", pair("slow", "ok"), false),
        ("ok slow", pair("ok", "slow"), false),
        ("bad wild", pair("bad", "wild"), false),
        ("chatty slow", pair("chatty", "slow"), false),
        ("unknown", call("nobody"), false),
        ("unknown ok", pair("nobody", "ok"), false),
        ("no json", Reply::new().call_raw("j", "ok", "{\"x\":"), false),
        ("no object", Reply::new().call_raw("j", "ok", "[1]"), false),
        ("no fit", Reply::new().call_raw("j", "ok", "{\"x\":\"1\"}"), false),
        ("empty arguments", Reply::new().call_raw("e", "ok", ""), false),
        ("same id", Reply::new().call_raw("d", "ok", "{}").call_raw("d", "ok", "{}"), false),
        (
            "same id, other arguments",
            Reply::new().call_raw("d", "ok", "{}").call_raw("d", "slow", "{\"x\":2}"),
            false,
        ),
        ("fixed id", Reply::new().call_raw("fixed", "ok", "{}"), false),
        ("cut at once", Reply::new().disconnect(), false),
        ("cut text", text().disconnect(), false),
        ("cut after a call", call("ok").disconnect(), false),
        ("cut in a call", call("ok").call_unfinished("u", "slow", "{\"x\"").disconnect(), false),
        ("a call without its end", Reply::new().call_unfinished("u", "ok", "{}"), false),
        ("fail at once", Reply::error(error()), false),
        ("fail after a call", call("ok").fail(error()), false),
        ("retracted", call("ok").retract("again").say("anew").usage(usage), false),
        ("retracted, then a call", text().retract("again").call("slow", json!({})), false),
        ("retracted, then cut", call("ok").retract("again").say("a").disconnect(), false),
        ("late", text().delay(Duration::from_millis(25)).say("er"), false),
        ("hang", text().hang(), true),
        ("hang after a call", call("ok").hang(), true),
    ]
    .into_iter()
    .map(|(name, reply, hangs)| (name.to_owned(), reply, hangs))
    .collect::<Vec<_>>();
    for reason in [
        StopReason::Stop,
        StopReason::ToolCalls,
        StopReason::MaxTokens,
        StopReason::ContentFilter,
        StopReason::Refusal,
        StopReason::Pause,
        StopReason::ContextWindow,
        StopReason::Other("odd".into()),
    ] {
        let name = reason.as_str();
        turns.push((format!("{name}, words"), text().stop(reason.clone()), false));
        turns.push((format!("{name}, calls"), pair("ok", "slow").stop(reason.clone()), false));
        turns.push((format!("{name}, nothing"), Reply::new().stop(reason), false));
    }
    turns
}

/// The replies after the first turn, as far as the run continues.
fn continuations() -> Vec<(&'static str, Vec<Reply>, bool)> {
    let call = || Reply::new().call("ok", json!({})).call_raw("fixed", "slow", "{}");
    vec![
        ("then words", vec!["done".into(), "done".into()], false),
        ("then calls for ever", vec![call(), call(), call()], false),
        ("then cut", vec![Reply::text("hal").disconnect()], false),
        ("then the script is over", vec![], false),
        ("then hang", vec![call().hang()], true),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (first, reply, hangs) in first_turns() {
        for (then, more, hangs_then) in continuations() {
            let replies: Vec<Reply> = [reply.clone()].into_iter().chain(more).collect();
            let name = format!("{first}, {then}");
            // The run itself determines whether it continues to these replies.
            let reaches = is_continued_after(&first);
            let hangs = hangs || (reaches && hangs_then);
            for at_once in [4, 1] {
                let name = format!("{name}, {at_once} at once");
                cases.push(Case {
                    name,
                    replies: replies.clone(),
                    max_concurrency: at_once,
                    hangs,
                });
            }
        }
    }
    cases
}

/// Whether a run sends another request after this first turn.
fn is_continued_after(first: &str) -> bool {
    const CONTINUED_TURNS: &[&str] = &[
        "nothing",
        "thought only",
        "ok",
        "slow ok",
        "ok slow",
        "bad wild",
        "chatty slow",
        "unknown",
        "unknown ok",
        "no json",
        "no object",
        "no fit",
        "empty arguments",
        "same id",
        "same id, other arguments",
        "fixed id",
        "retracted, then a call",
        "stop, calls",
        "stop, nothing",
        "tool_calls, calls",
        "max_tokens, words",
        "max_tokens, calls",
        "max_tokens, nothing",
        "pause, words",
        "pause, calls",
        "pause, nothing",
        "odd, calls",
        "odd, nothing",
    ];
    CONTINUED_TURNS.contains(&first)
}
