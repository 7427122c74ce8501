//! An interrupt during a wait, and the order of hooks at the end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep};
use turnstream::agent::State;
use turnstream::agent::hook::{CallDecision, Hook, HookFuture, StopDecision};
use turnstream::context::{Compaction, Compactor};
use turnstream::event::{EndReason, InterruptedPhase};
use turnstream::item::{ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Reply, Retry, Scripted};
use turnstream::turn::Turn;
use turnstream::{Agent, Error, ErrorKind, History, Item, Outcome, Request, Run};

use turnstream_test_support::replays;
use turnstream_test_support::runs::{
    collect_rest, final_outcome, pull_ready, reply_calling, result_kinds, scripted_agent,
    tool_calls,
};
use turnstream_test_support::tools::{Counter, ok_tool};

const INTERRUPTED_STREAMING: EndReason = EndReason::Interrupted(InterruptedPhase::Streaming);
const INTERRUPTED_TOOLS: EndReason = EndReason::Interrupted(InterruptedPhase::Tools);

/// Interrupts a waiting run, and checks that it ends without any time passing.
async fn assert_ends_at_once(run: Run, reason: EndReason) -> Outcome {
    let handle = run.handle();
    let began = Instant::now();
    let waiting = tokio::spawn(run.outcome());
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished(), "it waits");
    handle.interrupt();
    let outcome = waiting.await.unwrap();
    assert_eq!((outcome.reason, began.elapsed()), (reason, Duration::ZERO));
    outcome
}

mod interrupt_during_a_wait {
    //! An interrupt during a backoff, a hook, a compaction or an approval ends the run immediately.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_during_a_backoff_ends_immediately_without_a_request() {
        let busy = Error::new(ErrorKind::Overloaded, "busy").with_status(529);
        let model = Scripted::new([Reply::error(busy), "never".into()]);
        let run = Agent::new(Retry::new(model.clone()))
            .with_recorder(replays::replaying_recorder())
            .run("go");
        let outcome = assert_ends_at_once(run, INTERRUPTED_STREAMING).await;
        assert_eq!(outcome.error, None);
        sleep(Duration::from_hours(1)).await;
        assert_eq!((model.requests().len(), model.in_flight()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_during_any_deciding_hook_ends_immediately() {
        for (method, reason) in [
            ("transform_context", INTERRUPTED_STREAMING),
            ("prepare", INTERRUPTED_STREAMING),
            ("before_tool", INTERRUPTED_STREAMING),
            ("should_stop", INTERRUPTED_TOOLS),
            ("stop", INTERRUPTED_STREAMING),
        ] {
            let (counter, ran) = (Counter::default(), Counter::default());
            let (agent, _) =
                scripted_agent([reply_calling("c1", "t"), "done".into()], vec![ok_tool("t", &ran)]);
            let run = agent.with_hook(PendingHook(method, counter.clone())).run("go");
            let outcome = assert_ends_at_once(run, reason).await;
            assert_eq!((counter.started_count(), counter.alive_count()), (1, 0), "{method}");
            let result =
                if ran.started_count() == 0 { ResultKind::Interrupted } else { ResultKind::Ok };
            let called = usize::from(!tool_calls(outcome.new_items()).is_empty());
            assert_eq!(result_kinds(outcome.new_items()), vec![result; called], "{method}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_during_a_compaction_ends_immediately_and_rewrites_nothing() {
        struct PendingCompactor(Counter);
        impl Compactor for PendingCompactor {
            fn compact(
                &self,
                _: &History,
            ) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
                let alive = self.0.enter();
                async move {
                    let _alive = alive;
                    std::future::pending().await
                }
                .boxed()
            }
        }
        let counter = Counter::default();
        let full = Error::new(ErrorKind::ContextWindow, "too long");
        let (agent, model) = scripted_agent([Reply::error(full), "never".into()], vec![]);
        let run = agent.with_compactor(PendingCompactor(counter.clone())).run("go");
        let outcome = assert_ends_at_once(run, INTERRUPTED_STREAMING).await;
        assert_eq!(
            (counter.started_count(), counter.alive_count(), model.requests().len()),
            (1, 0, 1)
        );
        assert_eq!(outcome.new_items(), [Item::user("go")]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_during_an_approval_ends_immediately() {
        let counter = Counter::default();
        let tools = vec![ok_tool("t", &counter).requires_approval()];
        let run = scripted_agent([reply_calling("c1", "t")], tools).0.interactive().run("go");
        let outcome = assert_ends_at_once(run, INTERRUPTED_TOOLS).await;
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Interrupted]);
        assert_eq!(counter.started_count(), 0);
    }
}

/// A hook that never answers in one of its deciding methods.
struct PendingHook(&'static str, Counter);

impl PendingHook {
    fn answer_unless_pending<T: Send + 'static>(
        &self,
        method: &str,
        otherwise: T,
    ) -> HookFuture<'static, T> {
        if self.0 != method {
            return std::future::ready(Ok(otherwise)).boxed();
        }
        let alive = self.1.enter();
        async move {
            let _alive = alive;
            std::future::pending().await
        }
        .boxed()
    }
}

impl Hook for PendingHook {
    fn transform_context<'a>(&'a self, _: &'a State, context: History) -> HookFuture<'a, History> {
        self.answer_unless_pending("transform_context", context)
    }
    fn prepare_request<'a>(&'a self, _: &'a State, request: Request) -> HookFuture<'a, Request> {
        self.answer_unless_pending("prepare", request)
    }
    fn before_tool<'a>(&'a self, _: &'a State, _: &'a ToolCall) -> HookFuture<'a, CallDecision> {
        self.answer_unless_pending("before_tool", CallDecision::Allow)
    }
    fn should_stop<'a>(&'a self, _: &'a State) -> HookFuture<'a, bool> {
        self.answer_unless_pending("should_stop", false)
    }
    fn before_stop<'a>(&'a self, _: &'a State, _: &'a Turn) -> HookFuture<'a, StopDecision> {
        self.answer_unless_pending("stop", StopDecision::Allow)
    }
}

/// A hook that records its notifications.
#[derive(Clone, Default)]
struct HookLog(Arc<Mutex<Vec<String>>>);

impl HookLog {
    fn push(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }
}

impl Hook for HookLog {
    fn prepare_request<'a>(&'a self, _: &'a State, request: Request) -> HookFuture<'a, Request> {
        self.push("prepare");
        std::future::ready(Ok(request)).boxed()
    }
    fn assistant_message(&self, _: &State, _: &Arc<Turn>) -> HookFuture<'static, ()> {
        self.push("assistant_message");
        std::future::ready(Ok(())).boxed()
    }
    fn before_tool<'a>(&'a self, _: &'a State, _: &'a ToolCall) -> HookFuture<'a, CallDecision> {
        self.push("before_tool");
        std::future::ready(Ok(CallDecision::Allow)).boxed()
    }
    fn after_tool(&self, _: &State, _: &ToolCall, _: &mut ToolResult) {
        self.push("after_tool");
    }
    fn before_stop<'a>(&'a self, _: &'a State, _: &'a Turn) -> HookFuture<'a, StopDecision> {
        self.push("stop");
        std::future::ready(Ok(StopDecision::Allow)).boxed()
    }
    fn on_failure(&self, _: &State, _: &Error) {
        self.push("failure");
    }
    fn on_finished(&self, _: &State, outcome: &Outcome) {
        self.push(format!("finished {}", outcome.reason));
    }
}

#[track_caller]
fn assert_end_reported_once(log: &HookLog, reason: EndReason) {
    let told = log.0.lock().unwrap().clone();
    let endings: Vec<_> = told.iter().filter(|told| told.starts_with("finished")).collect();
    assert_eq!(endings, [&format!("finished {reason}")], "{told:?}");
    assert!(told.last().unwrap().starts_with("finished"), "nothing is reported after it: {told:?}");
}

mod hooks_at_the_end {
    //! The notifications of hooks when a run ends, is interrupted or is dropped.

    use super::*;

    #[tokio::test]
    async fn hooks_see_finished_once_and_last_at_any_interrupt() {
        let mut reasons = Vec::new();
        for polls in 0..40 {
            let log = HookLog::default();
            let reply = Reply::text("so").call_raw("c1", "t", "{}").call_raw("c2", "t", "{}");
            let (agent, _) =
                scripted_agent([reply, "done".into()], vec![ok_tool("t", &Counter::default())]);
            let mut run = agent.with_hook(log.clone()).run("go");
            let mut events = Vec::new();
            for _ in 0..polls {
                events.extend(run.next().await.map(Result::unwrap));
            }
            run.interrupt();
            events.extend(collect_rest(&mut run).await);
            assert_end_reported_once(&log, final_outcome(&events).reason);
            reasons.push(final_outcome(&events).reason);
        }
        assert!(reasons.contains(&INTERRUPTED_STREAMING) && reasons.contains(&INTERRUPTED_TOOLS));
        assert!(reasons.contains(&EndReason::Completed), "the last interrupts come too late");
    }

    #[tokio::test]
    async fn hooks_see_finished_once_for_every_ending() {
        let error = Error::new(ErrorKind::Server, "broken");
        for (reply, reason) in [
            (Reply::text("done"), EndReason::Completed),
            (Reply::error(error), EndReason::ProviderError),
            (Reply::text("x").disconnect(), EndReason::Incomplete),
            (reply_calling("c1", "careful"), EndReason::Pending),
            (Reply::new().refuse("no"), EndReason::Refused),
        ] {
            let log = HookLog::default();
            let careful = ok_tool("careful", &Counter::default()).requires_approval();
            let mut run = scripted_agent([reply], vec![careful]).0.with_hook(log.clone()).run("go");
            let events = collect_rest(&mut run).await;
            assert_eq!(final_outcome(&events).reason, reason);
            assert!(run.next().await.is_none());
            assert_end_reported_once(&log, reason);
        }
    }

    #[tokio::test]
    async fn an_interrupt_is_not_a_failure_and_calls_no_stop_hook() {
        let log = HookLog::default();
        let (agent, _) = scripted_agent([Reply::text("x").hang()], vec![]);
        let mut run = agent.with_hook(log.clone()).run("go");
        pull_ready(&mut run);
        run.interrupt();
        collect_rest(&mut run).await;
        assert_eq!(*log.0.lock().unwrap(), ["prepare", "finished interrupted"]);
    }

    #[tokio::test]
    async fn a_drop_is_not_an_ending_and_notifies_no_hook() {
        let log = HookLog::default();
        let (agent, _) = scripted_agent([Reply::text("x").hang()], vec![]);
        let mut run = agent.with_hook(log.clone()).run("go");
        pull_ready(&mut run);
        drop(run);
        assert_eq!(*log.0.lock().unwrap(), ["prepare"]);
    }
}
