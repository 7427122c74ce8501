//! A finished turn.

use serde::{Deserialize, Serialize};

use crate::item::{Item, ItemKind, ToolCall};
use crate::item::{StopReason, TurnInfo};
use crate::turn::logprobs::{self, TokenLogprob};
use crate::usage::{Billing, Usage};

/// A complete turn, that is, a turn that ended with a terminal marker from the provider.
///
/// A `Turn` is read-only, because the way it was created determines whether its
/// [`calls`](Self::calls) may run. A turn that is deserialized from JSON compares equal to the
/// original, but none of its calls may run.
///
/// ```
/// use turnstream::provider::{Provider, Reply, Scripted};
/// use turnstream::{History, Request, TurnStreamExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let model = Scripted::new([Reply::text("Let me look.").call_raw("c1", "look", "{}")]);
/// let turn = model.stream_turn(Request::new(History::empty("h"))).into_turn().await?;
/// assert_eq!(turn.text(), "Let me look.");
/// assert!(turn.calls().veto().is_none());
/// assert!(turn.calls().iter().map(|call| &*call.name).eq(["look"]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Serialize, Deserialize)]
pub struct Turn {
    pub(super) items: Vec<Item>,
    pub(super) stop_reason: StopReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) raw_stop_reason: Option<String>,
    #[serde(default)]
    pub(super) usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) response_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) billing: Option<Box<Billing>>,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "logprobs::deserialize_list"
    )]
    pub(super) logprobs: Vec<TokenLogprob>,
    /// Whether a builder created the turn. This field is never deserialized, so a file cannot forge
    /// its value.
    #[serde(skip)]
    pub(super) built: bool,
}

impl Turn {
    /// Returns the items that the model produced, in order. To add the items to a history, use
    /// [`to_history_items`](Self::to_history_items).
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Returns the reason why the model stopped. A loop continues if the turn has
    /// [calls](Self::calls), which this reason may only [veto](crate::turn::Calls::veto).
    pub fn stop_reason(&self) -> &StopReason {
        &self.stop_reason
    }

    /// Returns the stop reason exactly as the provider wrote it, for example for a log.
    pub fn raw_stop_reason(&self) -> Option<&str> {
        self.raw_stop_reason.as_deref()
    }

    /// Returns the turn's token usage, as reported by the provider. The usage of retracted attempts
    /// is not included, but is part of their [`Retracted`](crate::TurnEvent::Retracted) events.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the name of the model that answered, as reported by the provider.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the provider's id for the response, for example to look the response up in the
    /// provider's console. `None` if the provider reported no id.
    pub fn response_id(&self) -> Option<&str> {
        self.response_id.as_deref()
    }

    /// Returns what the provider reported about the turn's price beside the token usage: the
    /// service tier, if it was not the standard tier, and the calls of tools on the provider's
    /// servers.
    pub fn billing(&self) -> Option<&Billing> {
        self.billing.as_deref()
    }

    /// Returns the log probabilities of the answer's tokens, if the request
    /// [asked](crate::request::Options::logprobs) for them and the provider reported them. On the
    /// Responses wire, they are reported for each message of the turn, one after another.
    pub fn logprobs(&self) -> &[TokenLogprob] {
        &self.logprobs
    }

    /// Returns whether a turn builder of this process has built the turn.
    pub(crate) fn is_built(&self) -> bool {
        self.built
    }

    /// Returns the turn without its log probabilities.
    pub(crate) fn without_logprobs(&self) -> Self {
        Self { logprobs: Vec::new(), ..self.clone() }
    }

    /// Returns the model's text, which is the concatenation of all text items in the turn.
    pub fn text(&self) -> String {
        self.items.iter().filter_map(Item::as_text).collect()
    }

    /// Returns the model's answer, which is the turn's text without the items that the provider has
    /// marked as commentary. If every text item is commentary, the whole text is returned.
    pub fn answer(&self) -> String {
        let answer_items = self.items.iter().filter(|item| !item.commentary);
        let answer: String = answer_items.filter_map(Item::as_text).collect();
        if answer.is_empty() { self.text() } else { answer }
    }

    /// Returns a copy of the turn that has this text and no other text.
    pub(crate) fn with_answer(&self, text: &str) -> Self {
        let mut turn = self.clone();
        turn.items.retain(|item| item.as_text().is_none());
        turn.items.push(Item::text(text));
        turn
    }

    /// Returns the concatenated text of all reasoning that the provider discloses.
    pub fn reasoning(&self) -> String {
        let thought = |item: &Item| match &item.kind {
            ItemKind::Reasoning { text } => Some(text.clone()),
            _ => None,
        };
        self.items.iter().filter_map(thought).collect()
    }

    /// Returns the tool calls as plain data, for example to display them. To run the calls, pass
    /// the turn to a [`Toolkit`](crate::Toolkit). The calls of an
    /// [interrupted](StopReason::Interrupted) turn are void, and are not returned.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.items.iter().filter_map(valid_call)
    }

    /// Returns the items in the form in which they are added to a history. The last item contains
    /// the turn's metadata.
    pub fn to_history_items(&self) -> Vec<Item> {
        let mut items = self.items.clone();
        if let Some(last) = items.last_mut() {
            last.turn = Some(std::sync::Arc::new(TurnInfo {
                usage: self.usage,
                model: self.model.clone(),
                response_id: self.response_id.clone(),
                stop_reason: self.stop_reason.clone(),
            }));
        }
        items
    }
}

/// Returns the item's call, unless the item was interrupted.
pub(super) fn valid_call(item: &Item) -> Option<&ToolCall> {
    item.as_tool_call().filter(|_| !item.interrupted)
}

/// Compares the contents of two turns, but not whether their calls may run.
impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
            && self.stop_reason == other.stop_reason
            && self.raw_stop_reason == other.raw_stop_reason
            && self.usage == other.usage
            && self.model == other.model
            && self.response_id == other.response_id
            && self.billing == other.billing
            && self.logprobs == other.logprobs
    }
}

impl_debug!(
    Turn(it),
    items = it.items,
    stop_reason = it.stop_reason,
    usage = it.usage,
    model = it.model
);
