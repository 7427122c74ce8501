//! Standing permissions: what a grant allows, in whom it holds, and when it stops.

mod grid;
mod holders;
mod rules;

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use serde_json::json;
use turnstream::Error;
use turnstream::event::{Event, GrantChange, ToolEvent};
use turnstream::item::Grant;
use turnstream::tool::{Tool, ToolList, ToolSource, ToolSpec};

/// The values of `n` with which calls have run, in order.
#[derive(Clone, Default)]
struct Executed(Arc<Mutex<Vec<u64>>>);

impl Executed {
    fn add(&self, n: u64) {
        self.0.lock().unwrap().push(n);
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// An idempotent tool that requires an approval, runs one call at a time, and records its argument
/// `n`.
fn post(description: &str, schema: serde_json::Value, executed: &Executed) -> Tool {
    let executed = executed.clone();
    let spec = ToolSpec::new("post", description, schema);
    let run = move |args: serde_json::Value, _cx| {
        executed.add(args["n"].as_u64().unwrap_or(u64::MAX));
        // Another call can start only after this one has been polled again.
        async {
            tokio::task::yield_now().await;
            "posted"
        }
    };
    Tool::raw(spec, run).unwrap().requires_approval().exclusive().idempotent()
}

fn any_object() -> serde_json::Value {
    json!({ "type": "object" })
}

/// A source that always lists the same tools.
struct Fixed(&'static str, Vec<Tool>);

impl ToolSource for Fixed {
    fn name(&self) -> &str {
        self.0
    }

    fn list_tools(&self) -> BoxFuture<'static, Result<ToolList, Error>> {
        future::ready(Ok(ToolList::new(self.1.clone()))).boxed()
    }
}

/// Returns the grants that the events add.
fn added(events: &[Event]) -> Vec<Grant> {
    let changes = events.iter().filter_map(Event::grant_change);
    changes
        .filter_map(|change| match change {
            GrantChange::Added(grant) => Some(*grant),
            GrantChange::Revoked { .. } => None,
        })
        .collect()
}

/// Returns the id of the grant with which each call has started, in the order of the starts.
fn grant_ids(events: &[Event]) -> Vec<Option<String>> {
    let starts = events.iter().filter_map(|event| match event.without_nesting() {
        Event::Tool(ToolEvent::Started { grant_id, .. }) => Some(grant_id.as_deref()),
        _ => None,
    });
    starts.map(|id| id.map(str::to_owned)).collect()
}
