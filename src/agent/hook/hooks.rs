//! Several hooks as one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::agent::State;
use crate::agent::hook::ask::{ask, caught, failed};
use crate::agent::hook::observer::Answer;
use crate::agent::hook::{BeforeTool, Hook, HookFuture, Observer, OnStop};
use crate::agent::within::Within;
use crate::env::TimeLimit;
use crate::error::{Error, ErrorKind};
use crate::event::Outcome;
use crate::item::{History, Json, ToolCall, ToolResult};
use crate::request::Request;
use crate::turn::Turn;

/// How long a hook may take for each answer, unless set.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The hooks of an agent, in their order. Cheap to clone.
///
/// One method for each of [`Hook`], which says how the answers are put together. Dropping a future
/// drops the answer that it waits for. Without a hook nothing is boxed, and no timer is made.
#[derive(Clone)]
pub(in crate::agent) struct Hooks {
    hooks: Arc<Vec<Arc<dyn Hook>>>,
    timeout: TimeLimit,
}

/// What all hooks together say to a call. `arguments` are set if a hook has rewritten them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) enum Permitted {
    /// It may run.
    Run { arguments: Option<String> },
    /// It must not run; the model reads why.
    Deny { why: String },
    /// It waits for somebody to approve it, with these arguments.
    Ask { arguments: Option<String> },
}

impl Hooks {
    /// None, with 30 seconds for each answer.
    pub(in crate::agent) fn new() -> Self {
        Self { hooks: Arc::default(), timeout: TimeLimit::Default(TIMEOUT) }
    }

    /// Adds one behind the others.
    pub(in crate::agent) fn push(&mut self, hook: Arc<dyn Hook>) {
        Arc::make_mut(&mut self.hooks).push(hook);
    }

    /// Sets how long each hook may take for each of its answers.
    pub(in crate::agent) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = TimeLimit::Set(timeout);
        self
    }

    pub(in crate::agent) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// What is sent.
    pub(in crate::agent) async fn context(
        &self,
        state: &State,
        mut context: History,
    ) -> Result<History, Error> {
        for hook in self.each() {
            let question = || hook.transform_context(state, context);
            context = self.ask(hook, "transform_context", question).await?;
        }
        Ok(context)
    }

    /// What is asked: its context transformed, then the request prepared.
    pub(in crate::agent) async fn prepare(
        &self,
        state: &State,
        mut request: Request,
    ) -> Result<Request, Error> {
        request.context = self.context(state, request.context).await?;
        let (history, context) = (request.history.clone(), request.context.clone());
        for hook in self.each() {
            self.ask(hook, "prepare", || hook.prepare(state, &mut request)).await?;
            request.history.clone_from(&history);
            request.context.clone_from(&context);
        }
        Ok(request)
    }

    pub(in crate::agent) fn turn_started<'a>(
        &'a self,
        state: &'a Arc<State>,
    ) -> impl Iterator<Item = Observer> + 'a {
        self.observe("turn_started", state, Answer::End, |hook| hook.turn_started(state))
    }

    pub(in crate::agent) fn assistant_message<'a>(
        &'a self,
        state: &'a Arc<State>,
        turn: &'a Arc<Turn>,
    ) -> impl Iterator<Item = Observer> + 'a {
        let call = |hook: &dyn Hook| hook.assistant_message(state, turn);
        self.observe("assistant_message", state, Answer::End, call)
    }

    pub(in crate::agent) fn after_sampling<'a>(
        &'a self,
        state: &'a Arc<State>,
        turn: &'a Arc<Turn>,
    ) -> impl Iterator<Item = Observer> + 'a {
        let call = |hook: &dyn Hook| hook.after_sampling(state, turn);
        self.observe("after_sampling", state, Answer::Notes, call)
    }

    /// Calls an observing method of each hook, as it is pulled.
    fn observe<'a, T>(
        &'a self,
        method: &'static str,
        state: &'a Arc<State>,
        kind: fn(Within<'static, Result<T, Error>>) -> Answer,
        call: impl Fn(&dyn Hook) -> HookFuture<'static, T> + 'a,
    ) -> impl Iterator<Item = Observer> + 'a
    where
        T: 'static,
    {
        let hooks = self.hooks.iter();
        hooks.map(move |hook| Observer::begin(hook, method, self.timeout, state, kind, &call))
    }

    /// The first arguments that a hook gives in the place of those that do not fit.
    pub(in crate::agent) fn repair(
        &self,
        state: &State,
        call: &ToolCall,
        why: &str,
    ) -> Result<Option<String>, Error> {
        for hook in self.each() {
            let repaired = caught(|| hook.repair(state, call, why));
            let repaired = repaired.map_err(|error| failed(hook, "repair", error))?;
            if repaired.is_some() {
                return Ok(repaired);
            }
        }
        Ok(None)
    }

    /// Whether, and with what, a call may run. The future owns what it needs.
    pub(in crate::agent) fn before_tool(
        &self,
        state: State,
        mut call: ToolCall,
    ) -> impl Future<Output = Result<Permitted, Error>> + Send + use<> {
        const METHOD: &str = "before_tool";
        let hooks = self.clone();
        async move {
            let (mut rewritten, mut asked) = (false, false);
            for hook in hooks.each() {
                match hooks.ask(hook, METHOD, || hook.before_tool(&state, &call)).await? {
                    BeforeTool::Run => {}
                    BeforeTool::Ask => asked = true,
                    BeforeTool::Deny(why) => return Ok(Permitted::Deny { why }),
                    BeforeTool::Rewrite(arguments) => {
                        check_object(&arguments).map_err(|error| failed(hook, METHOD, error))?;
                        (rewritten, call.arguments) = (true, arguments);
                    }
                }
            }
            let arguments = rewritten.then_some(call.arguments);
            Ok(match asked {
                true => Permitted::Ask { arguments },
                false => Permitted::Run { arguments },
            })
        }
    }

    /// Changes a result. All hooks get it, also when one panics; the first panic is the error.
    pub(in crate::agent) fn after_tool(
        &self,
        call: &ToolCall,
        result: &mut ToolResult,
    ) -> Result<(), Error> {
        let mut outcome = Ok(());
        for hook in self.each() {
            let mut changed = result.clone();
            match caught(|| hook.after_tool(call, &mut changed)) {
                Ok(()) => {
                    changed.call_id.clone_from(&result.call_id);
                    changed.name.clone_from(&result.name);
                    *result = changed;
                }
                Err(error) => outcome = outcome.and(Err(failed(hook, "after_tool", error))),
            }
        }
        outcome
    }

    pub(in crate::agent) fn redact_progress(
        &self,
        call: &ToolCall,
        data: &mut Json,
    ) -> Result<(), Error> {
        self.change("redact_progress", |hook| hook.redact_progress(call, data))
    }

    pub(in crate::agent) fn redact_evidence(
        &self,
        call: &ToolCall,
        evidence: &mut Json,
    ) -> Result<(), Error> {
        self.change("redact_evidence", |hook| hook.redact_evidence(call, evidence))
    }

    /// Has each hook change something, until one panics.
    fn change(&self, method: &str, mut change: impl FnMut(&dyn Hook)) -> Result<(), Error> {
        for hook in self.each() {
            caught(|| change(hook)).map_err(|error| failed(hook, method, error))?;
        }
        Ok(())
    }

    /// Whether any hook says so.
    pub(in crate::agent) async fn should_stop(&self, state: &State) -> Result<bool, Error> {
        for hook in self.each() {
            if self.ask(hook, "should_stop", || hook.should_stop(state)).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Blocking is looked at before preventing.
    pub(in crate::agent) async fn stop(&self, state: &State, turn: &Turn) -> Result<OnStop, Error> {
        let (mut blocking, mut ending) = (Vec::new(), OnStop::LetGo);
        for hook in self.each() {
            match self.ask(hook, "stop", || hook.stop(state, turn)).await? {
                OnStop::LetGo => {}
                OnStop::Block(text) => blocking.push(text),
                said @ (OnStop::Prevent(_) | OnStop::Blocked(_) | OnStop::Unproven(_)) => {
                    if ending == OnStop::LetGo {
                        ending = said;
                    }
                }
            }
        }
        Ok(match blocking.is_empty() {
            false => OnStop::Block(blocking.join("\n\n")),
            true => ending,
        })
    }

    /// Tells all of them; a panic in one keeps it from no other.
    pub(in crate::agent) fn failure(&self, state: &State, error: &Error) {
        for hook in self.each() {
            let _ = caught(|| hook.failure(state, error));
        }
    }

    /// Tells all of them; a panic in one keeps it from no other, and goes to `failure`.
    pub(in crate::agent) fn finished(&self, state: &State, outcome: &Outcome) {
        for hook in self.each() {
            if let Err(error) = caught(|| hook.finished(outcome)) {
                self.failure(state, &failed(hook, "finished", error));
            }
        }
    }

    fn each(&self) -> impl Iterator<Item = &dyn Hook> {
        self.hooks.iter().map(|hook| &**hook)
    }

    fn ask<'a, T>(
        &self,
        hook: &'a dyn Hook,
        method: &'static str,
        question: impl FnOnce() -> HookFuture<'a, T>,
    ) -> impl Future<Output = Result<T, Error>> {
        ask(hook, method, self.timeout, question)
    }
}

fn check_object(arguments: &str) -> Result<(), Error> {
    serde_json::from_str::<Map<String, Value>>(arguments).map(drop).map_err(|source| {
        Error::new(ErrorKind::Other, "its arguments are not a JSON object").with_source(source)
    })
}
