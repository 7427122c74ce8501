//! The list of the hook points. Everything that there is once for each of them is made from it: the
//! methods of [`Hook`](crate::agent::hook::Hook), their way through pointers, the functions that make a
//! hook of a closure, and how several hooks are put together. A new point is written here, and called
//! in the loop.

/// What the list names.
pub(super) mod prelude {
    pub(in crate::agent::hook) use std::sync::Arc;

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

/// Hands the list to the macro of this name. A point is written as
///
/// ```text
/// kind hook_method(state, arguments) -> answer { default: …; together { … } closure: function; }
/// ```
///
/// The kind says how it is called:
///
/// - `asked`: it gives a future, and the run waits for the answer, for at most the time limit.
/// - `observing`: it gives a future that is polled with the run, which does not wait for it.
/// - `at_once`: it answers in the call, without a future.
///
/// `together` says what comes of several hooks, which are called in their order:
///
/// - `changing x, keeping [fields]`: each gets what the one before made of `x`. The fields are put back
///   after each. Of a point that is called at once, a hook that panics has changed nothing, and the
///   others still get it; the first panic is the error.
/// - `|all: Type = first, answer| next, until over, with x = value`: a fold of the answers, which ends
///   when `over` is true. Each hook gets `value` for the argument `x`.
/// - `apart`: each for itself.
/// - `telling |hooks, panic| then`: all are told, also after a panic, of which `then` says what comes.
macro_rules! hook_points {
    ($then:ident) => { $then! {

    /// Changes what is sent, and nothing else: the history stays.
    ///
    /// It is asked before each request. `context` is the history, or what the hook before made of
    /// it. It need not be lawful: encoders [settle](History::settled) it.
    asked transform_context(state, context: History) -> History {
        default: context;
        together { changing context, keeping [] }
        /// A hook of its [`transform_context`](Hook::transform_context) alone.
        ///
        /// ```
        /// use turnstream::agent::hook;
        ///
        /// // Sends only the last twenty entries.
        /// let short = hook::transform_context(|_state, mut context| async move {
        ///     context.rewrite(0..context.len().saturating_sub(20), []);
        ///     context
        /// });
        /// # let _ = short;
        /// ```
        closure: transform_context;
    }

    /// Changes this turn's request: its model, its options, its tools, its system prompt.
    ///
    /// It is asked after [`transform_context`](Self::transform_context), gets what the hooks before it
    /// made of the request, and gives it back. The request's `history` and `context` are put back if it
    /// changes them: the former is the ledger, the latter the business of `transform_context`. A call
    /// of a tool that the request does not offer is answered as one of an unknown tool.
    asked prepare_request(state, request: Request) -> Request {
        default: request;
        together { changing request, keeping [history, context] }
        /// A hook of its [`prepare_request`](Hook::prepare_request) alone: the closure gets the request and gives it back.
        ///
        /// ```
        /// use turnstream::agent::hook;
        ///
        /// // Asks a larger model from the fifth request on.
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

    /// Observes that a turn begins: its request is about to be sent.
    observing turn_started(state) -> () {
        default: ();
        together { apart }
        /// A hook of its [`turn_started`](Hook::turn_started) alone.
        closure: turn_started;
    }

    /// Observes what the model said: its words, its thoughts, its calls, what they cost.
    observing assistant_message(state, turn: &Arc<Turn>) -> () {
        default: ();
        together { apart }
        /// A hook of its [`assistant_message`](Hook::assistant_message) alone.
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
        /// // A log that takes its time holds up nothing.
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

    /// Observes a complete turn before its calls run, and may add items for a later request. It
    /// cannot change this turn: to hold a call back, there is [`before_tool`](Self::before_tool).
    ///
    /// Items that are there when the next request is built are sent with it, as one `appended` event
    /// with the reason `hook`; those that come later are sent with the request after it, also with the
    /// last one of a run that wraps up. They stand in the order in which the hooks gave them; those of one poll in the
    /// order of the hooks. Items that no request follows are not sent, and are not in the history. They
    /// must be user or system items; any other item is an error, and nothing of that answer is sent.
    observing after_sampling(state, turn: &Arc<Turn>) -> Vec<Item> {
        default: Vec::new();
        together { apart }
        /// A hook of its [`after_sampling`](Hook::after_sampling) alone.
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

    /// Gives other arguments for a call whose own are not JSON, are no object, or do not fit its
    /// tool: the text of a JSON object. `why` says what is wrong with them.
    ///
    /// The first text counts, and no hook behind it is asked. If it fits, the call goes on with it
    /// as if the model had written it: [`before_tool`](Self::before_tool), whoever approves and the
    /// tool see the repaired arguments, and the call does not count as malformed. The history keeps
    /// the model's own, so a [resumed](crate::Agent::resume) call is repaired again. If the text
    /// does not fit either, the model is told `why`, of its own arguments.
    ///
    /// Nothing is repaired unless a hook does; [`unwrap_json_string`](crate::agent::hook::unwrap_json_string)
    /// is one. It runs in the poll in
    /// which the call is looked at, so it must be quick.
    at_once repair_arguments(state, call: &ToolCall, why: &str) -> Option<String> {
        default: None;
        together { |given: Option<String> = None, answer| given.or(answer), until given.is_some() }
        /// A hook of its [`repair_arguments`](Hook::repair_arguments) alone: the closure gets a call whose arguments do not fit
        /// and why, and gives other arguments, or `None`.
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
        /// // This model writes `True` where JSON has `true`.
        /// let python = hook::repair_arguments(|_state, call, _why| Some(call.arguments.replace("True", "true")));
        ///
        /// let model = Scripted::new([
        ///     Reply::new().call_raw("c1", "light", r#"{"on": True}"#),
        ///     Reply::text("It is on."),
        /// ]);
        /// let spec = ToolSpec::new(
        ///     "light",
        ///     "Turns the light on or off",
        ///     json!({ "type": "object", "required": ["on"] }),
        /// );
        /// let light = Tool::raw(spec, |args, _cx| ready(args["on"].to_string()))?;
        /// let outcome = Agent::new(model).with_tools([light]).with_hook(python).run("On").outcome().await;
        ///
        /// // The tool ran with the repaired arguments; the history has what the model wrote.
        /// let [_, call, result, _] = outcome.new_items() else { panic!() };
        /// assert_eq!(call.as_tool_call().unwrap().arguments, r#"{"on": True}"#);
        /// assert_eq!(result.as_tool_result().unwrap().content.text(), "true");
        /// # Ok(())
        /// # }
        /// ```
        closure: repair_arguments;
    }

    /// Decides on a call before it runs.
    ///
    /// The first [`Deny`](CallDecision::Deny) counts, and no hook behind it is asked. Rewrites chain:
    /// each hook sees the call with the arguments so far. After an [`Ask`](CallDecision::RequireApproval) the
    /// others are still asked, and may still deny. A rewrite to anything but the text of a JSON
    /// object is an error.
    asked before_tool(state, call: &'a ToolCall) -> CallDecision {
        default: CallDecision::Allow;
        together {
            |permitted: CombinedDecision = CombinedDecision::default(), answer| permitted.combine(answer)?,
            until permitted.is_denied(),
            with call = permitted.rewritten_call(call)
        }
        /// A hook of its [`before_tool`](Hook::before_tool) alone.
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

    /// Changes the result of a call before anybody sees it.
    ///
    /// It runs in the poll in which the result arrives, so it must be quick; for anything slow,
    /// wrap the tool. The result answers its call whatever happens: a changed id or name is put
    /// back. If it panics it has changed nothing, and the hooks behind it still get the result.
    at_once after_tool(state, call: &ToolCall, result: &mut ToolResult) {
        default: ();
        together { changing result, keeping [call_id, name] }
        /// A hook of its [`after_tool`](Hook::after_tool) alone.
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

    /// Changes what a running call reports as progress, before anybody sees it: takes secrets out, for
    /// example. A panic ends the run, after the other hooks got it as well, and `null` is reported.
    ///
    /// It runs in the poll in which the progress arrives, so it must be quick. What a sub-agent
    /// reports is the business of its own hooks.
    at_once redact_progress(state, call: &ToolCall, data: &mut RawJson) {
        default: ();
        together { changing data, keeping [] }
        /// A hook of its [`redact_progress`](Hook::redact_progress) alone. The calls of a sub-agent need a
        /// hook of that agent.
        ///
        /// ```
        /// use turnstream::agent::hook;
        ///
        /// let quiet = hook::redact_progress(|_state, _call, data| *data = serde_json::Value::Null.into());
        /// # let _ = quiet;
        /// ```
        closure: redact_progress;
    }

    /// Changes a piece of evidence that a call has put on record, before
    /// [`after_tool`](Self::after_tool) and before anybody sees it, also that of a call that is
    /// dropped. A panic ends the run, after the other hooks got it as well, and `null` is kept.
    ///
    /// The calls of a sub-agent are the business of its own hooks: its events are handed on as they
    /// are.
    at_once redact_evidence(state, call: &ToolCall, evidence: &mut RawJson) {
        default: ();
        together { changing evidence, keeping [] }
        /// A hook of its [`redact_evidence`](Hook::redact_evidence) alone. The calls of a sub-agent need a
        /// hook of that agent.
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

    /// Whether the run stops here, at a boundary where the model wants more.
    ///
    /// It is asked behind each complete turn that is followed by another one: its tools have run, it
    /// was cut off or paused, or its reply is empty or has calls that cannot run. It is not asked
    /// where a turn failed, or where a budget has refused the calls. A model that has stopped by
    /// itself is [`before_stop`](Self::before_stop)'s business.
    ///
    /// The first `true` counts, and no hook behind it is asked.
    asked should_stop(state) -> bool {
        default: false;
        together { |stops: bool = false, answer| answer, until stops }
        /// A hook of its [`should_stop`](Hook::should_stop) alone.
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

    /// What is missing, if the last words of a model that has stopped say that it cannot go on. They are
    /// not an answer then, and no [validation](crate::Agent::with_validation) is asked about them.
    ///
    /// The first that is missing counts.
    at_once give_up_reason(state, turn: &Turn) -> Option<String> {
        default: None;
        together { |given: Option<String> = None, answer| given.or(answer), until given.is_some() }
        /// A hook of its [`give_up_reason`](Hook::give_up_reason) alone.
        closure: give_up_reason;
    }

    /// What the run proves when it ends as completed, if the hook judges that;
    /// [`Outcome::proof`](crate::Outcome::proof) has it. The first hook that judges counts. If none does,
    /// it is judged as [`RequireEvidence`](crate::agent::evidence::RequireEvidence) does by default.
    at_once judge_evidence(state) -> Option<EvidenceVerdict> {
        default: None;
        together { |given: Option<EvidenceVerdict> = None, answer| given.or(answer), until given.is_some() }
        /// A hook of its [`judge_evidence`](Hook::judge_evidence) alone.
        closure: judge_evidence;
    }

    /// Decides whether a model that is done may stop. It is not asked when a request failed.
    ///
    /// All hooks are asked. If any [blocks](StopDecision::Block), the model reads what all of those say;
    /// else the first that ends the run in another way than as completed counts.
    asked before_stop(state, turn: &'a Turn) -> StopDecision {
        default: StopDecision::Allow;
        together { |said: StopDecision = StopDecision::Allow, answer| said.combine(answer), until false }
        /// A hook of its [`before_stop`](Hook::before_stop) alone.
        ///
        /// ```
        /// use turnstream::agent::hook::{self, StopDecision};
        ///
        /// let tested = hook::before_stop(|_state, turn| async move {
        ///     match turn.text().contains("tests pass") {
        ///         true => StopDecision::Allow,
        ///         false => StopDecision::Block("Run the tests before you stop.".into()),
        ///     }
        /// });
        /// # let _ = tested;
        /// ```
        closure: before_stop;
    }

    /// Observes what went wrong: a request that failed, also if it is sent again, a compaction that
    /// failed, a hook that observes and failed, and the error that ends the run. Each is told once.
    ///
    /// It runs in the poll in which the error comes, so it must be quick. If it panics, nothing is
    /// told of that.
    at_once on_failure(state, error: &Error) {
        default: ();
        together { telling |_hooks, _panic| {} }
        /// A hook of its [`on_failure`](Hook::on_failure) alone.
        closure: on_failure;
    }

    /// Observes how the run ended. It is called once, and nothing is told after it but that it
    /// panicked.
    ///
    /// It runs in the poll that gives `finished`, so it must be quick: the run is over, and polls
    /// nothing any more.
    at_once on_finished(state, outcome: &Outcome) {
        default: ();
        together { telling |hooks, panic| hooks.on_failure(state, &panic) }
        /// A hook of its [`on_finished`](Hook::on_finished) alone.
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
