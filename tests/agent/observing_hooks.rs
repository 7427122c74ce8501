//! Hooks that observe delay nothing: they are polled as part of the run, which does not wait for
//! them.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_stream::try_stream;
use futures::executor::block_on;
use futures::task::{ArcWake, waker};
use futures::{Stream, StreamExt};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use turnstream::agent::hook::{self, Hook, HookFuture};
use turnstream::agent::{Decision, Limits, RunContext, State};
use turnstream::event::{AppendReason, EndReason};
use turnstream::item::{Content, ItemKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::stream::Step;
use turnstream::turn::Turn;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Request, Usage};

use turnstream_test_support::runs::{
    check_outcome, collect_rest, final_outcome, limits_without_retries, pull_ready, pull_until,
    reply_calling, scripted_agent, test_agent,
};
use turnstream_test_support::tools::{
    CountGuard, Counter, counted_tool, nap_tool, ok_tool, reply_calling_nap, uncounted_tool,
};

const SECOND: Duration = Duration::from_secs(1);

fn limits_with_hook_timeout(timeout: Duration) -> Limits {
    Limits { hook_timeout: Some(timeout), ..limits_without_retries() }
}

type Shared<T> = Arc<Mutex<T>>;

/// The errors that the hook `failure` receives, with the time since the start.
fn failure_log_hook() -> (Shared<Vec<(Error, Duration)>>, impl Hook + 'static) {
    let told = Shared::<Vec<(Error, Duration)>>::default();
    let (keep, began) = (Arc::clone(&told), Instant::now());
    let hook = hook::on_failure(move |_, error| {
        keep.lock().unwrap().push((error.clone(), began.elapsed()));
    });
    (told, hook)
}

/// A hook that adds a note after the `nth` turn, after a delay.
fn delayed_note_hook(nth: u32, text: &'static str, time: Duration) -> impl Hook + 'static {
    hook::after_sampling(move |state, _| async move {
        if state.counts.model_calls != nth {
            return Vec::new();
        }
        if time != Duration::ZERO {
            sleep(time).await;
        }
        vec![Item::user(text)]
    })
}

/// The user messages in a request.
fn user_messages(request: &Request) -> Vec<String> {
    request.history.iter().filter_map(Item::as_user).map(Content::text).collect()
}

/// A hook that never ends in one of its methods.
struct EndlessHook(&'static str, Counter);

impl EndlessHook {
    fn pend_in_method<T: Send + 'static>(
        &self,
        method: &str,
        otherwise: T,
    ) -> HookFuture<'static, T> {
        if method != self.0 {
            return Box::pin(async { Ok(otherwise) });
        }
        let alive = self.1.enter();
        Box::pin(async move {
            let _alive = alive;
            sleep(Duration::from_hours(1)).await;
            pending().await
        })
    }
}

impl Hook for EndlessHook {
    fn turn_started(&self, _: &State) -> HookFuture<'static, ()> {
        self.pend_in_method("turn_started", ())
    }

    fn assistant_message(&self, _: &State, _: &Arc<Turn>) -> HookFuture<'static, ()> {
        self.pend_in_method("assistant_message", ())
    }

    fn after_sampling(&self, _: &State, _: &Arc<Turn>) -> HookFuture<'static, Vec<Item>> {
        self.pend_in_method("after_sampling", Vec::new())
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_never_ends_delays_nothing_and_is_dropped_before_the_run_finishes() {
    for method in ["turn_started", "assistant_message", "after_sampling"] {
        let (counter, at_end) = (Counter::default(), Shared::default());
        let (model, keep) = (counter.clone(), Arc::clone(&at_end));
        let finished =
            hook::on_finished(move |_, _| *keep.lock().unwrap() = Some(model.alive_count()));
        let (told, failure) = failure_log_hook();
        let (agent, _) =
            scripted_agent([reply_calling("c", "t"), "done".into()], vec![ok_tool("t", &counter)]);
        let agent = agent.with_hook(EndlessHook(method, counter.clone()));
        let began = Instant::now();
        let run = agent.with_hook(failure).with_hook(finished).run("go");
        let handle = run.handle();
        check_outcome(&run.outcome().await, EndReason::Completed, 2);
        assert_eq!(began.elapsed(), Duration::ZERO, "{method}");
        // One for each turn, and one for the tool.
        assert_eq!((counter.started_count(), counter.alive_count()), (3, 0), "{method}");
        assert_eq!(*at_end.lock().unwrap(), Some(0), "{method}: dropped before it finishes");
        assert!(told.lock().unwrap().is_empty(), "to be dropped at the end is no failure");
        drop(handle);
    }
}

#[tokio::test(start_paused = true)]
async fn the_hook_timeout_ends_an_observer_and_is_reported_as_its_failure() {
    let counter = Counter::default();
    let (told, failure) = failure_log_hook();
    let (agent, _) =
        scripted_agent([reply_calling_nap(&[60_000]), "done".into()], vec![nap_tool("nap")]);
    let agent = agent.with_hook(EndlessHook("assistant_message", counter.clone()));
    let began = Instant::now();
    let mut run =
        agent.with_hook(failure).with_limits(limits_with_hook_timeout(5 * SECOND)).run("go");
    let at_tool = pull_until(&mut run, |event| event.tool_output().is_some());
    at_tool.await;
    assert_eq!(
        (counter.started_count(), counter.alive_count()),
        (1, 0),
        "dropped when its time was over"
    );
    check_outcome(&run.outcome().await, EndReason::Completed, 2);
    assert_eq!(began.elapsed(), 60 * SECOND);
    let told = told.lock().unwrap();
    let [(error, at)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((error.kind(), *at), (ErrorKind::Hook, 5 * SECOND));
    let message = error.to_string();
    assert!(message.contains("`assistant_message`: it took longer than 5s"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_late_observer_failure_is_reported_when_it_occurs_and_the_run_continues() {
    let (told, failure) = failure_log_hook();
    let panics = hook::turn_started(|state| async move {
        sleep(3 * SECOND).await;
        assert_ne!(state.counts.model_calls, 1, "boom");
    });
    let fails = hook::after_sampling(|_, _| async {
        sleep(4 * SECOND).await;
        Err::<Vec<Item>, _>(Error::new(ErrorKind::Store, "disk full"))
    });
    let (agent, _) =
        scripted_agent([reply_calling_nap(&[10_000]), "done".into()], vec![nap_tool("nap")]);
    let agent = agent.with_hook(panics).with_hook(fails).with_hook(failure);
    check_outcome(&agent.run("go").outcome().await, EndReason::Completed, 2);
    let told = told.lock().unwrap();
    let [(panicked, first), (failed, second)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*first, *second), (3 * SECOND, 4 * SECOND));
    assert!(panicked.message().contains("`turn_started`: it panicked"), "{panicked}");
    assert!(failed.message().contains("`after_sampling`: disk full"), "{failed}");
    assert_eq!(failed.find_source::<Error>().unwrap().kind(), ErrorKind::Store);
}

#[tokio::test(start_paused = true)]
async fn observer_notes_are_added_to_the_next_request_that_is_built() {
    let script = [reply_calling_nap(&[10_000]), reply_calling_nap(&[10_000]), "done".into()];
    let (agent, model) = scripted_agent(script, vec![nap_tool("nap")]);
    let agent = agent
        .with_hook(delayed_note_hook(1, "late", 15 * SECOND))
        .with_hook(delayed_note_hook(1, "in time", 5 * SECOND))
        .with_hook(delayed_note_hook(1, "at once", Duration::ZERO))
        .with_hook(delayed_note_hook(1, "never", 25 * SECOND))
        .with_hook(delayed_note_hook(3, "after the end", Duration::ZERO));
    let began = Instant::now();
    let outcome = agent.run("go").outcome().await;
    check_outcome(&outcome, EndReason::Completed, 3);
    assert_eq!(began.elapsed(), 20 * SECOND);
    let requests = model.requests();
    assert_eq!(user_messages(&requests[0]), ["go"]);
    assert_eq!(user_messages(&requests[1]), ["go", "at once", "in time"]);
    assert_eq!(user_messages(&requests[2]), ["go", "at once", "in time", "late"]);
    let last = outcome.history.iter().filter_map(Item::as_user).next_back().unwrap();
    assert_eq!(last.text(), "late", "a note without a following request is not sent");
}

#[tokio::test]
async fn notes_of_observers_that_are_ready_together_form_one_event_in_hook_order() {
    let (agent, _) = scripted_agent(
        [reply_calling("c", "t"), "done".into()],
        vec![ok_tool("t", &Counter::default())],
    );
    let agent = agent
        .with_hook(delayed_note_hook(1, "first", Duration::ZERO))
        .with_hook(delayed_note_hook(1, "second", Duration::ZERO));
    let events = collect_rest(&mut agent.run("go")).await;
    check_outcome(final_outcome(&events), EndReason::Completed, 2);
    let notes = events.iter().filter_map(|event| match event {
        Event::Appended { why: AppendReason::Hook, items, .. } => Some(items.clone()),
        _ => None,
    });
    assert_eq!(notes.collect::<Vec<_>>(), [[Item::user("first"), Item::user("second")]]);
}

/// A custom body: it sends two requests, and waits a second after each turn.
fn waiting_body(
    cx: RunContext,
    mut state: State,
) -> impl Stream<Item = Result<Step<Event, State>, Error>> + Send {
    try_stream! {
        loop {
            let event;
            (state, event) = cx.deliver_next_input(state);
            let Some(event) = event else { break };
            yield Step::Value(event);
        }
        let (mut state, request) = cx.next_request(state).await?;
        let request = request.expect("no pool");
        yield Step::Value(cx.turn_started_event(&state));
        let mut events = cx.send_request(&state, request);
        let mut said = None;
        while let Some(event) = events.next().await {
            let event = Event::from(event?);
            said = said.or_else(|| event.turn_complete().cloned());
            yield Step::Value(event);
        }
        let turn = said.expect("a turn");
        cx.notify_turn(&state, &turn);
        sleep(SECOND).await;
        let answers = cx.run_tools(&state, Some(&turn), &Decision::RunTools)?;
        state = state.with_tool_results(Some(&turn), answers.finish()?);
        yield match state.counts.model_calls {
            1 => Step::Next(state),
            _ => Step::StopWith(state.with_end_reason(EndReason::Completed)),
        };
    }
}

#[tokio::test(start_paused = true)]
async fn observers_are_also_polled_with_a_custom_body() {
    let counter = Counter::default();
    let (told, failure) = failure_log_hook();
    let model = Scripted::new(["one", "two"]);
    let agent = Agent::new(model.clone())
        .with_hook(delayed_note_hook(1, "noted", SECOND / 2))
        .with_hook(EndlessHook("turn_started", counter.clone()))
        .with_hook(failure);
    let run = agent.with_limits(limits_with_hook_timeout(SECOND + SECOND / 2)).run_with_body(
        waiting_body,
        History::empty("h"),
        "go",
    );
    check_outcome(&run.outcome().await, EndReason::Completed, 2);
    assert_eq!(user_messages(&model.requests()[1]), ["go", "noted"]);
    assert_eq!((counter.started_count(), counter.alive_count()), (2, 0));
    let told = told.lock().unwrap();
    assert_eq!(
        told.len(),
        1,
        "the first ran out of time, the second was dropped at the end: {told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_observers_of_a_sub_agent_are_polled_by_its_run_and_end_with_it() {
    let counter = Counter::default();
    let (child, model) =
        scripted_agent([reply_calling_nap(&[10_000]), "found".into()], vec![nap_tool("nap")]);
    let child = child
        .with_hook(delayed_note_hook(1, "noted", 5 * SECOND))
        .with_hook(EndlessHook("turn_started", counter.clone()));
    let parents = Scripted::new([
        Reply::new()
            .call("research", json!({ "prompt": "look" }))
            .call("nap", json!({ "ms": 20_000 })),
        "done".into(),
    ]);
    let tools = [child.as_tool("research", "Finds things out").unwrap(), nap_tool("nap")];
    let mut run = test_agent(parents.clone()).with_tools(tools).run("go");
    let nested = |event: &Event| match event {
        Event::Nested { event, .. } => event.outcome().is_some(),
        _ => false,
    };
    pull_until(&mut run, nested).await;
    assert_eq!(
        (counter.started_count(), counter.alive_count()),
        (2, 0),
        "they end with the child, not the parent"
    );
    check_outcome(&run.outcome().await, EndReason::Completed, 2);
    assert_eq!(user_messages(&model.requests()[1]), ["look", "noted"]);
    assert_eq!(user_messages(&parents.requests()[1]), ["go"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_drops_its_observers_synchronously_and_notifies_no_hook() {
    let (counter, child) = (Counter::default(), Counter::default());
    let (told, failure) = failure_log_hook();
    let below = test_agent(Scripted::new([Reply::text("x").hang()]))
        .with_hook(EndlessHook("turn_started", child.clone()))
        .as_tool("sub", "Goes deeper")
        .unwrap();
    let reply = Reply::new().call("sub", json!({ "prompt": "go" }));
    let agent = scripted_agent([reply], vec![below]).0;
    let hooked = agent.with_hook(EndlessHook("assistant_message", counter.clone()));
    let mut run =
        hooked.with_hook(EndlessHook("turn_started", counter.clone())).with_hook(failure).run("go");
    let handle = run.handle();
    pull_ready(&mut run);
    assert_eq!((counter.alive_count(), child.alive_count()), (2, 1));
    drop(run);
    assert_eq!((counter.alive_count(), child.alive_count()), (0, 0));
    assert!(told.lock().unwrap().is_empty());
    drop(handle);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_drops_observers_in_the_poll_that_ends_the_run() {
    let counter = Counter::default();
    let (agent, _) = scripted_agent([Reply::text("x").hang()], vec![]);
    let mut run = agent.with_hook(EndlessHook("turn_started", counter.clone())).run("go");
    pull_ready(&mut run);
    assert_eq!(counter.alive_count(), 1);
    run.interrupt();
    pull_until(&mut run, |event| {
        assert_eq!(counter.alive_count(), 0);
        event.outcome().is_some()
    })
    .await;
}

/// A hook that records each poll and wakes itself, for ever.
fn self_waking_hook(
    log: &Shared<Vec<&'static str>>,
    who: &'static str,
) -> impl Future<Output = String> + use<> {
    let log = Arc::clone(log);
    poll_fn(move |cx| {
        log.lock().unwrap().push(who);
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

#[tokio::test(start_paused = true)]
async fn each_poll_of_the_run_polls_its_observers_first_in_start_order() {
    let log = Shared::<Vec<&str>>::default();
    let (first, second, tool) = (Arc::clone(&log), Arc::clone(&log), Arc::clone(&log));
    let noisy_tool =
        counted_tool("t", &Counter::default(), move |_| self_waking_hook(&tool, "tool"));
    let agent = scripted_agent([reply_calling("c", "t")], vec![noisy_tool]).0;
    let run = agent
        .with_hook(hook::assistant_message(move |_, _| {
            let polls = self_waking_hook(&first, "first");
            async move { drop(polls.await) }
        }))
        .with_hook(hook::after_sampling(move |_, _| {
            let polls = self_waking_hook(&second, "second");
            async move { vec![Item::user(polls.await)] }
        }))
        .run("go");
    let mut run = pin!(run);
    let mut cx = Context::from_waker(Waker::noop());
    while !log.lock().unwrap().contains(&"tool") {
        let _ = run.as_mut().poll_next(&mut cx);
    }
    let begun = std::mem::take(&mut *log.lock().unwrap());
    assert_eq!(begun[..2], ["first", "second"], "once where they begin");
    for _ in 0..3 {
        assert!(run.as_mut().poll_next(&mut cx).is_pending());
        assert_eq!(std::mem::take(&mut *log.lock().unwrap()), ["first", "second", "tool"]);
    }
}

#[tokio::test]
async fn an_observer_that_is_ready_immediately_ends_before_the_next_event_is_yielded() {
    let log = Shared::<Vec<&str>>::default();
    let (started, said) = (Arc::clone(&log), Arc::clone(&log));
    let (agent, _) = scripted_agent(
        [reply_calling("c", "t"), "done".into()],
        vec![ok_tool("t", &Counter::default())],
    );
    let mut run = agent
        .with_hook(hook::turn_started(move |_| {
            let log = Arc::clone(&started);
            async move { log.lock().unwrap().push("turn_started") }
        }))
        .with_hook(hook::assistant_message(move |_, _| {
            let log = Arc::clone(&said);
            async move { log.lock().unwrap().push("assistant_message") }
        }))
        .run("go");
    pull_until(&mut run, |event| matches!(event, Event::TurnStarted { .. })).await;
    assert!(log.lock().unwrap().is_empty(), "the request is not sent yet");
    run.next().await.unwrap().unwrap();
    assert_eq!(*log.lock().unwrap(), ["turn_started"]);
    pull_until(&mut run, |event| event.turn_complete().is_some()).await;
    run.next().await.unwrap().unwrap();
    assert_eq!(*log.lock().unwrap(), ["turn_started", "assistant_message"]);
}

/// Counts how many times it wakes.
#[derive(Default)]
struct WakeCounter(Counter);

impl ArcWake for WakeCounter {
    fn wake_by_ref(this: &Arc<Self>) {
        drop::<CountGuard>(this.0.enter());
    }
}

#[tokio::test(start_paused = true)]
async fn observers_wake_the_run_without_a_busy_loop() {
    let (go_on, wait) = oneshot::channel::<()>();
    let (wait, heard) = (Mutex::new(Some(wait)), Counter::default());
    let again = heard.clone();
    let waits = hook::turn_started(move |_| {
        let (wait, heard) = (wait.lock().unwrap().take(), again.clone());
        async move {
            wait.expect("one turn").await.unwrap();
            drop(heard.enter());
            pending::<()>().await;
        }
    });
    // The wait starts with the poll in which the hook starts.
    let (agent, _) = scripted_agent([Reply::new().hang()], vec![]);
    let run = agent.with_hook(waits).run("go");
    let mut run = pin!(run);
    let count = Arc::new(WakeCounter::default());
    let waker = waker(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    while run.as_mut().poll_next(&mut cx).is_ready() {}
    assert_eq!((count.0.started_count(), heard.started_count()), (0, 0));
    go_on.send(()).unwrap();
    assert_eq!(count.0.started_count(), 1, "the observer wakes it");
    for _ in 0..3 {
        assert!(run.as_mut().poll_next(&mut cx).is_pending());
        assert_eq!((count.0.started_count(), heard.started_count()), (1, 1), "nothing else does");
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_can_unblock_the_loop_that_waits_for_its_effect() {
    let (go_on, wait) = oneshot::channel::<String>();
    let (go_on, wait) = (Mutex::new(Some(go_on)), Mutex::new(Some(wait)));
    let tells = hook::assistant_message(move |_, _| {
        let go_on = go_on.lock().unwrap().take();
        async move {
            sleep(SECOND).await;
            let _ = go_on.map(|go_on| go_on.send("told".to_owned()));
        }
    });
    let waits = counted_tool("waits", &Counter::default(), move |_| {
        let wait = wait.lock().unwrap().take();
        async move { wait.expect("one call").await.unwrap() }
    });
    let (agent, _) = scripted_agent([reply_calling("c", "waits"), "done".into()], vec![waits]);
    let began = Instant::now();
    check_outcome(&agent.with_hook(tells).run("go").outcome().await, EndReason::Completed, 2);
    assert_eq!(began.elapsed(), SECOND);
}

/// A future that never ends, and panics when it is dropped.
fn panic_on_drop_future() -> impl Future<Output = ()> {
    struct PanicOnDrop;

    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("in the drop"));
        }
    }

    async {
        let _bomb = PanicOnDrop;
        pending::<()>().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_observers_drop_does_not_affect_the_run() {
    let hooked = || {
        let (told, failure) = failure_log_hook();
        let (agent, _) = scripted_agent(["done".into()], vec![]);
        let agent = agent.with_hook(hook::turn_started(|_| panic_on_drop_future()));
        let agent = agent
            .with_hook(hook::assistant_message(|_, _| panic_on_drop_future()))
            .with_hook(failure);
        (agent, told)
    };
    let (agent, told) = hooked();
    check_outcome(&agent.run("go").outcome().await, EndReason::Completed, 1);
    let messages: Vec<_> =
        told.lock().unwrap().iter().map(|(error, _)| error.message().to_owned()).collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages.iter().all(|it| it.ends_with("it panicked: in the drop")), "{messages:?}");
    // A run that its owner drops notifies no hook.
    let (agent, told) = hooked();
    let mut run = agent.run("go");
    pull_until(&mut run, |event| event.text_delta().is_some()).await;
    drop(run);
    assert!(told.lock().unwrap().is_empty());
}

#[test]
fn without_timers_an_explicit_observer_timeout_fails_and_the_default_is_ignored() {
    let told = || {
        let told = Shared::<Vec<Error>>::default();
        let keep = Arc::clone(&told);
        (told, hook::on_failure(move |_, error| keep.lock().unwrap().push(error.clone())))
    };
    let hooked = || {
        let (agent, _) = scripted_agent(["done".into()], vec![]);
        agent.with_hook(hook::turn_started(|_| pending::<()>()))
    };
    let (none, failure) = told();
    let outcome = block_on(hooked().with_hook(failure).run("go").outcome());
    check_outcome(&outcome, EndReason::Completed, 1);
    assert!(none.lock().unwrap().is_empty());
    let (one, failure) = told();
    let limited = hooked().with_hook(failure).with_limits(limits_with_hook_timeout(SECOND));
    check_outcome(&block_on(limited.run("go").outcome()), EndReason::Completed, 1);
    let one = one.lock().unwrap();
    let [error] = &one[..] else { panic!("{one:?}") };
    assert!(error.message().contains("needs a tokio runtime"), "{error}");
}

#[tokio::test]
async fn no_observer_starts_after_the_run_has_ended() {
    let (counter, kept) = (Counter::default(), Shared::<Option<(RunContext, State)>>::default());
    let keep = Arc::clone(&kept);
    let (agent, _) = scripted_agent(["done".into()], vec![]);
    let agent: Agent = agent.with_hook(EndlessHook("assistant_message", counter.clone()));
    let run = agent.run_with_body(
        move |cx, state| {
            *keep.lock().unwrap() = Some((cx.clone(), state.clone()));
            turnstream::agent::loop_body(cx, state)
        },
        History::empty("h"),
        "go",
    );
    let mut run = run;
    let event = pull_until(&mut run, |event| event.turn_complete().is_some()).await;
    let turn = event.turn_complete().unwrap().clone();
    collect_rest(&mut run).await;
    drop(run);
    let (cx, state) = kept.lock().unwrap().take().unwrap();
    let began = counter.started_count();
    cx.notify_turn(&state, &turn);
    assert_eq!((counter.started_count(), counter.alive_count()), (began, 0));
}

#[tokio::test]
async fn a_hook_receives_the_text_reasoning_calls_and_usage_of_a_turn() {
    let seen: Shared<Vec<Turn>> = Shared::default();
    let log = Arc::clone(&seen);
    let observes = hook::assistant_message(move |_, turn| {
        log.lock().unwrap().push((*turn).clone());
        async {}
    });
    let usage = Usage { input_tokens: 30, output_tokens: 7, ..Usage::default() };
    let reply =
        Reply::new().think("Hm.").say("Let me look.").usage(usage).call("t", json!({"n": 1}));
    let agent = Agent::new(Scripted::new([reply, "Done.".into()])).with_hook(observes);
    agent.with_tool(uncounted_tool("t")).run("go").outcome().await;
    let seen = seen.lock().unwrap();
    let [turn, last] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((turn.text().as_str(), turn.usage()), ("Let me look.", usage));
    let items = turn.to_history_items();
    let reasoning = items.iter().filter_map(|item| match &item.kind {
        ItemKind::Reasoning { text } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(reasoning.collect::<Vec<_>>(), ["Hm."]);
    let calls: Vec<_> = turn.tool_calls().map(|call| (&*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("t", r#"{"n":1}"#)]);
    assert_eq!(last.text(), "Done.");
}
