//! Compactors, and histories for them.

use std::sync::Arc;

use futures::executor::block_on;
use serde_json::Value;
use turnstream::context::{Compaction, Compactor, Summarizer};
use turnstream::item::{ProviderData, StopReason};
use turnstream::provider::{Reply, Scripted};
use turnstream::testing::Wire;
use turnstream::tool::ToolSpec;
use turnstream::{History, Item, Request, Usage};

use super::items::ends_with;
use super::tools::spec;
use super::wires::encode;

pub(crate) fn compact(compactor: &impl Compactor, history: &History) -> Option<Compaction> {
    block_on(compactor.compact(history)).unwrap()
}

pub(crate) fn summarizing(turns: usize) -> (Summarizer, Scripted) {
    let model = Scripted::from_fn(|_, n| Reply::text(&format!("summary {}", n + 1)));
    (Summarizer::new(model.clone()).with_keep_turns(turns), model)
}

pub(crate) fn call(id: &str, arguments: &str) -> Item {
    Item::tool_call(id, "look", arguments)
}

/// The item as the last of a completed turn.
pub(crate) fn ends(item: Item) -> Item {
    ends_with(StopReason::Stop, item, Usage::default())
}

pub(crate) fn signed(item: Item, provider: &str, value: Value) -> Item {
    let data = ProviderData { provider: provider.into(), model: "m".into(), value: value.into() };
    Item { provider_data: Some(Arc::new(data)), ..item }
}

/// The body of a request with this history, and with the tool `look`.
pub(crate) fn encoded(wire: Wire, history: &History) -> Value {
    let spec = ToolSpec { description: "d".into(), ..spec("look") };
    encode(wire, "m", &Request::new(history.clone()).with_tools([spec]))
}
