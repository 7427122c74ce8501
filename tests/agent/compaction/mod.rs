//! Compaction of a history that would outgrow the model's window: its size, the compactor, and the
//! time of the compaction.

mod ageing;
mod automatic;
mod default_compactor;
mod estimate;
mod provider_counts;
mod ranges;
mod summarizer;
mod window;

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::hook::{self, Hook};
use turnstream::event::RewriteReason;
use turnstream::provider::Reply;
use turnstream::tool::Tool;
use turnstream::{ErrorKind, Event, Journal, Outcome, Run, Usage};

use turnstream_test_support::runs::push_event;
use turnstream_test_support::tools::spec;

/// A tool `look` whose results have this number of bytes.
pub(crate) fn look_tool(bytes: usize) -> Tool {
    Tool::raw(spec("look"), move |_, _| async move { "x".repeat(bytes) }).unwrap()
}

/// A turn that calls `look` and has this usage.
pub(crate) fn look_call_reply(usage: Usage) -> Reply {
    Reply::text("Let me look.").call("look", json!({})).usage(usage)
}

/// A hook that records failures.
fn failure_log_hook() -> (Arc<Mutex<Vec<ErrorKind>>>, impl Hook + 'static) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    (seen, hook::on_failure(move |_, error| noted.lock().unwrap().push(error.kind())))
}

/// Drives a run to its end, and returns the events and the outcome. Checks that the fold of the
/// events has the run's history and usage.
async fn run_to_end(mut run: Run) -> (Vec<Event>, Outcome) {
    let journal = Journal::new(run.history());
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        push_event(&mut events, event);
        journal.observe(events.last().unwrap());
        assert!(run.history().settled().is_settled());
    }
    let outcome = events.last().and_then(Event::outcome).unwrap().clone();
    assert!(journal.history() == outcome.history, "the events fold to the history");
    assert_eq!(journal.usage(), outcome.usage);
    (events, outcome)
}

/// The order of compactions and requests: `c` is a compaction, `0` one without effect, `t` a
/// request.
fn compaction_order(events: &[Event]) -> String {
    let sign = |event: &Event| match event {
        Event::Rewritten { why: RewriteReason::Compacted, from, to, items, .. } => {
            Some(if from == to && items.is_empty() { '0' } else { 'c' })
        }
        Event::TurnStarted { .. } => Some('t'),
        _ => None,
    };
    events.iter().filter_map(sign).collect()
}
