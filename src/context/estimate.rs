//! Token estimates for histories and requests.

use crate::context::CountTokens;
use crate::context::compaction_record::turns_since_compaction;
use crate::item::{Content, History, Item, ItemKind, Part};
use crate::request::Request;
use crate::usage::Usage;

/// The assumed number of tokens for an image or a file. Anthropic counts at most about 1,600 tokens
/// for an image that is not scaled down ("tokens = (width px * height px)/750", at most about 1.15
/// megapixels, <https://docs.anthropic.com/en/docs/build-with-claude/vision>). A long PDF uses more
/// tokens.
const TOKENS_PER_MEDIA: u64 = 1_600;
/// The assumed number of tokens for the overhead of an item: its role and ids, and the wire
/// format's markup.
const TOKENS_PER_ITEM_OVERHEAD: u64 = 4;

/// Estimates the number of tokens in a history. The estimate is the usage that the provider
/// reported for the newest completed turn, plus an estimate for the items after that turn.
///
/// A turn's usage covers its answer and everything that was sent in its request, including the
/// system prompt and the tools. The usage becomes stale when the history is shortened:
///
/// - When an agent compacts a history, a [record](crate::context::record_stale_usage) states how
///   many completed turns followed the compacted items, and therefore for which turns the reported
///   usage is stale.
/// - If a history was compacted but contains no such record, all usage is stale.
///
/// Whether usage is stale depends only on the items, so the estimate does not change when a history
/// is stored and loaded again. If all usage is stale or missing, the estimate is the result of
/// [`count_tokens`], which does not include the system prompt and the tools. To include the system
/// prompt and the tools, use [`estimate_request_tokens`].
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

/// Estimates the number of tokens in a request. The request's context is estimated as in
/// [`estimate_tokens`]. If all usage is stale or missing, the estimate also includes the system
/// prompt and the tools.
pub fn estimate_request_tokens(request: &Request, counter: &dyn CountTokens) -> u64 {
    estimate_from_usage(&request.context, counter)
        .unwrap_or_else(|| count_request_tokens(request, counter))
}

/// Estimates the number of tokens in all items, ignoring the usage that providers have reported.
///
/// For each item, `counter` counts the tokens in its text, and 4 tokens are added for overhead. An
/// image or a file counts as 1,600 tokens, and an item marked as a tombstone counts as 0. Provider
/// signatures are ignored. For a provider-specific item, the tokens in its JSON are counted.
pub fn count_tokens(history: &History, counter: &dyn CountTokens) -> u64 {
    saturating_sum(history.newest_first().map(|item| count_item_tokens(item, counter)))
}

/// Estimates the number of tokens in a request's context, system prompt and tools, ignoring the
/// usage that providers have reported.
pub(crate) fn count_request_tokens(request: &Request, counter: &dyn CountTokens) -> u64 {
    let system = [&*request.system.stable, &request.system.volatile];
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

/// Returns whether a history contains an image or a file that no valid usage covers, so that its
/// number of tokens can only be guessed.
pub(crate) fn has_uncounted_media(history: &History) -> bool {
    let mut fresh = turns_since_compaction(history);
    for item in history.newest_first() {
        if let Some(turn) = &item.turn {
            if fresh > 0 && is_reported(&turn.usage) && !item.tombstone {
                return false;
            }
            // A tombstoned turn counts as a turn, although its usage is not valid.
            fresh = fresh.saturating_sub(1);
        }
        if item.tombstone {
            continue;
        }
        let content = item.as_user().or_else(|| item.as_tool_result().map(|it| &it.content));
        if let Some(Content::Parts(parts)) = content
            && parts.iter().any(|part| matches!(part, Part::Image(_) | Part::File(_)))
        {
            return true;
        }
    }
    false
}

/// Returns the newest valid usage, plus an estimate for the items after the turn with that usage.
/// Returns `None` if no usage is valid.
pub(super) fn estimate_from_usage(history: &History, counter: &dyn CountTokens) -> Option<u64> {
    let mut fresh = turns_since_compaction(history);
    let mut since = 0_u64;
    for item in history.newest_first() {
        if let Some(turn) = &item.turn {
            fresh = fresh.checked_sub(1)?;
            if is_reported(&turn.usage) && !item.tombstone {
                return Some(turn.usage.total().saturating_add(since));
            }
        }
        since = since.saturating_add(count_item_tokens(item, counter));
    }
    None
}

/// Returns whether a server reported the usage of a turn. Some servers do not report usage, and
/// that of an interrupted turn may be an estimate.
fn is_reported(usage: &Usage) -> bool {
    usage.total() > 0 && usage.estimated_tokens == 0
}

// Adds up the counts, saturating instead of overflowing, because a counter may return any number.
fn saturating_sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}
