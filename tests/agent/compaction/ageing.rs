//! Old reasoning and arguments are shortened as they age.

use futures::executor::block_on;
use serde_json::json;
use turnstream::context::{
    Ageing, BytesDiv4, Compactor, Truncator, Window, estimate_tokens, was_reactively_compacted,
};
use turnstream::event::{EndReason, RewriteReason};
use turnstream::item::ItemKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Error, ErrorKind, Event, History, Item, Request};
use turnstream_testing::{Wire, lint};

use turnstream_test_support::compaction::{encode_history, with_provider_data};
use turnstream_test_support::items::{history_of, look_turn, token_usage};
use turnstream_test_support::runs::{limits_with_max_turns, test_agent};
use turnstream_test_support::tools::constant_tool;
use turnstream_test_support::world::{FinishedRun, finish_run};

/// A turn with long reasoning and long arguments.
fn long_turn(n: usize) -> Vec<Item> {
    let mut items = look_turn(n);
    items[0] = Item::reasoning(format!("thought {n} {}", "t".repeat(1_000)));
    let ItemKind::ToolCall(call) = &mut items[2].kind else { unreachable!("a call") };
    call.arguments = json!({ "n": n, "text": "i".repeat(3_000) }).to_string();
    items
}

fn compacted_count(history: &History) -> usize {
    history.iter().filter(|item| item.compacted).count()
}

/// Replies with reasoning and a call, and a final one.
fn tool_turn_replies(turns: usize) -> Vec<Reply> {
    let reply = |n: usize| {
        let arguments = json!({ "text": format!("{n} {}", "i".repeat(3_000)) });
        Reply::new().think("t".repeat(1_000)).call("look", arguments).usage(token_usage(90, 9))
    };
    (0..turns).map(reply).chain(["Done.".into()]).collect()
}

fn rewrite_count(finished: &FinishedRun) -> usize {
    let is_it =
        |event: &&Event| matches!(event, Event::Rewritten { why: RewriteReason::Compacted, .. });
    finished.events.iter().filter(is_it).count()
}

async fn run_with_ageing(turns: usize, ageing: Option<Ageing>) -> (FinishedRun, Vec<Request>) {
    let model = Scripted::new(tool_turn_replies(turns));
    let mut agent = test_agent(model.clone())
        .with_tools([constant_tool("look", "seen")])
        .with_limits(limits_with_max_turns(99));
    if let Some(ageing) = ageing {
        agent = agent.with_ageing(ageing);
    }
    let finished = finish_run(agent.run("go")).await;
    finished.check_outcome(EndReason::Completed, u32::try_from(turns).unwrap() + 1);
    (finished, model.requests())
}

#[test]
fn old_turns_are_shortened_in_batches_and_the_newest_stay_whole() {
    let ageing = Ageing::after_turns(3).with_interval(2);
    for turns in 0..12_usize {
        let before = history_of((0..turns).flat_map(long_turn));
        let old = turns.saturating_sub(3) / 2 * 2;
        let Some(compaction) = ageing.plan_compaction(&before) else {
            assert_eq!(old, 0);
            continue;
        };
        compaction.validate(&before).unwrap();
        let mut after = before.clone();
        compaction.apply(&mut after);
        assert_eq!((compacted_count(&after), compaction.from), (2 * old, 0));
        assert_eq!(ageing.plan_compaction(&after), None, "once");
        let stays = |item: &&Item| item.as_text().is_some() || item.as_tool_result().is_some();
        assert!(before.iter().filter(stays).eq(after.iter().filter(stays)));
        assert!(before.iter().skip(4 * old).eq(after.iter().skip(4 * old)));
        assert_eq!(block_on(ageing.compact(&before)).unwrap(), Some(compaction));
        for wire in Wire::ALL {
            assert_eq!(lint::request(wire, "m", &encode_history(wire, &after)), [""; 0]);
        }
    }
}

#[tokio::test]
async fn ageing_is_off_by_default_and_needs_no_window() {
    let (finished, requests) = run_with_ageing(12, None).await;
    assert_eq!((rewrite_count(&finished), compacted_count(&requests[12].context)), (0, 0));
    let (finished, requests) = run_with_ageing(12, Some(Ageing::after_turns(4))).await;
    assert_eq!(rewrite_count(&finished), 2);
    // Two marks per turn: its reasoning and its call.
    let marks: Vec<usize> = requests.iter().map(|it| compacted_count(&it.context)).collect();
    assert_eq!(marks, [0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 16]);
    assert!(!was_reactively_compacted(&finished.outcome.history));
    assert_eq!(finished.refold_history(History::empty("id-1")), finished.outcome.history);
}

#[tokio::test]
async fn between_batches_each_request_extends_the_previous_one() {
    let (_, requests) = run_with_ageing(12, Some(Ageing::after_turns(4))).await;
    for wire in Wire::ALL {
        let bodies: Vec<String> = requests.iter().map(|it| encoded_messages(wire, it)).collect();
        for (n, pair) in bodies.windows(2).enumerate() {
            let is_prefix = pair[1].starts_with(pair[0].trim_end_matches(']'));
            assert_eq!(is_prefix, n + 1 != 8 && n + 1 != 12, "{wire} {n}");
        }
    }
}

/// The messages of a request as text, without cache marks.
fn encoded_messages(wire: Wire, request: &Request) -> String {
    let mut request = Request::new(request.context.clone());
    request.options.max_output_tokens = Some(100);
    request.options.cache = turnstream::request::Cache::Off;
    let body = turnstream_test_support::wires::encode(wire, "m", &request);
    let field = ["messages", "input", "contents"].into_iter().find(|field| !body[field].is_null());
    body[field.unwrap()].to_string()
}

#[tokio::test]
async fn ageing_is_not_the_one_compaction_of_a_request_that_did_not_fit() {
    let too_long = || Reply::error(Error::new(ErrorKind::ContextWindow, "too long"));
    let model = Scripted::new([too_long(), "Done.".into(), too_long()]);
    let agent = test_agent(model)
        .with_ageing(
            Ageing::after_turns(2)
                .with_truncator(Truncator { max_reasoning_bytes: 50, ..Truncator::new() }),
        )
        .with_compactor(Truncator { keep_turns: 1, ..Truncator::new() });
    let first = finish_run(agent.run_from(history_of((0..5).flat_map(long_turn)), "go")).await;
    first.check_outcome(EndReason::Completed, 2);
    assert_eq!(rewrite_count(&first), 2);
    assert!(was_reactively_compacted(&first.outcome.history));
    // Ageing continues, and the note stays.
    let second = finish_run(agent.run_from(first.outcome.history.clone(), "more")).await;
    second.check_outcome(EndReason::ContextWindow, 1);
    assert!(was_reactively_compacted(&second.outcome.history));
}

#[tokio::test]
async fn usage_reported_after_a_batch_counts_and_usage_before_it_does_not() {
    let mut items: Vec<Item> = (0..4).flat_map(long_turn).collect();
    let sign = |item: Item| with_provider_data(item, "anthropic", json!({ "signature": "s" }));
    // Of these items, only signed reasoning is old enough to be shortened.
    items.splice(
        0..4,
        [sign(Item::reasoning("hm")), look_turn(0)[2].clone(), look_turn(0)[3].clone()],
    );
    let before = history_of(items);
    let ageing = Ageing::after_turns(3).with_interval(1);
    let model = Scripted::new([Reply::text("Done.").usage(token_usage(700, 7))]);
    let agent = test_agent(model.clone()).with_ageing(ageing).with_window(Window::new(1_000_000));
    let finished = finish_run(agent.run_from(before.clone(), "go")).await;
    assert_eq!(rewrite_count(&finished), 1);
    assert_eq!(model.requests()[0].context.len(), before.len() + 1, "no note comes in");
    let asked = estimate_tokens(&model.requests()[0].context, &BytesDiv4);
    assert_ne!(asked, estimate_tokens(&before, &BytesDiv4));
    assert_eq!(estimate_tokens(&finished.outcome.history, &BytesDiv4), 707);
}
