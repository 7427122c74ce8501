//! Each test names the prices that it expects, per million tokens. The vendors publish them on these
//! pages:
//!
//! - Anthropic: <https://platform.claude.com/docs/en/about-claude/pricing>
//! - OpenAI: <https://developers.openai.com/api/docs/pricing>, and for the tier `priority` also
//!   <https://openai.com/api-priority-processing/>, and for gpt-5.4
//!   <https://developers.openai.com/api/docs/models/gpt-5.4>
//! - Google: <https://ai.google.dev/gemini-api/docs/pricing>
//!
//! The prices in quotation marks were compared with the pages. The others agree with the references
//! of the bundled data, and were not compared with a page.

use std::time::SystemTime;

use turnstream::agent::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::usage::{Billing, Cost, PriceSource, PricedRequest, Usage};
use turnstream_prices::BundledPrices;

use crate::support::{
    NOVEMBER_30_2026, agent_at, reply, run_one, tokens, with_kinds, with_tier, with_tool_calls,
};

const FEBRUARY_20_2026: u64 = 1_771_545_600_000;
const JUNE_1_2025: u64 = 1_748_736_000_000;
const JULY_1_2025: u64 = 1_751_328_000_000;

/// Checks the exact cost of a run, in millionths of a dollar.
#[track_caller]
fn costs(time_ms: u64, model: &'static str, reply: Reply, expected_micros: u64) {
    let outcome = run_one(time_ms, model, reply);
    assert_eq!(*outcome.cost_gaps, [], "{model}");
    assert_eq!(outcome.cost, Some(expected_micros), "{model}");
}

/// "Claude Opus 4.6 | $5 | $6.25 (5m cache writes) | $10 (1h) | $0.50 (cache hits) | $25", for
/// prompts of any length since 2026-03-13.
#[test]
fn opus_reads_and_writes_a_cache_in_a_long_prompt() {
    let usage = [300_000, 200_000, 40_000, 0, 2_000];
    let expected = 60_000 * 5 + 200_000 / 2 + 40_000 * 25 / 4 + 2_000 * 25;
    assert_eq!(expected, 700_000, "70 cents");
    costs(NOVEMBER_30_2026, "claude-opus-4-6", reply(usage), expected);
}

/// Until 2026-03-13, a prompt of more than 200,000 tokens made every part of the request more
/// expensive: $10 for input and $37.50 for output, and the multipliers of the cache apply to $10.
#[test]
fn the_same_request_cost_more_before_the_price_of_long_prompts_was_dropped() {
    let usage = [300_000, 200_000, 40_000, 0, 2_000];
    let expected = 60_000 * 10 + 200_000 + 40_000 * 25 / 2 + 2_000 * 75 / 2;
    assert_eq!(expected, 1_375_000);
    costs(FEBRUARY_20_2026, "claude-opus-4-6", reply(usage), expected);
}

/// "Claude Haiku 4.5 | $1 | $1.25 (5m) | $2 (1h) | $0.10 | $5".
#[test]
fn haiku_writes_a_cache_for_five_minutes_and_for_an_hour() {
    let usage = [100_000, 30_000, 60_000, 20_000, 4_000];
    let expected = 10_000 + 30_000 / 10 + 40_000 * 5 / 4 + 20_000 * 2 + 4_000 * 5;
    assert_eq!(expected, 123_000);
    costs(NOVEMBER_30_2026, "claude-haiku-4-5-20251001", reply(usage), expected);
}

/// Claude Haiku 5.5: $0.10 and $0.50 for prompts of up to 100,000 tokens, $0.50 and $2.50 for longer
/// ones. The length of the prompt includes the tokens of the cache.
#[test]
fn cached_tokens_count_toward_the_length_of_the_prompt() {
    let short = [100_000, 90_000, 10_000, 10_000, 1_000];
    let expected = 90_000 / 100 + 10_000 / 5 + 1_000 / 2;
    assert_eq!(expected, 3_400);
    costs(NOVEMBER_30_2026, "claude-haiku-5-5", reply(short), expected);
    let long = [100_001, 90_000, 10_001, 10_001, 1_000];
    let expected = 90_000 / 20 + 10_001 + 1_000 * 5 / 2;
    costs(NOVEMBER_30_2026, "claude-haiku-5-5", reply(long), expected);
}

/// "Claude Sonnet 4.6 | $3 | … | $15", and "Web search is available on the Claude API for $10 per 1,000
/// searches". Fetching a page costs nothing.
#[test]
fn sonnet_searches_the_web() {
    let mut billing = with_tool_calls(Billing::WEB_SEARCH, 3);
    billing.set_server_tool_calls("web_fetch", 2);
    let expected = 20_000 * 3 + 1_000 * 15 + 3 * 10_000;
    assert_eq!(expected, 105_000);
    let reply = reply([20_000, 0, 0, 0, 1_000]).billing(billing);
    costs(NOVEMBER_30_2026, "claude-sonnet-4-6", reply, expected);
}

/// gpt-5: $1.25, $0.125 (cached input) and $10.
#[test]
fn gpt_5_reads_a_cache() {
    let expected = 20_000 * 5 / 4 + 80_000 / 8 + 5_000 * 10;
    assert_eq!(expected, 85_000);
    costs(NOVEMBER_30_2026, "gpt-5-2025-08-07", reply([100_000, 80_000, 0, 0, 5_000]), expected);
}

/// "GPT-5 | $2.50 | $0.250 | $20.00", on the page about priority processing.
#[test]
fn gpt_5_answers_with_priority() {
    let expected = 20_000 * 5 / 2 + 80_000 / 4 + 5_000 * 20;
    assert_eq!(expected, 170_000);
    let reply = reply([100_000, 80_000, 0, 0, 5_000]).billing(with_tier("priority"));
    costs(NOVEMBER_30_2026, "gpt-5", reply, expected);
}

/// gpt-5-mini with flex processing: $0.125 for input, $0.0125 for cached input and $1 for output.
#[test]
fn gpt_5_mini_answers_in_the_flex_tier() {
    let expected = 80_000 / 8 + 120_000 / 80 + 10_000;
    assert_eq!(expected, 21_500);
    let reply = reply([200_000, 120_000, 0, 0, 10_000]).billing(with_tier("flex"));
    costs(NOVEMBER_30_2026, "gpt-5-mini", reply, expected);
}

/// "GPT-5.4 | Input $2.50 | Cached input $0.25 | Output $15.00", and "prompts with >272K input tokens
/// are priced at 2x input and 1.5x output", on the page about the model. Together, the two requests
/// have twice as many tokens as the threshold.
#[test]
fn each_request_of_a_run_is_priced_by_itself() {
    let model = Scripted::new([
        Reply::new().call("t", serde_json::json!({})).usage(tokens_of(272_000)),
        Reply::text("done").usage(tokens_of(272_001)),
    ]);
    let tool = Tool::raw(
        turnstream::tool::ToolSpec::new(
            "t",
            "Does nothing",
            serde_json::json!({ "type": "object" }),
        ),
        |_, _| async { "fine" },
    );
    let agent: Agent = agent_at(NOVEMBER_30_2026, model.with_model("gpt-5.4"));
    let outcome = futures::executor::block_on(agent.with_tool(tool.unwrap()).run("go").outcome());
    let first = 272_000 * 5 / 2 + 1_000 * 15;
    let second = 272_001 * 5 + 1_000 * 45 / 2;
    assert_eq!(first + second, 2_077_505);
    assert_eq!((outcome.turns, outcome.cost), (2, Some(first + second)));
    assert_eq!(*outcome.cost_gaps, []);
}

fn tokens_of(input: u64) -> turnstream::Usage {
    crate::support::tokens([input, 0, 0, 0, 1_000])
}

/// gemini-2.5-pro, for prompts of more than 200,000 tokens: $2.50 for input, $15 for output and $0.25
/// for cached input, and $35 for 1,000 prompts with grounding: four searches for one prompt are
/// charged once.
#[test]
fn gemini_grounds_a_long_prompt() {
    let expected = 50_000 * 5 / 2 + 200_000 / 4 + 3_000 * 15 + 35_000;
    assert_eq!(expected, 255_000);
    let reply =
        reply([250_000, 200_000, 0, 0, 3_000]).billing(with_tool_calls(Billing::WEB_SEARCH, 4));
    costs(NOVEMBER_30_2026, "gemini-2.5-pro", reply, expected);
}

/// "Gemini 2.5 Flash | $0.30 (text / image / video), $1.00 (audio) | $2.50 | $0.03 (text / image /
/// video), $0.1 (audio) (context caching)".
#[test]
fn gemini_hears_audio_that_is_partly_cached() {
    let expected = 20_000 * 3 / 10 + 30_000 + 40_000 * 3 / 100 + 10_000 / 10 + 1_000 * 5 / 2;
    let audio = with_kinds(&[("input_audio", 40_000), ("cache_read_audio", 10_000)]);
    let reply = reply([100_000, 50_000, 0, 0, 1_000]).billing(audio);
    costs(NOVEMBER_30_2026, "gemini-2.5-flash", reply, expected);
}

/// gemini-2.5-flash-image: $0.30 for input, $2.50 for text and $30 for images in the output.
#[test]
fn gemini_draws_an_image() {
    let expected = 1_000 * 3 / 10 + 100 * 5 / 2 + 1_290 * 30;
    let reply = reply([1_000, 0, 0, 0, 1_390]).billing(with_kinds(&[("output_image", 1_290)]));
    costs(NOVEMBER_30_2026, "gemini-2.5-flash-image", reply, expected);
}

/// gpt-audio: $2.50 for text and $32 for audio in the input, $10 and $64 in the output.
#[test]
fn gpt_audio_hears_and_speaks() {
    let expected = 600 * 5 / 2 + 400 * 32 + 100 * 10 + 200 * 64;
    let audio = with_kinds(&[("input_audio", 400), ("output_audio", 200)]);
    costs(NOVEMBER_30_2026, "gpt-audio", reply([1_000, 0, 0, 0, 300]).billing(audio), expected);
}

/// Claude Opus 4.6 in a batch: half of $5 and $25.
#[test]
fn opus_answers_in_a_batch() {
    let reply = reply([100_000, 0, 0, 0, 2_000]).billing(with_tier("batch"));
    costs(NOVEMBER_30_2026, "claude-opus-4-6", reply, 100_000 * 5 / 2 + 2_000 * 25 / 2);
}

/// sonar-deep-research: $2 for input, $8 for output, $3 for reasoning, $2 for citations and $5 for
/// 1,000 searches.
#[test]
fn sonar_researches() {
    let mut billing = with_kinds(&[("citation", 19_000)]);
    billing.set_server_tool_calls(Billing::WEB_SEARCH, 18);
    let usage =
        Usage { reasoning_tokens: 74_000, ..tokens([100, 0, 0, 0, 7_000 + 74_000 + 19_000]) };
    let expected = 100 * 2 + 7_000 * 8 + 74_000 * 3 + 19_000 * 2 + 18 * 5_000;
    let prices = BundledPrices::new().of_provider("perplexity").unwrap();
    let request = PricedRequest::new("sonar-deep-research", usage, SystemTime::UNIX_EPOCH);
    let cost = prices.cost(&request.with_billing(&billing));
    assert_eq!(cost, Some(Cost::exact(expected)));
}

/// o3: $2 for input and $8 for output since 2025-06-10, $10 and $40 before.
#[test]
fn the_date_of_a_request_selects_the_price() {
    let usage = [10_000, 0, 0, 0, 1_000];
    costs(JUNE_1_2025, "o3", reply(usage), 10_000 * 10 + 1_000 * 40);
    costs(JULY_1_2025, "o3", reply(usage), 10_000 * 2 + 1_000 * 8);
}
