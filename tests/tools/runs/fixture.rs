//! Calls, the run of a toolkit over them, and a policy with prepared answers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::StreamExt;
use serde_json::json;
use turnstream::event::ToolEvent;
use turnstream::item::{PendingCall, ToolCall, ToolResult};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::TurnStreamExt;
use turnstream::tool::{Permission, Tool, ToolPolicy, ToolRun, ToolSpec, Verdict};
use turnstream::{Error, ErrorKind, History, Request, Toolkit, Turn};

pub(crate) fn spec(name: &str) -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": { "ms": { "type": "integer" } },
        "additionalProperties": false,
    });
    ToolSpec::new(name, "", parameters)
}

/// A tool that sleeps for the requested number of milliseconds, and returns its arguments.
pub(crate) fn sleep_tool(name: &str) -> Tool {
    Tool::raw(spec(name), |args, _| async move {
        tokio::time::sleep(Duration::from_millis(args["ms"].as_u64().unwrap_or(0))).await;
        args
    })
    .unwrap()
}

pub(crate) async fn turn_from_reply(reply: Reply) -> Arc<Turn> {
    let request = Request::new(History::empty("h"));
    Scripted::new([reply]).stream_turn(request).into_turn().await.unwrap()
}

/// A turn with a call of each of these tools, with their names as ids.
pub(crate) async fn turn_with_calls(names: &[&str]) -> Arc<Turn> {
    turn_from_reply(names.iter().fold(Reply::new(), |reply, name| reply.call_raw(name, name, "{}")))
        .await
}

pub(crate) fn start_run(kit: &Toolkit, turn: &Arc<Turn>) -> ToolRun {
    kit.run(&History::empty("h"), turn)
}

/// An event in a few words.
pub(crate) fn summarize_event(event: &ToolEvent) -> String {
    match event {
        ToolEvent::ApprovalRequested(call) => format!("ask {} {}", call.name, call.arguments),
        ToolEvent::Started { name, .. } => format!("start {name}"),
        ToolEvent::Output(result) => format!("{:?} {}", result.kind, result.call_id),
        other => format!("{other:?}"),
    }
}

/// The remaining events of a run.
pub(crate) async fn summarize_remaining(run: &mut ToolRun) -> Vec<String> {
    run.by_ref().map(|event| summarize_event(&event)).collect().await
}

/// The only result of a run.
pub(crate) async fn only_result(mut run: ToolRun) -> ToolResult {
    while run.next().await.is_some() {}
    let mut results = run.finish().unwrap().results;
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// A policy that follows a script.
#[derive(Clone, Default)]
pub(crate) struct ScriptedPolicy(Arc<Mutex<PolicyScript>>);

#[derive(Default)]
pub(crate) struct PolicyScript {
    /// By the name of the tool.
    pub(crate) permissions: HashMap<&'static str, Permission>,
    /// By the arguments.
    pub(crate) repairs: HashMap<&'static str, &'static str>,
    /// By the id of the call.
    pub(crate) verdicts: HashMap<&'static str, Verdict>,
    pub(crate) waits_for_verdicts: bool,
    /// The duration of `before`, in milliseconds.
    pub(crate) before_delay_ms: u64,
    /// The steps that fail or panic, for example `before a`.
    pub(crate) failing_steps: HashSet<&'static str>,
    pub(crate) panicking_steps: HashSet<&'static str>,
    /// The text with which `after` replaces a result.
    pub(crate) replacement_text: Option<String>,
    pub(crate) log: Vec<String>,
}

impl ScriptedPolicy {
    pub(crate) fn script(&self) -> MutexGuard<'_, PolicyScript> {
        self.0.lock().unwrap()
    }

    pub(crate) fn configured(f: impl FnOnce(&mut PolicyScript)) -> Self {
        let rules = Self::default();
        f(&mut rules.script());
        rules
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.script().log.clone()
    }

    fn record_step(&self, what: &str, call: &ToolCall) -> Result<(), Error> {
        let place = format!("{what} {}", call.call_id);
        let (fails, panics) = {
            let mut book = self.script();
            book.log.push(place.clone());
            (book.failing_steps.contains(&*place), book.panicking_steps.contains(&*place))
        };
        if panics {
            std::panic::resume_unwind(Box::new("boom"));
        }
        match fails {
            true => Err(Error::new(ErrorKind::Hook, place)),
            false => Ok(()),
        }
    }
}

impl ToolPolicy for ScriptedPolicy {
    fn repair_arguments(&mut self, call: &ToolCall, why: &str) -> Result<Option<String>, Error> {
        assert!(!why.is_empty());
        self.record_step("repair", call)?;
        Ok(self.script().repairs.get(&*call.arguments).map(|text| (*text).to_owned()))
    }

    fn before_call(&mut self, call: &ToolCall) -> BoxFuture<'static, Result<Permission, Error>> {
        let slow = Duration::from_millis(self.script().before_delay_ms);
        let noted = self.record_step("before", call);
        let permit =
            self.script().permissions.get(&*call.name).cloned().unwrap_or_else(Permission::allow);
        async move {
            tokio::time::sleep(slow).await;
            noted.map(|()| permit)
        }
        .boxed()
    }

    fn on_verdict_requested(&mut self, call: &PendingCall) {
        self.record_step("asked", &call.to_tool_call()).unwrap();
    }

    fn verdict(&mut self, call: &PendingCall) -> Option<Verdict> {
        assert!(!self.script().panicking_steps.contains("verdict"));
        self.script().verdicts.get(&*call.call_id).cloned()
    }

    fn waits_for_verdicts(&self) -> bool {
        self.script().waits_for_verdicts
    }

    fn after_call(&mut self, call: &ToolCall, result: &mut ToolResult) -> Result<(), Error> {
        if let Some(text) = &self.script().replacement_text {
            result.content = text.clone().into();
        }
        self.record_step("after", call)
    }
}
