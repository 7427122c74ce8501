//! Hooks that fail.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, OnceLock};

use futures::future::ready;
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;
use turnstream::agent::hook::{self, CallDecision, Hook, HookFuture, StopDecision};
use turnstream::agent::{RunHandle, State};
use turnstream::context;
use turnstream::event::EndReason;
use turnstream::item::{ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::turn::Turn;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Outcome, Request, Toolkit};

use turnstream_test_support::runs::{
    check_outcome, collect_rest, final_outcome, pull_until, reply_calling, result_kinds,
    result_summaries, scripted_agent, tool_results,
};
use turnstream_test_support::tools::{Counter, ok_tool, pending_tool};

#[derive(Clone, Copy, Debug, PartialEq)]
enum FailureMode {
    Fails,
    Panics,
    Hangs,
}

/// A hook of which one method fails on its `nth` call.
struct FailingHook {
    method: &'static str,
    how: FailureMode,
    nth: usize,
    call_count: Mutex<usize>,
}

impl FailingHook {
    fn new(method: &'static str, how: FailureMode, nth: usize) -> Self {
        Self { method, how, nth, call_count: Mutex::default() }
    }

    fn is_due(&self, method: &str) -> bool {
        if method != self.method {
            return false;
        }
        let mut asked = self.call_count.lock().unwrap();
        *asked += 1;
        *asked == self.nth
    }

    fn at_once(&self, method: &str) {
        if self.is_due(method) {
            std::panic::resume_unwind(Box::new("boom"));
        }
    }

    fn answer<T: Send + 'static>(&self, method: &str, otherwise: T) -> HookFuture<'static, T> {
        if !self.is_due(method) {
            return ready(Ok(otherwise)).boxed();
        }
        match self.how {
            FailureMode::Fails => ready(Err(Error::new(ErrorKind::Other, "no"))).boxed(),
            FailureMode::Panics => async { std::panic::resume_unwind(Box::new("boom")) }.boxed(),
            FailureMode::Hangs => futures::future::pending().boxed(),
        }
    }
}

impl Hook for FailingHook {
    fn name(&self) -> std::borrow::Cow<'_, str> {
        "bad".into()
    }
    fn transform_context<'a>(&'a self, _: &'a State, context: History) -> HookFuture<'a, History> {
        self.answer("transform_context", context)
    }
    fn prepare_request<'a>(&'a self, _: &'a State, request: Request) -> HookFuture<'a, Request> {
        self.answer("prepare", request)
    }
    fn turn_started(&self, _: &State) -> HookFuture<'static, ()> {
        self.answer("turn_started", ())
    }
    fn assistant_message(&self, _: &State, _: &Arc<Turn>) -> HookFuture<'static, ()> {
        self.answer("assistant_message", ())
    }
    fn after_sampling(&self, _: &State, _: &Arc<Turn>) -> HookFuture<'static, Vec<Item>> {
        self.answer("after_sampling", Vec::new())
    }
    fn before_tool<'a>(&'a self, _: &'a State, _: &'a ToolCall) -> HookFuture<'a, CallDecision> {
        self.answer("before_tool", CallDecision::Allow)
    }
    fn repair_arguments(&self, _: &State, _: &ToolCall, _: &str) -> Option<String> {
        self.at_once("repair");
        None
    }
    fn after_tool(&self, _: &State, _: &ToolCall, _: &mut ToolResult) {
        self.at_once("after_tool");
    }
    fn should_stop<'a>(&'a self, _: &'a State) -> HookFuture<'a, bool> {
        self.answer("should_stop", false)
    }
    fn before_stop<'a>(&'a self, _: &'a State, _: &'a Turn) -> HookFuture<'a, StopDecision> {
        self.answer("stop", StopDecision::Allow)
    }
    fn on_failure(&self, _: &State, _: &Error) {
        self.at_once("failure");
    }
    fn on_finished(&self, _: &State, _: &Outcome) {
        self.at_once("finished");
    }
}

/// A run with a turn of two calls and a turn of text, and a failing hook.
async fn run_with_hook(bad: FailingHook) -> (Vec<Event>, History) {
    let (events, history, _) = run_with_failure_log(bad).await;
    (events, history)
}

/// The same, and the failures that another hook was notified of.
async fn run_with_failure_log(bad: FailingHook) -> (Vec<Event>, History, Vec<Error>) {
    let told = Arc::<Mutex<Vec<Error>>>::default();
    let keep = Arc::clone(&told);
    let failure = hook::on_failure(move |_, error| keep.lock().unwrap().push(error.clone()));
    let reply = reply_calling("c1", "t").call_raw("c2", "t", "{}");
    let kit =
        Toolkit::new([ok_tool("t", &Counter::default())]).with_max_concurrency(NonZeroUsize::MIN);
    let (agent, _) = scripted_agent([reply, "done".into()], vec![]);
    let mut run = agent.with_toolkit(kit).with_hook(bad).with_hook(failure).run("go");
    let events = collect_rest(&mut run).await;
    assert!(run.next().await.is_none());
    let told = told.lock().unwrap().clone();
    (events, run.history(), told)
}

mod failing_hooks {
    //! Hooks, checks and compactors that fail or panic.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failing_deciding_hook_ends_the_run_and_is_reported_once() {
        let methods = ["transform_context", "prepare", "before_tool", "should_stop", "stop"];
        for method in methods {
            for how in [FailureMode::Fails, FailureMode::Panics, FailureMode::Hangs] {
                let began = Instant::now();
                let (events, history, told) =
                    run_with_failure_log(FailingHook::new(method, how, 1)).await;
                let outcome = final_outcome(&events);
                assert_eq!(outcome.reason, EndReason::HookError, "{method} {how:?}");
                let error = outcome.error.as_ref().unwrap();
                assert_eq!(error.kind(), ErrorKind::Hook);
                let message = error.to_string();
                assert!(message.contains("bad") && message.contains(method), "{message}");
                assert_eq!(told, std::slice::from_ref(error), "{method} {how:?}");
                let waited = if how == FailureMode::Hangs { 30 } else { 0 };
                assert_eq!(began.elapsed().as_secs(), waited, "{method} {how:?}");
                assert!(history.is_settled(), "{method} {how:?}: {history:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_observing_hook_is_reported_and_does_not_end_the_run() {
        for method in ["turn_started", "assistant_message", "after_sampling"] {
            for how in [FailureMode::Fails, FailureMode::Panics, FailureMode::Hangs] {
                let began = Instant::now();
                let (events, history, told) =
                    run_with_failure_log(FailingHook::new(method, how, 1)).await;
                check_outcome(final_outcome(&events), EndReason::Completed, 2);
                assert_eq!(final_outcome(&events).error, None, "{method} {how:?}");
                assert_eq!(began.elapsed().as_secs(), 0, "{method} {how:?}");
                assert_eq!(result_kinds(&history), [ResultKind::Ok; 2], "{method} {how:?}");
                // A hook that hangs has not failed when the run ends.
                let times = usize::from(how != FailureMode::Hangs);
                let expected = vec![ErrorKind::Hook; times];
                let found: Vec<_> = told.iter().map(Error::kind).collect();
                assert_eq!(found, expected, "{method} {how:?}");
                let names = |error: &Error| {
                    error.message().contains(&format!("`bad` failed in `{method}`"))
                };
                assert!(told.iter().all(names), "{told:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn finished_results_are_kept_when_a_hook_fails() {
        use ResultKind::{Interrupted, Ok};
        for (method, nth, expected) in [
            ("before_tool", 1, [Interrupted, Interrupted]),
            ("before_tool", 2, [Ok, Interrupted]),
            ("should_stop", 1, [Ok, Ok]),
            ("prepare", 2, [Ok, Ok]),
            ("stop", 1, [Ok, Ok]),
        ] {
            for how in [FailureMode::Fails, FailureMode::Panics, FailureMode::Hangs] {
                let (events, history) = run_with_hook(FailingHook::new(method, how, nth)).await;
                assert_eq!(final_outcome(&events).reason, EndReason::HookError);
                assert_eq!(result_kinds(&history), expected, "{method} {nth} {how:?}");
                assert_eq!(result_kinds(final_outcome(&events).new_items()), expected);
            }
        }
    }

    #[tokio::test]
    async fn a_panic_in_after_tool_keeps_the_original_result() {
        for (nth, second) in [(1, ResultKind::Interrupted), (2, ResultKind::Ok)] {
            let (events, history) =
                run_with_hook(FailingHook::new("after_tool", FailureMode::Panics, nth)).await;
            assert_eq!(final_outcome(&events).reason, EndReason::HookError);
            assert_eq!(final_outcome(&events).error.as_ref().unwrap().kind(), ErrorKind::Hook);
            assert_eq!(result_kinds(&history), [ResultKind::Ok, second]);
            assert_eq!(tool_results(&history)[0].content.text(), "fine");
        }
    }

    #[tokio::test]
    async fn a_panic_in_a_repair_hook_ends_the_run_with_its_error() {
        let counter = Counter::default();
        let reply = reply_calling("c1", "endless").call_raw("c2", "endless", "[");
        let (agent, _) =
            scripted_agent([reply, "never".into()], vec![pending_tool("endless", &counter)]);
        let mut run = agent.with_hook(FailingHook::new("repair", FailureMode::Panics, 1)).run("go");
        let events = collect_rest(&mut run).await;
        let outcome = final_outcome(&events);
        check_outcome(outcome, EndReason::HookError, 1);
        let message = outcome.error.as_ref().unwrap().to_string();
        assert!(message.contains("`bad` failed in `repair_arguments`"), "{message}");
        // A tool that was started concurrently is dropped before its first poll.
        assert_eq!((counter.started_count(), counter.alive_count()), (0, 0));
        assert_eq!(result_kinds(&run.history()), [ResultKind::Interrupted; 2]);
    }

    #[tokio::test]
    async fn a_panic_in_a_notification_hook_changes_nothing() {
        let (events, _, told) =
            run_with_failure_log(FailingHook::new("finished", FailureMode::Panics, 1)).await;
        check_outcome(final_outcome(&events), EndReason::Completed, 2);
        let [error] = &told[..] else { panic!("{told:?}") };
        assert!(
            error.message().ends_with("`bad` failed in `on_finished`: it panicked: boom"),
            "{error}"
        );
        let error = Error::new(ErrorKind::Server, "broken");
        let (agent, _) = scripted_agent([Reply::error(error.clone())], vec![]);
        let hooked = agent.with_hook(FailingHook::new("failure", FailureMode::Panics, 1));
        let outcome = hooked.run("go").outcome().await;
        check_outcome(&outcome, EndReason::ProviderError, 1);
        assert_eq!(outcome.error, Some(error));
    }

    #[tokio::test]
    async fn every_error_that_ends_a_run_is_reported_once() {
        fn boom() -> ! {
            std::panic::resume_unwind(Box::new("boom"))
        }
        let broken = Error::new(ErrorKind::Server, "broken");
        let words = || scripted_agent(["done".into()], vec![]).0;
        let two = || [ok_tool("t", &Counter::default()), ok_tool("t", &Counter::default())];
        let after_tool = FailingHook::new("after_tool", FailureMode::Panics, 1);
        let cases = [
            (scripted_agent([Reply::error(broken)], vec![]).0, ErrorKind::Server),
            (scripted_agent([Reply::text("x").disconnect()], vec![]).0, ErrorKind::IncompleteTurn),
            (words().with_tools(two()), ErrorKind::InvalidRequest),
            (Agent::new(Scripted::from_fn(|_, _| -> Reply { boom() })), ErrorKind::Panic),
            (words().with_validation(|_| -> Result<(), String> { boom() }), ErrorKind::Hook),
            (
                scripted_agent([reply_calling("c", "t")], vec![ok_tool("t", &Counter::default())])
                    .0
                    .with_hook(after_tool),
                ErrorKind::Hook,
            ),
        ];
        for (agent, kind) in cases {
            let told = Arc::<Mutex<Vec<Error>>>::default();
            let keep = Arc::clone(&told);
            let failure =
                hook::on_failure(move |_, error| keep.lock().unwrap().push(error.clone()));
            let outcome = agent.with_hook(failure).run("go").outcome().await;
            let error = outcome.error.expect("it failed");
            assert_eq!(error.kind(), kind);
            assert_eq!(*told.lock().unwrap(), [error]);
        }
    }

    #[tokio::test]
    async fn an_error_in_the_poll_of_an_interrupt_is_still_reported() {
        let handle = Arc::<OnceLock<RunHandle>>::default();
        let own = Arc::clone(&handle);
        let failing = hook::before_stop(move |_, _| {
            own.get().unwrap().interrupt();
            async { Err::<StopDecision, _>(Error::new(ErrorKind::Other, "no")) }
        });
        let told = Arc::<Mutex<Vec<ErrorKind>>>::default();
        let keep = Arc::clone(&told);
        let failure = hook::on_failure(move |_, error| keep.lock().unwrap().push(error.kind()));
        let (agent, _) = scripted_agent(["done".into()], vec![]);
        let run = agent.with_hook(failing).with_hook(failure).run("go");
        handle.set(run.handle()).unwrap();
        let outcome = run.outcome().await;
        assert!(matches!(outcome.reason, EndReason::Interrupted(_)), "{outcome:?}");
        assert_eq!(
            (outcome.error, told.lock().unwrap().as_slice()),
            (None, &[ErrorKind::Hook][..])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_hook_drops_concurrent_work() {
        for how in [FailureMode::Fails, FailureMode::Panics, FailureMode::Hangs] {
            let counter = Counter::default();
            let reply = reply_calling("c1", "endless").call_raw("c2", "endless", "{}");
            let (agent, _) = scripted_agent([reply], vec![pending_tool("endless", &counter)]);
            let mut run = agent.with_hook(FailingHook::new("before_tool", how, 2)).run("go");
            pull_until(&mut run, |event| event.tool_output().is_some()).await;
            // The tool is polled only if the hook hangs.
            let began = usize::from(matches!(how, FailureMode::Hangs));
            assert_eq!((counter.started_count(), counter.alive_count()), (began, 0), "{how:?}");
            let outcome = run.outcome().await;
            check_outcome(&outcome, EndReason::HookError, 1);
            let texts: Vec<_> =
                result_summaries(outcome.new_items()).into_iter().map(|it| it.2).collect();
            assert_eq!(texts, ["Interrupted mid-execution", "Interrupted by user"]);
        }
    }

    #[tokio::test]
    async fn a_panic_in_after_tool_drops_concurrent_calls() {
        let counter = Counter::default();
        let tools = vec![pending_tool("endless", &counter), ok_tool("t", &Counter::default())];
        let reply = reply_calling("c1", "endless").call_raw("c2", "t", "{}");
        let bad = FailingHook::new("after_tool", FailureMode::Panics, 1);
        let mut run = scripted_agent([reply], tools).0.with_hook(bad).run("go");
        pull_until(&mut run, |event| event.tool_output().is_some()).await;
        assert_eq!((counter.started_count(), counter.alive_count()), (1, 0));
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::HookError, 1);
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Interrupted, ResultKind::Ok]);
    }

    #[tokio::test]
    async fn a_panicking_check_or_compactor_ends_the_run_once() {
        fn boom() -> ! {
            std::panic::resume_unwind(Box::new("boom"))
        }
        let (first, _) = scripted_agent(["done".into()], vec![]);
        let checked = first.with_validation(|_| -> Result<(), String> { boom() });
        let events = collect_rest(&mut checked.run("go")).await;
        check_outcome(final_outcome(&events), EndReason::HookError, 1);
        assert_eq!(final_outcome(&events).text, "done");

        let full = Error::new(ErrorKind::ContextWindow, "too long");
        let (second, _) = scripted_agent([Reply::error(full.clone())], vec![]);
        let compacted = second.with_compactor(context::compactor_fn(|_| boom()));
        let events = collect_rest(&mut compacted.run("go")).await;
        check_outcome(final_outcome(&events), EndReason::ContextWindow, 1);
        assert_eq!(final_outcome(&events).error, Some(full));
    }
}
