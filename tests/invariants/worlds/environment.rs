//! The environment of a world: its agent, its model with a wire that can break, its tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use turnstream::agent::Limits;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::context::{Compaction, compactor_fn};
use turnstream::env::CountingIds;
use turnstream::provider::{Provider, Scripted};
use turnstream::tool::{IntoToolOutput, ToolContext};
use turnstream::{
    Agent, Error, ErrorKind, History, Item, Request, Tool, Toolkit, TurnStream, TurnStreamExt,
};

use super::script::{CallFate, Script};
use super::world::{Disturbance, Fault, FaultKind};
use turnstream_test_support::replays;
use turnstream_test_support::tools::{Executions, spec};

/// The environment of the worlds on one thread: the clock, which only they advance, and the tools.
pub(crate) struct Environment {
    pub(crate) executions: Arc<Executions>,
    toolkit: Toolkit,
}

impl Environment {
    pub(crate) fn new() -> Self {
        let tools = Arc::new(Executions::default());
        Self { toolkit: fate_toolkit(&tools), executions: tools }
    }

    /// The agent and its model. Its limits are the oracle's.
    pub(crate) fn agent(&self, script: &Script, what: Disturbance) -> (Agent, Scripted) {
        self.executions.clear_executed();
        let mut replies = script.replies();
        let mut limits = super::oracle::limits_for(script);
        let mut fault = None;
        if let Disturbance::Wire(wire) = what {
            fault = Some(wire);
            if wire.is_retried {
                replies.insert(wire.turn, script.0[wire.turn].reply());
                let max_turns = limits.max_turns.map(|turns| turns + 1);
                limits = Limits { max_turn_retries: 1, max_turns, ..limits };
            }
        }
        let model = Scripted::new(replies);
        let denied = hook::before_tool(|_, call| async move {
            match call.name == CallFate::Denied.tool_name() {
                true => CallDecision::Deny("no".into()),
                false => CallDecision::Allow,
            }
        });
        let first = |_: &History| Ok(Some(Compaction::new(0, 1, vec![Item::user("in short")])));
        let line =
            FaultyProvider { model: model.clone(), fault, request_count: AtomicUsize::new(0) };
        let agent = replays::record_one_in(50, Agent::new(line))
            .with_toolkit(self.toolkit.clone())
            .with_limits(limits)
            .with_hook(denied)
            .with_compactor(compactor_fn(first))
            .with_ids(CountingIds::new("id"));
        (agent, model)
    }
}

/// The history that a run starts with: a completed exchange.
pub(crate) fn prior_history() -> History {
    History::from_items("h", [Item::user("before"), Item::text("said before")])
}

/// A model whose wire can break.
struct FaultyProvider {
    model: Scripted,
    fault: Option<Fault>,
    request_count: AtomicUsize,
}

impl Provider for FaultyProvider {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let turn = self.request_count.fetch_add(1, Ordering::Relaxed);
        let history = request.history.clone();
        let events = self.model.stream_turn(request);
        let Some(fault) = self.fault.filter(|fault| fault.turn == turn) else { return events };
        let end = match fault.kind {
            FaultKind::Cut => None,
            FaultKind::Error => Some(Err(Error::new(ErrorKind::Overloaded, "busy"))),
        };
        // The stream breaks in the middle of the event after these.
        let whole =
            events.take(fault.after_events + 1).enumerate().filter_map(move |(at, event)| {
                futures::future::ready((at < fault.after_events).then_some(event))
            });
        whole.chain(stream::iter(end)).seal(&history)
    }

    fn model(&self) -> &str {
        self.model.model()
    }
}

fn fate_toolkit(tools: &Arc<Executions>) -> Toolkit {
    Toolkit::new([
        fate_tool(tools, CallFate::Ok, async || "fine"),
        fate_tool(tools, CallFate::PendingOnce, async || {
            tokio::task::yield_now().await;
            "late"
        }),
        fate_tool(tools, CallFate::Error, async || Err::<&str, _>("broken")),
        fate_tool(tools, CallFate::Timeout, std::future::pending::<&str>)
            .with_timeout(Duration::from_secs(1)),
        fate_tool(tools, CallFate::Panic, async || -> &str {
            tokio::task::yield_now().await;
            std::panic::resume_unwind(Box::new("boom"))
        }),
        fate_tool(tools, CallFate::Denied, async || "never"),
        fate_tool(tools, CallFate::NeedsApproval, async || "allowed").requires_approval(),
        fate_tool(tools, CallFate::Pollable, async || "not yet").pollable(),
    ])
}

fn fate_tool<F, Fut, R>(tools: &Arc<Executions>, fate: CallFate, run: F) -> Tool
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoToolOutput + 'static,
{
    let tools = Arc::clone(tools);
    let run = move |_, cx: ToolContext| {
        let running = tools.enter(&cx);
        let running_tool = run();
        async move {
            let _running = running;
            running_tool.await
        }
    };
    Tool::raw(spec(fate.tool_name()), run).expect("the spec of a tool")
}
