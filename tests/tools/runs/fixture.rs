//! Calls, the run of a toolkit over them, and a policy with prepared answers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::StreamExt;
use serde_json::json;
use turnstream::event::ToolEvent;
use turnstream::item::{ToolCall, ToolResult};
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
    ToolSpec { name: name.into(), description: String::new(), parameters }
}

/// Sleeps for as many milliseconds as it is told, and answers with its arguments.
pub(crate) fn nap(name: &str) -> Tool {
    Tool::raw(spec(name), |args, _| async move {
        tokio::time::sleep(Duration::from_millis(args["ms"].as_u64().unwrap_or(0))).await;
        args
    })
    .unwrap()
}

pub(crate) async fn turn(reply: Reply) -> Arc<Turn> {
    let request = Request::new(History::from_id("h"));
    Scripted::new([reply]).stream_turn(request).into_turn().await.unwrap()
}

/// A turn with a call of each of these tools, under their names as ids.
pub(crate) async fn calls(names: &[&str]) -> Arc<Turn> {
    turn(names.iter().fold(Reply::new(), |reply, name| reply.call_raw(name, name, "{}"))).await
}

pub(crate) fn run(kit: &Toolkit, turn: &Arc<Turn>) -> ToolRun {
    kit.run(&History::from_id("h"), turn)
}

/// An event in a few words.
pub(crate) fn shape(event: &ToolEvent) -> String {
    match event {
        ToolEvent::ApprovalRequested(call) => format!("ask {} {}", call.name, call.arguments),
        ToolEvent::Started { name, .. } => format!("start {name}"),
        ToolEvent::Output(result) => format!("{:?} {}", result.kind, result.call_id),
        other => format!("{other:?}"),
    }
}

/// All that is left of a run.
pub(crate) async fn shapes(run: &mut ToolRun) -> Vec<String> {
    run.by_ref().map(|event| shape(&event)).collect().await
}

/// The only result of a run.
pub(crate) async fn only_result(mut run: ToolRun) -> ToolResult {
    while run.next().await.is_some() {}
    let mut results = run.finish().unwrap().results;
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// A gate by the book.
#[derive(Clone, Default)]
pub(crate) struct Rules(Arc<Mutex<Book>>);

#[derive(Default)]
pub(crate) struct Book {
    /// By the name of the tool.
    pub(crate) permits: HashMap<&'static str, Permission>,
    /// By the arguments.
    pub(crate) repairs: HashMap<&'static str, &'static str>,
    /// By the id of the call.
    pub(crate) verdicts: HashMap<&'static str, Verdict>,
    pub(crate) waits: bool,
    /// How long `before` takes, in ms.
    pub(crate) slow: u64,
    /// Where it fails, and where it panics: `before a`.
    pub(crate) fails: HashSet<&'static str>,
    pub(crate) panics: HashSet<&'static str>,
    /// What `after` puts in the place of a result.
    pub(crate) rewrites: Option<String>,
    pub(crate) log: Vec<String>,
}

impl Rules {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap()
    }

    pub(crate) fn with(f: impl FnOnce(&mut Book)) -> Self {
        let rules = Self::default();
        f(&mut rules.book());
        rules
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.book().log.clone()
    }

    fn note(&self, what: &str, call: &ToolCall) -> Result<(), Error> {
        let place = format!("{what} {}", call.call_id);
        let (fails, panics) = {
            let mut book = self.book();
            book.log.push(place.clone());
            (book.fails.contains(&*place), book.panics.contains(&*place))
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

impl ToolPolicy for Rules {
    fn repair_arguments(&mut self, call: &ToolCall, why: &str) -> Result<Option<String>, Error> {
        assert!(!why.is_empty());
        self.note("repair", call)?;
        Ok(self.book().repairs.get(&*call.arguments).map(|text| (*text).to_owned()))
    }

    fn before_call(&mut self, call: &ToolCall) -> BoxFuture<'static, Result<Permission, Error>> {
        let slow = Duration::from_millis(self.book().slow);
        let noted = self.note("before", call);
        let permit =
            self.book().permits.get(&*call.name).cloned().unwrap_or_else(Permission::allow);
        async move {
            tokio::time::sleep(slow).await;
            noted.map(|()| permit)
        }
        .boxed()
    }

    fn on_verdict_requested(&mut self, call: &ToolCall) {
        self.note("asked", call).unwrap();
    }

    fn verdict(&mut self, call: &ToolCall) -> Option<Verdict> {
        assert!(!self.book().panics.contains("verdict"));
        self.book().verdicts.get(&*call.call_id).cloned()
    }

    fn waits_for_verdicts(&self) -> bool {
        self.book().waits
    }

    fn after_call(&mut self, call: &ToolCall, result: &mut ToolResult) -> Result<(), Error> {
        if let Some(text) = &self.book().rewrites {
            result.content = text.clone().into();
        }
        self.note("after", call)
    }
}
