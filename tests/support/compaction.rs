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

use super::items::as_turn_end;
use super::tools::spec;
use super::wires::encode;

pub(crate) fn run_compactor(compactor: &impl Compactor, history: &History) -> Option<Compaction> {
    block_on(compactor.compact(history)).unwrap()
}

pub(crate) fn scripted_summarizer(turns: usize) -> (Summarizer, Scripted) {
    let model = Scripted::from_fn(|_, n| Reply::text(format!("summary {}", n + 1)));
    (Summarizer::new(model.clone()).with_keep_turns(turns), model)
}

pub(crate) fn look_call(id: &str, arguments: &str) -> Item {
    Item::tool_call(id, "look", arguments)
}

/// The item as the last one of a completed turn.
pub(crate) fn as_stop_turn_end(item: Item) -> Item {
    as_turn_end(StopReason::Stop, item, Usage::default())
}

pub(crate) fn with_provider_data(item: Item, provider: &str, value: Value) -> Item {
    let data = ProviderData { provider: provider.into(), model: "m".into(), value: value.into() };
    Item { provider_data: Some(Arc::new(data)), ..item }
}

/// The body of a request with this history, and with the tool `look`.
pub(crate) fn encode_history(wire: Wire, history: &History) -> Value {
    let spec = ToolSpec { description: "d".into(), ..spec("look") };
    encode(wire, "m", &Request::new(history.clone()).with_tools([spec]))
}
