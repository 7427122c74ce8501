//! Runs whose requests are sent at a given time.

use turnstream::agent::{Agent, Budget};
use turnstream::event::Outcome;
use turnstream::provider::{Reply, Scripted};
use turnstream::usage::{Billing, Usage};
use turnstream_test_support::sent_at::SentAt;

/// Milliseconds since 1970 at which the tests' requests are sent, unless a test says otherwise.
pub(crate) const NOVEMBER_30_2026: u64 = 1_795_996_800_000;

/// An agent whose requests are sent at the given time, with the bundled prices.
pub(crate) fn agent_at(time_ms: u64, model: Scripted) -> Agent {
    Agent::new(model)
        .with_budget(Budget::new().with_prices(turnstream_prices::prices()))
        .with_world(move |_, _| SentAt(time_ms))
}

/// Runs one request of a model.
pub(crate) fn run_one(time_ms: u64, model: &'static str, reply: Reply) -> Outcome {
    let model = Scripted::new([reply]).with_model(model);
    futures::executor::block_on(agent_at(time_ms, model).run("go").outcome())
}

/// The usage of a request: all input tokens, those read from a cache, those written to a cache, those
/// of them written for an hour, and the output tokens.
pub(crate) fn tokens([input, read, written, long, output]: [u64; 5]) -> Usage {
    Usage {
        input_tokens: input,
        cache_read_input_tokens: read,
        cache_write_input_tokens: written,
        cache_write_1h_input_tokens: long,
        output_tokens: output,
        ..Usage::default()
    }
}

pub(crate) fn reply(usage: [u64; 5]) -> Reply {
    Reply::text("done").usage(tokens(usage))
}

pub(crate) fn with_tier(tier: &str) -> Billing {
    let mut billing = Billing::default();
    billing.set_service_tier(tier);
    billing
}

pub(crate) fn with_kinds(kinds: &[(&str, u64)]) -> Billing {
    let mut billing = Billing::default();
    for (kind, tokens) in kinds {
        billing.set_tokens_of_kind(kind, *tokens);
    }
    billing
}

pub(crate) fn with_tool_calls(tool: &str, calls: u64) -> Billing {
    let mut billing = Billing::default();
    billing.set_server_tool_calls(tool, calls);
    billing
}
