//! The list of hook points. All code that is repeated for each hook point is generated from this
//! list: the methods of [`Hook`](crate::agent::hook::Hook), their forwarding through pointers, the
//! functions that turn a closure into a hook, and the code that combines several hooks. To add a
//! hook point, add an entry to this list, and call the new method in the loop.

/// The types that the list of hook points refers to.
pub(super) mod prelude {
    pub(in crate::agent::hook) use std::sync::Arc;
    pub(in crate::agent::hook) use std::time::Duration;

    pub(in crate::agent::hook) use crate::agent::State;
    pub(in crate::agent::hook) use crate::agent::evidence::EvidenceVerdict;
    pub(in crate::agent::hook) use crate::agent::hook::{
        CallDecision, CombinedDecision, StopDecision,
    };
    pub(in crate::agent::hook) use crate::error::Error;
    pub(in crate::agent::hook) use crate::event::Outcome;
    pub(in crate::agent::hook) use crate::item::{History, Item, RawJson, ToolCall, ToolResult};
    pub(in crate::agent::hook) use crate::request::Request;
    pub(in crate::agent::hook) use crate::turn::Turn;
}

/// Passes the list of hook points to the macro with the given name. Each entry in the list has this
/// form:
///
/// ```text
/// kind hook_method(state, arguments) -> answer { default: …; together { … } closure: function; }
/// ```
///
/// `kind` states how the hook method is called:
///
/// - `asked`: the method returns a future, and the run waits for the answer until the timeout
///   expires.
/// - `observing`: the method returns a future that is polled with the run, and the run does not
///   wait for the future.
/// - `at_once`: the method returns its answer synchronously, without a future.
///
/// `together` states how the answers of several hooks are combined. Hooks are called in the order
/// in which they were added. The forms of `together` are:
///
/// - `changing x, keeping [fields]`: each hook receives the `x` that the previous hook returned.
///   The listed fields are restored after each hook. If an `at_once` method panics, its change is
///   discarded, and the remaining hooks are still called. The first panic is returned as the error.
/// - `|all: Type = first, answer| next, until over, with x = value`: the answers are folded until
///   `over` is true. Each hook receives `value` as the argument `x`.
/// - `apart`: the hooks' futures are polled independently of each other.
/// - `telling |hooks, panic| then`: all hooks are called, even after a panic. For each panic,
///   `then` is evaluated.
macro_rules! hook_points {
    ($then:ident) => { $then! {

    /// Changes the context that is sent to the model, without changing the history itself.
    ///
    /// This method is called before each request. For the first hook, `context` is the history; for
    /// each later hook, it is the context that the previous hook returned. The returned context
    /// need not be settled, since encoders [settle](History::settled) every context.
    deciding transform_context(state, context: History) -> History {
        default: context;
        together { changing context, keeping [] }
        /// Creates a [`transform_context`](Hook::transform_context) hook from a closure.
        ///
        /// ```
        /// use turnstream::agent::hook;
        ///
        /// // Sends only the last twenty items.
        /// let short = hook::transform_context(|_state, mut context| async move {
        ///     context.rewrite(0..context.len().saturating_sub(20), []);
        ///     context
        /// });
        /// # let _ = short;
        /// ```
        closure: transform_context;
    }

    /// Changes the next request before it is sent: its model, options, tools or system prompt.
    ///
    /// This method is called after [`transform_context`](Self::transform_context). `request`
    /// includes the changes made by previous hooks. Changes to the request's `history` and
    /// `context` fields are undone: the history must not change, and only `transform_context` may
    /// change the context. If the model calls a tool that is not in the returned request, the call
    /// gets the same result as a call to an unknown tool.
    deciding prepare_request(state, request: Request) -> Request {
        default: request;
        together { changing request, keeping [history, context] }
        /// Creates a [`prepare_request`](Hook::prepare_request) hook from a closure. The closure
        /// receives a request and returns the changed request.
        ///
        /// ```
        /// use turnstream::agent::hook;
        ///
        /// // Uses a larger model from the fifth request on.
        /// let escalating = hook::prepare_request(|state, mut request| async move {
        ///     if state.counts.model_calls >= 5 {
        ///         request.model = Some("large".to_owned());
        ///     }
        ///     request
        /// });
        /// # let _ = escalating;
        /// ```
        closure: prepare_request;
    }

    /// Observes the start of a turn, immediately before its request is sent.
    observing turn_started(state) -> () {
        default: ();
        together { apart }
        /// Creates a [`turn_started`](Hook::turn_started) hook from a closure.
        closure: turn_started;
    }

    /// Observes a complete turn, including its text, reasoning, tool calls and usage.
    observing assistant_message(state, turn: &Arc<Turn>) -> () {
        default: ();
        together { apart }
        /// Creates an [`assistant_message`](Hook::assistant_message) hook from a closure.
        ///
        /// ```
        /// use std::time::Duration;
        ///
        /// use futures::FutureExt;
        /// use turnstream::agent::hook;
        /// use turnstream::provider::Scripted;
        /// use turnstream::Agent;
        ///
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() {
        /// // A slow log does not delay the run.
        /// let slow = hook::assistant_message(|_state, turn| async move {
        ///     tokio::time::sleep(Duration::from_secs(5)).await;
        ///     println!("{}", turn.text());
        /// });
        /// let agent = Agent::new(Scripted::new(["Hello!"])).with_hook(slow);
        /// let outcome = agent.run("Hi").outcome().now_or_never().expect("nothing waits");
        /// assert_eq!(outcome.text, "Hello!");
        /// # }
        /// ```
        closure: assistant_message;
    }

    /// Observes a complete turn before its tool calls run, and may return items for a later
    /// request. `after_sampling` cannot change the turn; to reject a call, use
    /// [`before_tool`](Self::before_tool).
    ///
    /// Items that are ready when the next request is built are sent with that request, and are
    /// reported as one `appended` event with the reason `hook`. Items that become ready later are
    /// sent with a later request, which may be the request for the wrap-up turn. Items are sent in
    /// the order in which the hooks returned them. If several hooks return items in the same poll,
    /// the items are sent in the order in which the hooks were added. If no request follows, the
    /// items are neither sent nor added to the history. If a hook returns any item that is not a
    /// user or system item, the hook fails, and none of the returned items is sent.
    observing after_sampling(state, turn: &Arc<Turn>) -> Vec<Item> {
        default: Vec::new();
        together { apart }
        /// Creates an [`after_sampling`](Hook::after_sampling) hook from a closure.
        ///
        /// ```
        /// use turnstream::Item;
        /// use turnstream::agent::hook;
        ///
        /// let terse = hook::after_sampling(|_state, turn| async move {
        ///     match turn.text().len() > 2_000 {
        ///         true => vec![Item::user("Shorter, please.")],
        ///         false => Vec::new(),
        ///     }
        /// });
        /// # let _ = terse;
        /// ```
        closure: after_sampling;
    }

    /// Repairs a tool call's arguments. This method is called if the arguments are not JSON, are
    /// not an object, or do not match the tool's schema. Returns the repaired arguments as a
    /// serialized JSON object, or `None`. The `why` parameter is the validation error.
    ///
    /// If a hook returns a string, the remaining hooks are not called. If the returned arguments
    /// are valid, they are used as if the model had written them.
    /// [`before_tool`](Self::before_tool), the approver and the tool receive the repaired
    /// arguments, and the call does not count as malformed. The history keeps the model's
    /// arguments, so a [resumed](crate::Agent::resume) call is repaired again. If the returned
    /// arguments are also invalid, the model receives `why`, the error about its own arguments.
    ///
    /// By default, an agent does not repair arguments.
    /// [`unwrap_json_string`](crate::agent::hook::unwrap_json_string) creates a hook that repairs
    /// double-encoded arguments. This method runs within the poll in which the call is checked, so
    /// it must return quickly.
    at_once repair_arguments(state, call: &ToolCall, why: &str) -> Option<String> {
        default: None;
        together { |given: Option<String> = None, answer| given.or(answer), until given.is_some() }
        /// Creates a [`repair_arguments`](Hook::repair_arguments) hook from a closure. The closure
        /// receives a call with invalid arguments, along with the validation error, and returns the
        /// repaired arguments or `None`.
        ///
        /// ```
        /// use futures::future::ready;
        /// use serde_json::json;
        /// use turnstream::Agent;
        /// use turnstream::agent::hook;
        /// use turnstream::provider::{Reply, Scripted};
        /// use turnstream::tool::{Tool, ToolSpec};
        ///
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), turnstream::Error> {
        /// // This model writes `True` instead of `true`.
        /// let python = hook::repair_arguments(|_state, call, _why| Some(call.arguments.replace("True", "true")));
        ///
        /// let model = Scripted::new([
        ///     Reply::new().call_raw("c1", "light", r#"{"on": True}"#),
        ///     Reply::text("It is on."),
        /// ]);
        /// let schema = json!({
        ///     "type": "object",
        ///     "properties": { "on": { "type": "boolean" } },
        ///     "required": ["on"],
        /// });
        /// let spec = ToolSpec::new("light", "Turns the light on or off", schema);
        /// let light = Tool::raw(spec, |args, _cx| ready(args["on"].to_string()))?;
        /// let outcome = Agent::new(model).with_tools([light]).with_hook(python).run("On").outcome().await;
        ///
        /// // The tool ran with the repaired arguments; the history has those of the model.
        /// let [_, call, result, _] = outcome.new_items() else { panic!() };
        /// assert_eq!(call.as_tool_call().unwrap().arguments, r#"{"on": True}"#);
        /// assert_eq!(result.as_tool_result().unwrap().content.text(), "true");
        /// # Ok(())
        /// # }
        /// ```
        closure: repair_arguments;
    }

    /// Decides whether a tool call may run.
    ///
    /// If a hook returns [`Deny`](CallDecision::Deny), the call is denied, and the remaining hooks
    /// are not called. Each hook receives the call with its arguments as rewritten by the previous
    /// hooks. If a hook returns [`RequireApproval`](CallDecision::RequireApproval), the remaining
    /// hooks are still called, and may still deny the call. If a hook rewrites the arguments to
    /// anything other than a serialized JSON object, the hook fails.
    deciding before_tool(state, call: &'a ToolCall) -> CallDecision {
        default: CallDecision::Allow;
        together {
            |permitted: CombinedDecision = CombinedDecision::default(), answer| permitted.combine(answer)?,
            until permitted.is_denied(),
            with call = permitted.rewritten_call(call)
        }
        /// Creates a [`before_tool`](Hook::before_tool) hook from a closure.
        ///
        /// ```
        /// use turnstream::agent::hook::{self, CallDecision};
        ///
        /// let careful = hook::before_tool(|_state, call| async move {
        ///     match call.name.as_str() {
        ///         "delete" => CallDecision::RequireApproval,
        ///         _ => CallDecision::Allow,
        ///     }
        /// });
        /// # let _ = careful;
        /// ```
        closure: before_tool;
    }

    /// Changes the result of a tool call before it is recorded, sent to the model or yielded as an
    /// event.
    ///
    /// This method runs within the poll in which the result arrives, so it must return quickly; for
    /// slow work, wrap the tool instead. If a hook changes the result's call id or tool name, the
    /// original value is restored, so that the result still matches the call. If a hook panics, its
    /// change is discarded, the remaining hooks are called, and the run ends with the reason
    /// `hook_error`.
    at_once after_tool(state, call: &ToolCall, result: &mut ToolResult) {
        default: ();
        together { changing result, keeping [call_id, name] }
        /// Creates an [`after_tool`](Hook::after_tool) hook from a closure.
        ///
        /// ```
        /// use turnstream::agent::hook;
        ///
        /// let trimmed = hook::after_tool(|_state, _call, result| {
        ///     result.content = result.content.text().trim().into();
        /// });
        /// # let _ = trimmed;
        /// ```
        closure: after_tool;
    }

    /// Changes a progress report from a running tool call before it is yielded as an event. For
    /// example, a hook can remove secrets from the report. If a hook panics, the report is replaced
    /// with `null`, and the run ends after the remaining hooks have been called.
    ///
    /// This method runs within the poll in which the report arrives, so it must return quickly.
    /// Progress reports from a sub-agent's calls are passed only to the sub-agent's own hooks.
    at_once redact_progress(state, call: &ToolCall, data: &mut RawJson) {
        default: ();
        together { changing data, keeping [] }
        /// Creates a [`redact_progress`](Hook::redact_progress) hook from a closure. The hook does
        /// not receive progress reports from a sub-agent's calls; to receive those reports, add a
        /// hook to the sub-agent.
        ///
        /// ```
        /// use turnstream::agent::hook;
        ///
        /// let quiet = hook::redact_progress(|_state, _call, data| *data = serde_json::Value::Null.into());
        /// # let _ = quiet;
        /// ```
        closure: redact_progress;
    }

    /// Changes a piece of evidence that a tool call has recorded, before
    /// [`after_tool`](Self::after_tool) is called and before the evidence is yielded as an event.
    /// Evidence from a dropped call is also passed to this method. If a hook panics, the evidence
    /// is replaced with `null`, and the run ends after the remaining hooks have been called.
    ///
    /// Evidence from a sub-agent's calls is passed only to the sub-agent's own hooks. The
    /// sub-agent's events are forwarded unchanged.
    at_once redact_evidence(state, call: &ToolCall, evidence: &mut RawJson) {
        default: ();
        together { changing evidence, keeping [] }
        /// Creates a [`redact_evidence`](Hook::redact_evidence) hook from a closure. The hook does
        /// not receive evidence from a sub-agent's calls; to receive that evidence, add a hook to
        /// the sub-agent.
        ///
        /// ```
        /// use turnstream::agent::hook;
        /// use turnstream::item::RawJson;
        ///
        /// let masking = hook::redact_evidence(|_state, _call, evidence| {
        ///     if let Ok(masked) = RawJson::parse(&evidence.as_str().replace("hunter2", "***")) {
        ///         *evidence = masked;
        ///     }
        /// });
        /// # let _ = masking;
        /// ```
        closure: redact_evidence;
    }

    /// Decides whether the run stops after a turn instead of sending another request.
    ///
    /// This method is called after each complete turn that would be followed by another turn if no
    /// hook stopped the run. Another turn follows if the turn's tools have run, if the turn was cut
    /// off or paused, or if the reply is empty or contains calls that cannot run. `should_stop` is
    /// not called after a failed turn, or if a budget has prevented the turn's calls from running.
    /// If the model has stopped on its own, [`before_stop`](Self::before_stop) is called instead.
    ///
    /// If a hook returns `true`, the run stops, and the remaining hooks are not called.
    deciding should_stop(state) -> bool {
        default: false;
        together { |stops: bool = false, answer| answer, until stops }
        /// Creates a [`should_stop`](Hook::should_stop) hook from a closure.
        ///
        /// ```
        /// use turnstream::agent::hook;
        ///
        /// // Ends the run once ten calls have run.
        /// let enough = hook::should_stop(|state| async move { state.counts.tool_calls >= 10 });
        /// # let _ = enough;
        /// ```
        closure: should_stop;
    }

    /// If the model's final text says that the model cannot continue, returns a description of what
    /// is missing. If a hook returns `Some`, the turn does not count as an answer, and no
    /// [validation](crate::Agent::with_validation) is applied to it.
    ///
    /// The first string that a hook returns is used, and the remaining hooks are not called.
    at_once give_up_reason(state, turn: &Turn) -> Option<String> {
        default: None;
        together { |given: Option<String> = None, answer| given.or(answer), until given.is_some() }
        /// Creates a [`give_up_reason`](Hook::give_up_reason) hook from a closure.
        closure: give_up_reason;
    }

    /// Returns the hook's verdict on the evidence from a run that ends with the reason `completed`,
    /// or `None` if the hook does not judge evidence. The check in a `Proven` verdict becomes
    /// [`Outcome::proof`](crate::Outcome::proof). If several hooks return a verdict, the first one
    /// is used. If no hook returns a verdict, the default rules of
    /// [`RequireEvidence`](crate::agent::evidence::RequireEvidence) apply.
    at_once judge_evidence(state) -> Option<EvidenceVerdict> {
        default: None;
        together { |given: Option<EvidenceVerdict> = None, answer| given.or(answer), until given.is_some() }
        /// Creates a [`judge_evidence`](Hook::judge_evidence) hook from a closure.
        closure: judge_evidence;
    }

    /// Decides whether the run may end after the model has stopped on its own. This method is not
    /// called after a failed request.
    ///
    /// All hooks are called. If any hook returns [`Continue`](StopDecision::Continue), the run
    /// continues, and the model receives the texts from all such hooks. Otherwise, the first
    /// decision that ends the run with a reason other than `completed` applies.
    deciding before_stop(state, turn: &'a Turn) -> StopDecision {
        default: StopDecision::Allow;
        together { |combined: StopDecision = StopDecision::Allow, answer| combined.combine(answer), until false }
        /// Creates a [`before_stop`](Hook::before_stop) hook from a closure.
        ///
        /// ```
        /// use turnstream::agent::hook::{self, StopDecision};
        ///
        /// let tested = hook::before_stop(|_state, turn| async move {
        ///     match turn.text().contains("tests pass") {
        ///         true => StopDecision::Allow,
        ///         false => StopDecision::Continue("Run the tests before you stop.".into()),
        ///     }
        /// });
        /// # let _ = tested;
        /// ```
        closure: before_stop;
    }

    /// Called with each error: from a failed request (even if it is retried), a failed compaction,
    /// an observing hook that failed, a [memory](crate::context::Recall) that could not be read, or
    /// a hook that rewrote a call's arguments into invalid ones, or the error that ends the run.
    /// Each error is reported once.
    ///
    /// This method runs within the poll in which the error occurs, so it must return quickly. A
    /// panic in this method is ignored.
    at_once on_failure(state, error: &Error) {
        default: ();
        together { telling |_hooks, _panic| {} }
        /// Creates an [`on_failure`](Hook::on_failure) hook from a closure.
        closure: on_failure;
    }

    /// Observes that a single poll of a tool took at least
    /// [`Limits::long_poll`](crate::agent::Limits::long_poll), after that poll. Such a tool blocks
    /// its thread: the run's other tools, and all other tasks on the thread, had to wait. The
    /// [guide](crate::guide::tools#tools-that-block-their-thread) shows how to write such tools.
    ///
    /// Tools of sub-agents are reported to the hooks of the sub-agents. Neither the history nor a
    /// replay contains the report. This method runs within the poll, so it must return quickly. If
    /// `on_long_poll` panics, `on_failure` is called afterwards.
    at_once on_long_poll(state, call: &ToolCall, elapsed: Duration) {
        default: ();
        together { telling |hooks, panic| hooks.on_failure(state, &panic) }
        /// Creates an [`on_long_poll`](Hook::on_long_poll) hook from a closure.
        ///
        /// ```
        /// use turnstream::agent::hook;
        ///
        /// let warned = hook::on_long_poll(|_state, call, elapsed| {
        ///     eprintln!("the tool `{}` has blocked its thread for {elapsed:?}", call.name);
        /// });
        /// # let _ = warned;
        /// ```
        closure: on_long_poll;
    }

    /// Observes the run's outcome. This method is called once, after all other hook methods. If
    /// `on_finished` panics, `on_failure` is called afterwards.
    ///
    /// This method runs within the poll that yields `finished`, so it must return quickly. Since
    /// the run is over, the run does not poll any work that this method starts.
    at_once on_finished(state, outcome: &Outcome) {
        default: ();
        together { telling |hooks, panic| hooks.on_failure(state, &panic) }
        /// Creates an [`on_finished`](Hook::on_finished) hook from a closure.
        ///
        /// ```
        /// use turnstream::agent::hook;
        ///
        /// let told = hook::on_finished(|_state, outcome| println!("{} turns", outcome.turns));
        /// # let _ = told;
        /// ```
        closure: on_finished;
    }

    } };
}

pub(super) use hook_points;
