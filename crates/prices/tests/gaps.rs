//! Everything that a cost does not include is named once.

use turnstream::ErrorKind;
use turnstream::agent::{Agent, Budget};
use turnstream::event::{EndReason, Outcome};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::usage::{Billing, CostGap, CostGapKind};

use crate::support::{
    NOVEMBER_30_2026, agent_at, reply, run_one, with_kinds, with_tier, with_tool_calls,
};

fn gaps(outcome: &Outcome) -> Vec<(CostGapKind, &str, Option<&str>)> {
    let gaps = outcome.cost_gaps.iter();
    gaps.map(|gap: &CostGap| (gap.kind, gap.model.as_str(), gap.detail.as_deref())).collect()
}

#[test]
fn a_model_in_no_table_is_named_once_and_makes_the_cost_unknown() {
    let call =
        || Reply::new().call("t", serde_json::json!({})).usage(crate::support::tokens([9; 5]));
    let model = Scripted::new([call(), call(), reply([9; 5])]).with_model("my-local-model");
    let spec = ToolSpec::new("t", "Does nothing", serde_json::json!({ "type": "object" }));
    let tool = Tool::raw(spec, |_, _| async { "fine" }).unwrap();
    let agent = agent_at(NOVEMBER_30_2026, model).with_tool(tool);
    let outcome = futures::executor::block_on(agent.run("go").outcome());
    assert_eq!((outcome.turns, outcome.cost), (3, None));
    assert_eq!(gaps(&outcome), [(CostGapKind::UnknownModel, "my-local-model", None)]);
}

#[test]
fn with_a_cost_limit_a_model_in_no_table_is_refused_before_the_request() {
    let model = Scripted::new(["done"]).with_model("my-local-model");
    let budget = Budget::new().with_cost_limit(1.0, turnstream_prices::prices());
    let run = Agent::new(model.clone()).with_budget(budget).run("go");
    let outcome = futures::executor::block_on(run.outcome());
    let error = outcome.error.unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(error.to_string(), "no price for the model `my-local-model`");
    assert_eq!(model.requests().len(), 0);
}

#[test]
fn a_cost_limit_ends_a_run_without_a_table_of_ones_own() {
    let call = Reply::new()
        .call("t", serde_json::json!({}))
        .usage(crate::support::tokens([10_000, 0, 0, 0, 0]));
    let model = Scripted::from_fn(move |_, _| call.clone()).with_model("claude-opus-4-6");
    let spec = ToolSpec::new("t", "Does nothing", serde_json::json!({ "type": "object" }));
    let tool = Tool::raw(spec, |_, _| async { "fine" }).unwrap();
    let budget = Budget::new().with_cost_limit(0.12, turnstream_prices::prices());
    let run = Agent::new(model).with_tool(tool).with_budget(budget).run("go");
    let outcome = futures::executor::block_on(run.outcome());
    // Each request costs 5 cents.
    assert_eq!((outcome.reason, outcome.cost), (EndReason::Budget, Some(150_000)));
}

#[test]
fn a_tier_without_a_published_price_is_named() {
    let reply = reply([10_000, 0, 0, 0, 0]).billing(with_tier("priority"));
    let outcome = run_one(NOVEMBER_30_2026, "claude-opus-4-6", reply);
    assert_eq!(outcome.cost, Some(50_000), "the standard price");
    let expected = [(CostGapKind::ServiceTier, "claude-opus-4-6", Some("priority"))];
    assert_eq!(gaps(&outcome), expected);
}

#[test]
fn the_fees_of_a_tool_without_a_published_price_are_named() {
    let reply = reply([10_000, 0, 0, 0, 0]).billing(with_tool_calls(Billing::CODE_EXECUTION, 1));
    let outcome = run_one(NOVEMBER_30_2026, "gpt-5", reply);
    assert_eq!(outcome.cost, Some(12_500), "a lower bound");
    let expected = [(CostGapKind::ServerTool, "gpt-5", Some("code_execution"))];
    assert_eq!(gaps(&outcome), expected);
}

#[test]
fn long_cache_writes_of_a_model_without_a_price_for_them_are_named() {
    let outcome = run_one(NOVEMBER_30_2026, "gpt-5", reply([10_000, 0, 10_000, 10_000, 0]));
    assert_eq!(outcome.cost, Some(12_500));
    assert_eq!(gaps(&outcome), [(CostGapKind::LongCacheWrites, "gpt-5", None)]);
}

#[test]
fn audio_without_a_published_price_is_charged_like_text_and_named() {
    let audio = with_kinds(&[("input_audio", 4_000), ("output_audio", 500)]);
    let reply = reply([10_000, 0, 0, 0, 1_000]).billing(audio);
    let outcome = run_one(NOVEMBER_30_2026, "gpt-4o-audio-preview", reply);
    assert_eq!(outcome.cost, Some(25_000 + 10_000));
    let named = |kind| (CostGapKind::TokenKind, "gpt-4o-audio-preview", Some(kind));
    assert_eq!(gaps(&outcome), [named("input_audio"), named("output_audio")]);
}

#[test]
fn audio_that_may_have_been_read_from_a_cache_is_named() {
    let audio = with_kinds(&[("input_audio", 3_000)]);
    let reply = reply([10_000, 9_000, 0, 0, 0]).billing(audio);
    let outcome = run_one(NOVEMBER_30_2026, "gemini-2.5-flash", reply);
    assert_eq!(outcome.cost, Some(1_000 + 9_000 * 3 / 100), "1,000 tokens of audio");
    let expected = [(CostGapKind::TokenKind, "gemini-2.5-flash", Some("input_audio"))];
    assert_eq!(gaps(&outcome), expected);
}

#[test]
fn the_fees_for_storing_a_cache_are_named() {
    let stored = with_kinds(&[("cache_storage", 9_000)]);
    let reply = reply([10_000, 9_000, 0, 0, 0]).billing(stored);
    let outcome = run_one(NOVEMBER_30_2026, "gemini-2.5-flash", reply);
    assert_eq!(outcome.cost, Some(300 + 270));
    assert_eq!(gaps(&outcome), [(CostGapKind::CacheStorage, "gemini-2.5-flash", None)]);
}

#[test]
fn counts_that_contradict_each_other_are_still_charged() {
    let outcome = run_one(NOVEMBER_30_2026, "claude-opus-4-6", reply([100, 200, 300, 400, 10]));
    assert_eq!(outcome.cost, Some(50 + 250), "the input tokens are all read from the cache");
}
