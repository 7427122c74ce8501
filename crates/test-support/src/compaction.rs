//! Compactors, and histories for them.

use std::sync::Arc;

use futures::executor::block_on;
use serde_json::Value;
use turnstream::context::{Compaction, Compactor, Summarizer};
use turnstream::item::{ProviderData, StopReason};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::ToolSpec;
use turnstream::{History, Item, Request, Usage};
use turnstream_testing::Wire;

use crate::items::as_turn_end;
use crate::tools::spec;
use crate::wires::encode;

pub fn run_compactor(compactor: &impl Compactor, history: &History) -> Option<Compaction> {
    block_on(compactor.compact(history)).unwrap()
}

pub fn scripted_summarizer(turns: usize) -> (Summarizer, Scripted) {
    let model = Scripted::from_fn(|_, n| Reply::text(format!("summary {}", n + 1)));
    (Summarizer::new(model.clone()).with_keep_turns(turns), model)
}

pub fn look_call(id: &str, arguments: &str) -> Item {
    Item::tool_call(id, "look", arguments)
}

/// The item as the last one of a completed turn.
pub fn as_stop_turn_end(item: Item) -> Item {
    as_turn_end(StopReason::Stop, item, Usage::default())
}

pub fn with_provider_data(item: Item, provider: &str, value: Value) -> Item {
    let data = ProviderData { provider: provider.into(), model: "m".into(), value: value.into() };
    Item { provider_data: Some(Arc::new(data)), ..item }
}

/// The body of a request with this history, and with the tool `look`.
pub fn encode_history(wire: Wire, history: &History) -> Value {
    let spec = ToolSpec { description: "d".into(), ..spec("look") };
    encode(wire, "m", &Request::new(history.clone()).with_tools([spec]))
}
