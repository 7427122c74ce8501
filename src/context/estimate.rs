//! How many tokens a history or a request has.

use crate::context::CountTokens;
use crate::context::compaction_record::turns_since_compaction;
use crate::item::{Content, History, Item, ItemKind, Part};
use crate::request::Request;

/// What an image or a file is guessed at: what Anthropic counts for an image that it has not made
/// smaller ("tokens = (width px * height px)/750", at most some 1.15 megapixels,
/// <https://docs.anthropic.com/en/docs/build-with-claude/vision>). A long PDF has more.
const TOKENS_PER_MEDIA: u64 = 1_600;
/// What stands around an item: its role, its ids, the marks of the wire.
const TOKENS_PER_ITEM_OVERHEAD: u64 = 4;

/// Estimates the tokens of a history: what the provider has counted in the newest completed turn, and
/// a guess for what came since.
///
/// A turn's usage counts all that was sent before it, the system prompt and the tools included, and
/// its answer. It does not count what the history has if that was made shorter since:
///
/// - The compactions of an agent leave a [record](crate::context::record_stale_usage) of the turns that stood
///   behind them; the usage of these is stale.
/// - In a history that was made shorter without a record, all usage is stale.
///
/// Both are known from the items alone, so that a history which was read back has the same estimate.
/// Where no usage counts, it is the [`count_tokens`] for everything, without the system prompt and the
/// tools: [`estimate_request_tokens`] has these.
///
/// ```
/// use turnstream::context::{BytesDiv4, estimate_tokens};
/// use turnstream::{Agent, Usage};
/// use turnstream::provider::{Reply, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let usage = Usage { input_tokens: 900, output_tokens: 20, ..Usage::default() };
/// let agent = Agent::new(Scripted::new([Reply::text("Hello!").usage(usage)]));
/// let mut history = agent.run("Hi").outcome().await.history;
/// assert_eq!(estimate_tokens(&history, &BytesDiv4), 920);
/// history.push("How are you doing?".into());
/// assert_eq!(estimate_tokens(&history, &BytesDiv4), 920 + 5 + 4);
/// # }
/// ```
pub fn estimate_tokens(history: &History, counter: &dyn CountTokens) -> u64 {
    estimate_from_usage(history, counter).unwrap_or_else(|| count_tokens(history, counter))
}

/// Estimates the tokens of a request as [`estimate_tokens`] does, of its context. Where no usage counts, the
/// guess includes the system prompt and the tools.
pub fn estimate_request_tokens(request: &Request, counter: &dyn CountTokens) -> u64 {
    estimate_from_usage(&request.context, counter)
        .unwrap_or_else(|| count_request_tokens(request, counter))
}

/// Guesses the tokens of all items, whatever a provider has counted.
///
/// Each is its text as `counter` has it, and 4 for what stands around it; an image or a file is
/// 1,600. What is void counts nothing. Signatures of providers are left out; their own items are
/// counted as their JSON.
pub fn count_tokens(history: &History, counter: &dyn CountTokens) -> u64 {
    saturating_sum(history.newest_first().map(|item| count_item_tokens(item, counter)))
}

/// Guesses the tokens of a request: its context, its system prompt, its tools.
pub(crate) fn count_request_tokens(request: &Request, counter: &dyn CountTokens) -> u64 {
    let system = [&request.system.stable, &request.system.volatile];
    // The model does not see deferred tools.
    let tools = request.tools.iter().filter(|tool| !tool.deferred).map(|tool| {
        let texts = [tool.name.as_str(), &tool.description, tool.parameters.as_str()];
        saturating_sum(texts.map(|text| counter.count(text))) + TOKENS_PER_ITEM_OVERHEAD
    });
    saturating_sum(system.map(|text| counter.count(text)))
        .saturating_add(saturating_sum(tools))
        .saturating_add(count_tokens(&request.context, counter))
}

pub(super) fn count_item_tokens(item: &Item, counter: &dyn CountTokens) -> u64 {
    if item.tombstone {
        return 0;
    }
    let inside = match &item.kind {
        ItemKind::System { text } | ItemKind::Text { text } | ItemKind::Reasoning { text } => {
            counter.count(text)
        }
        ItemKind::User { content } => count_content_tokens(content, counter),
        ItemKind::ToolCall(call) => {
            counter.count(&call.name).saturating_add(counter.count(&call.arguments))
        }
        ItemKind::ToolResult(result) => count_content_tokens(&result.content, counter),
        ItemKind::Other => {
            item.provider_data.as_ref().map_or(0, |data| counter.count(data.value.as_str()))
        }
    };
    inside.saturating_add(TOKENS_PER_ITEM_OVERHEAD)
}

fn count_content_tokens(content: &Content, counter: &dyn CountTokens) -> u64 {
    match content {
        Content::Text(text) => counter.count(text),
        Content::Parts(parts) => saturating_sum(parts.iter().map(|part| match part {
            Part::Text { text } => counter.count(text),
            Part::Image(_) | Part::File(_) => TOKENS_PER_MEDIA,
        })),
    }
}

/// The newest usage that counts, and a guess for what is behind it.
pub(super) fn estimate_from_usage(history: &History, counter: &dyn CountTokens) -> Option<u64> {
    let mut fresh = turns_since_compaction(history);
    let mut since = 0_u64;
    for item in history.newest_first() {
        if let Some(turn) = &item.turn {
            fresh = fresh.checked_sub(1)?;
            // Some servers count nothing.
            if turn.usage.total() > 0 && !item.tombstone {
                return Some(turn.usage.total().saturating_add(since));
            }
        }
        since = since.saturating_add(count_item_tokens(item, counter));
    }
    None
}

// A counter may say anything.
fn saturating_sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}
