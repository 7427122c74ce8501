//! A run environment that stores the value of each effect, as a durable engine does. A run that is
//! stopped at any effect, dropped, and run again with the stored values continues as if it had not
//! been stopped.

use std::collections::{BTreeMap, HashSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use futures::{Stream, StreamExt};
use serde_json::json;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::agent::{Budget, Pool, loop_body};
use turnstream::context::{Compaction, compactor_fn};
use turnstream::env::Ids;
use turnstream::event::{AppendReason, ToolEvent};
use turnstream::item::{PendingCall, ToolCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::stream::{TurnStream, seal};
use turnstream::tool::{
    Permission, PreparedCall, SavedCalls, Tool, ToolHandler, ToolList, ToolPolicy, ToolRun,
    ToolSource, ToolSpec, ToolUpdate, Verdict,
};
use turnstream::world::{
    Effect, EffectKey, EffectKind, EffectValue, SavedTurn, SendRequest, World,
};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Request, Run, TurnEvent, Usage};

use turnstream_test_support::cases;
use turnstream_test_support::items::token_usage;
use turnstream_test_support::tools::spec;

/// The usage of each request of a hook.
const JUDGE_USAGE: Usage = token_usage(5, 0);

/// The values that an engine stores across all attempts, as JSON.
#[derive(Default)]
struct EffectStore {
    values: Mutex<BTreeMap<EffectKey, String>>,
    /// The keys of the performed effects, in order, with repetitions.
    performed_keys: Mutex<Vec<EffectKey>>,
}

/// How an attempt is stopped at the `n`th performed effect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StopPoint {
    Never,
    /// The effect is requested, and not polled.
    Before(usize),
    /// The effect is in flight.
    During(usize),
    /// The effect's value is stored, and nothing else happens.
    After(usize),
}

/// One attempt.
#[derive(Clone)]
struct Attempt(Arc<Inner>);

struct Inner {
    engine: Arc<EffectStore>,
    stop: StopPoint,
    /// Values that were drawn since the last value was stored.
    pending_draws: Mutex<Vec<(EffectKey, String)>>,
    /// The number of requested effects that were not stored.
    begun_count: Mutex<usize>,
    /// Only effects of running calls stop the attempt.
    stops_in_calls: AtomicBool,
    is_stopped: AtomicBool,
    /// The number of events when the effect started at which the attempt was stopped.
    event_count_at_stop: Mutex<usize>,
    event_count: Mutex<usize>,
    /// The keys of this attempt differ from those of the others.
    has_unstable_keys: bool,
}

impl Attempt {
    fn new(engine: &Arc<EffectStore>, stop: StopPoint, has_unstable_keys: bool) -> Self {
        Self(Arc::new(Inner {
            engine: Arc::clone(engine),
            stop,
            pending_draws: Mutex::default(),
            begun_count: Mutex::default(),
            stops_in_calls: AtomicBool::default(),
            is_stopped: AtomicBool::default(),
            event_count_at_stop: Mutex::default(),
            event_count: Mutex::default(),
            has_unstable_keys,
        }))
    }

    fn key(&self, key: &EffectKey) -> EffectKey {
        let mut key = key.clone();
        if self.0.has_unstable_keys {
            key.nth += 1;
        }
        key
    }

    fn kept(&self, key: &EffectKey) -> Option<String> {
        self.0.engine.values.lock().unwrap().get(&self.key(key)).cloned()
    }

    /// The number of the next effect that is not stored.
    fn next_effect_number(&self) -> usize {
        let mut begun = self.0.begun_count.lock().unwrap();
        *begun += 1;
        *self.0.event_count.lock().unwrap() = *self.0.event_count_at_stop.lock().unwrap();
        *begun
    }

    fn record_performed(&self, key: &EffectKey) {
        self.0.engine.performed_keys.lock().unwrap().push(key.clone());
    }

    /// Stores a value, and the values that were drawn before it.
    fn store_value(&self, key: &EffectKey, json: String) {
        let mut kept = self.0.engine.values.lock().unwrap();
        kept.extend(std::mem::take(&mut *self.0.pending_draws.lock().unwrap()));
        assert!(kept.insert(self.key(key), json).is_none(), "{key} is kept twice");
    }

    fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::Relaxed)
    }

    /// Performs an effect, and stops the attempt if this is the effect to stop at.
    fn perform<T: Send + 'static>(
        &self,
        key: &EffectKey,
        effect: BoxFuture<'static, T>,
        json: fn(&T) -> String,
    ) -> BoxFuture<'static, T> {
        let (this, key, n) = (self.clone(), key.clone(), self.next_effect_number());
        let mut effect = effect;
        let mut began = false;
        poll_fn(move |cx| {
            if this.0.stop == StopPoint::Before(n) || this.is_stopped() {
                this.stop();
                return Poll::Pending;
            }
            if !std::mem::replace(&mut began, true) {
                this.record_performed(&key);
            }
            let polled = effect.poll_unpin(cx);
            if this.0.stop == StopPoint::During(n) {
                this.stop();
                return Poll::Pending;
            }
            let made = std::task::ready!(polled);
            this.store_value(&key, json(&made));
            if this.0.stop == StopPoint::After(n) {
                this.stop();
                return Poll::Pending;
            }
            Poll::Ready(made)
        })
        .boxed()
    }
}

/// A policy that permits no call.
struct RefusingPolicy;

impl ToolPolicy for RefusingPolicy {
    fn before_call(&mut self, _call: &ToolCall) -> BoxFuture<'static, Result<Permission, Error>> {
        future::pending().boxed()
    }
}

/// A result as JSON.
fn to_json(made: &Result<EffectValue, Error>) -> String {
    match made {
        Ok(value) => json!({ "value": value.to_json().unwrap() }).to_string(),
        Err(error) => json!({ "error": error }).to_string(),
    }
}

fn from_json(text: &str) -> Result<EffectValue, Error> {
    let mut made: serde_json::Value = serde_json::from_str(text).unwrap();
    match made.get_mut("error") {
        Some(error) => Err(serde_json::from_value(error.take()).unwrap()),
        None => Ok(EffectValue::from_json(made["value"].take().into())),
    }
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Attempt")
    }
}

impl World for Attempt {
    fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
        if let Some(kept) = self.kept(key) {
            return from_json(&kept).unwrap();
        }
        let drawn = match key.kind {
            // Derived from the key.
            EffectKind::Id => EffectValue::new(key.to_string()),
            // The owner sends input before the second request.
            EffectKind::DeliveredInput
                if (key.iteration, key.nth) == (2, 1) && key.run.starts_with("steered") =>
            {
                EffectValue::new(Some(Event::Appended {
                    why: AppendReason::Steer,
                    id: key.to_string(),
                    items: vec![Item::user("And there?")],
                }))
            }
            _ => live(),
        };
        // As JSON, so that the first attempt receives the same value as later ones.
        let json = to_json(&Ok(drawn));
        self.0.pending_draws.lock().unwrap().push((self.key(key), json.clone()));
        from_json(&json).unwrap()
    }

    fn step(&self, key: &EffectKey, effect: Effect) -> Effect {
        match self.kept(key) {
            Some(kept) => future::ready(from_json(&kept)).boxed(),
            None => self.perform(key, effect, to_json),
        }
    }

    fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream {
        if let Some(kept) = self.kept(key) {
            return serde_json::from_str::<SavedTurn>(&kept).unwrap().into_stream(&request);
        }
        let (this, key, n) = (self.clone(), key.clone(), self.next_effect_number());
        if self.0.stop == StopPoint::Before(n) {
            self.stop();
            return seal(&request, futures::stream::pending::<Result<TurnEvent, Error>>());
        }
        self.record_performed(&key);
        let mut kept = SavedTurn::default();
        ask(request).observed_by(move |item| {
            kept.observe(item);
            if this.0.stop == StopPoint::During(n) {
                this.stop();
            } else if kept.is_complete() {
                this.store_value(&key, serde_json::to_string(&kept).unwrap());
                if this.0.stop == StopPoint::After(n) {
                    this.stop();
                }
            }
        })
    }

    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun {
        if let Some(kept) = self.kept(key) {
            return calls.with_saved_calls(serde_json::from_str::<SavedCalls>(&kept).unwrap());
        }
        let (this, key, n) = (self.clone(), key.clone(), self.next_effect_number());
        if self.0.stop == StopPoint::Before(n) {
            self.stop();
            return calls.with_policy(RefusingPolicy);
        }
        self.record_performed(&key);
        self.0.stops_in_calls.store(self.0.stop == StopPoint::During(n), Ordering::Relaxed);
        calls.on_complete(move |kept| {
            this.0.stops_in_calls.store(false, Ordering::Relaxed);
            if this.0.stop == StopPoint::During(n) {
                // None of its calls has started.
                return this.stop();
            }
            this.store_value(&key, serde_json::to_string(&kept).unwrap());
            if this.0.stop == StopPoint::After(n) {
                this.stop();
            }
        })
    }

    fn can_suspend(&self) -> bool {
        true
    }

    fn suspend(
        &self,
        key: &EffectKey,
        calls: Vec<PendingCall>,
        _limit: Option<Duration>,
    ) -> BoxFuture<'static, Result<Vec<(PendingCall, Verdict)>, Error>> {
        let approve = |calls: Vec<PendingCall>| {
            Ok(calls.into_iter().map(|call| (call, Verdict::Approve)).collect())
        };
        match self.kept(key) {
            Some(kept) => future::ready(approve(serde_json::from_str(&kept).unwrap())).boxed(),
            None => {
                let approved = future::ready(approve(calls)).boxed();
                self.perform(key, approved, |made| {
                    let calls: Vec<_> = made.iter().flatten().map(|(call, _)| call).collect();
                    serde_json::to_string(&calls).unwrap()
                })
            }
        }
    }

    fn observe(&self, event: &Event) {
        *self.0.event_count_at_stop.lock().unwrap() += 1;
        let is_call = matches!(event, Event::Tool(ToolEvent::Started { .. }));
        if is_call && self.0.stops_in_calls.load(Ordering::Relaxed) {
            self.stop();
        }
    }
}

/// One script of the grid.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    /// The number of turns with tool calls, and of calls per turn.
    turn_count: usize,
    calls_per_turn: usize,
    feature: Feature,
    has_hooks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Feature {
    Nothing,
    Approval,
    Steering,
    Compaction,
    Fallback,
    SubAgent,
    Pool,
    OwnStep,
    ToolSource,
    Failure,
}

/// The effects of tools.
type EffectLog = Arc<Mutex<Vec<String>>>;

/// A generator of one constant id, so that a sub-agent's items and the requests for verdicts have
/// the same ids in each attempt.
struct ConstantIds;

impl Ids for ConstantIds {
    fn next_id(&self) -> String {
        "id".to_owned()
    }
}

/// A tool that reports progress, and then returns a result.
struct LookTool {
    spec: ToolSpec,
    log: EffectLog,
}

impl ToolHandler for LookTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, _arguments: &str) -> Result<PreparedCall, String> {
        let log = Arc::clone(&self.log);
        Ok(PreparedCall::new(move |cx| {
            log.lock().unwrap().push(cx.call_id().to_owned());
            futures::stream::iter([ToolUpdate::progress(&1), ToolUpdate::output("rain")]).boxed()
        }))
    }
}

/// A source with the tool, and one more tool for each call that has run.
struct LookSource(EffectLog);

impl ToolSource for LookSource {
    fn name(&self) -> &'static str {
        "looks"
    }

    fn list_tools(&self) -> BoxFuture<'static, Result<ToolList, Error>> {
        let log = Arc::clone(&self.0);
        async move {
            let ran: HashSet<String> = log.lock().unwrap().iter().cloned().collect();
            let names = (0..ran.len()).map(|n| format!("look_{n}"));
            let look = |name: String| {
                Tool::from_handler(LookTool { spec: spec(&name), log: Arc::clone(&log) })
            };
            Ok(ToolList::new(["look".to_owned()].into_iter().chain(names).map(look)))
        }
        .boxed()
    }
}

impl Scenario {
    fn build_agent(self, log: &EffectLog) -> Agent {
        let Self { turn_count: turns, calls_per_turn: calls, feature: extra, has_hooks: hooks } =
            self;
        let model = move |fails: bool| {
            Scripted::from_fn(move |request: &Request, _| {
                let results = request.history.iter().filter(|item| item.as_tool_result().is_some());
                let results = results.count();
                let lost = || Error::new(ErrorKind::Connect, "the connection was lost");
                match results < turns * calls {
                    true => (0..calls).fold(Reply::text("Let me look."), |reply, at| {
                        let (id, name) = (format!("c{}", results + at), tool_name(extra, at));
                        reply.call_raw(&id, name, r#"{"prompt":"look"}"#)
                    }),
                    false if fails => Reply::text("I s").fail(lost()),
                    false => Reply::text("I see rain."),
                }
            })
        };
        let look = Tool::from_handler(LookTool { spec: spec("look"), log: Arc::clone(log) });
        let look = if extra == Feature::Approval { look.requires_approval() } else { look };
        let mut agent = Agent::new(model(matches!(extra, Feature::Fallback | Feature::Failure)));
        if extra != Feature::ToolSource {
            agent = agent.with_tool(look);
        }
        match extra {
            Feature::ToolSource => {
                agent = agent.with_tool_source(LookSource(Arc::clone(log)));
            }
            Feature::Approval => agent = agent.interactive().with_ids(ConstantIds),
            Feature::Fallback => agent = agent.with_fallback(model(false)),
            Feature::Pool => {
                agent = agent.with_budget(Budget::new().with_pool(Pool::new(100_000)));
            }
            Feature::SubAgent => {
                let child = Agent::new(Scripted::from_fn(|_, _| Reply::text("Sun.")));
                let child = child.with_ids(ConstantIds);
                agent = agent.with_tool(child.as_tool("ask", "Asks").unwrap());
            }
            Feature::Compaction => {
                agent = agent.with_window(turnstream::context::Window::new(60)).with_compactor(
                    compactor_fn(|history: &History| {
                        let to = history.len().saturating_sub(3);
                        let is_long =
                            history.iter().filter(|it| it.as_user().is_none()).count() > 4;
                        let note = || vec![Item::user("It rained.")];
                        Ok(is_long.then(|| Compaction::new(1, to.max(2), note())))
                    }),
                );
            }
            Feature::Nothing | Feature::Steering | Feature::OwnStep | Feature::Failure => {}
        }
        if hooks {
            agent = agent
                .with_hook(hook::prepare_request(|state, mut request| {
                    request.system.volatile = format!("Request {}.", state.counts.model_calls);
                    state.report_helper("router", None, JUDGE_USAGE);
                    async move { request }
                }))
                .with_hook(hook::should_stop(|state| {
                    state.report_helper("observer", None, JUDGE_USAGE);
                    async { false }
                }))
                .with_hook(hook::before_stop(|state, _| {
                    state.report_helper("judge", None, JUDGE_USAGE);
                    let said = match state.streaks.idle_turns {
                        0 => StopDecision::Continue("Look again.".into()),
                        _ => StopDecision::Allow,
                    };
                    async move { said }
                }));
        }
        agent
    }

    fn start_run(self, log: &EffectLog, attempt: &Attempt) -> Run {
        let attempt = attempt.clone();
        let agent = self.build_agent(log).with_world(move |_, _| attempt.clone());
        let name = if self.feature == Feature::Steering { "steered" } else { "h" };
        let history = History::empty(name);
        if self.feature != Feature::OwnStep {
            return agent.run_from(history, "How is it?");
        }
        let log = Arc::clone(log);
        agent.run_with_body(
            move |cx, state| {
                let log = Arc::clone(&log);
                async_stream::try_stream! {
                    let lap = state.counts.model_calls;
                    let weather: String = cx
                        .step("weather", async move {
                            log.lock().unwrap().push(format!("weather {lap}"));
                            Ok(format!("rain {lap}"))
                        })
                        .await?;
                    assert_eq!(weather, format!("rain {lap}"));
                    let mut steps = Box::pin(loop_body(cx, state));
                    while let Some(step) = steps.next().await {
                        yield step?;
                    }
                }
            },
            history,
            "How is it?",
        )
    }
}

fn tool_name(extra: Feature, at: usize) -> &'static str {
    if extra == Feature::SubAgent && at == 0 { "ask" } else { "look" }
}

/// Pulls a run until it ends or its attempt is stopped, and drops it.
async fn pull_until_stopped(mut run: Run, attempt: &Attempt) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let polled = poll_fn(|cx| {
            let polled = Pin::new(&mut run).poll_next(cx);
            match polled {
                Poll::Pending if attempt.is_stopped() => Poll::Ready(None),
                Poll::Ready(Some(Ok(event))) => Poll::Ready(Some(Some(event))),
                Poll::Ready(Some(Err(_))) => Poll::Ready(Some(None)),
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        match polled.await {
            Some(event) => events.extend(event),
            None => return events,
        }
        if attempt.is_stopped() {
            return events;
        }
    }
}

/// Whether an effect with a stored value emits the event again.
fn is_replayed(event: &Event) -> bool {
    match event {
        Event::Turn(event) => {
            matches!(event, TurnEvent::TurnComplete { .. } | TurnEvent::Retracted { .. })
        }
        Event::Tool(ToolEvent::Progress { .. }) | Event::Nested { .. } => false,
        _ => true,
    }
}

fn without_live_events(events: &[Event]) -> Vec<Event> {
    events.iter().filter(|event| is_replayed(event)).cloned().collect()
}

/// The counts of a script's checks.
#[derive(Debug, Default)]
struct CheckSummary {
    stop_count: usize,
    in_flight_stop_count: usize,
}

/// Stops the run of a script at its `n`th effect in each way, and runs it again.
async fn check_scenario(script: Scenario, has_unstable_keys: bool) -> Result<CheckSummary, String> {
    let (log, engine) = (EffectLog::default(), Arc::default());
    let attempt = Attempt::new(&engine, StopPoint::Never, false);
    let whole = pull_until_stopped(script.start_run(&log, &attempt), &attempt).await;
    let effects = engine.performed_keys.lock().unwrap().clone();
    let work = log.lock().unwrap().clone();
    if whole.last().and_then(Event::outcome).is_none() {
        return Err(format!("{script:?} does not end"));
    }
    let mut came = CheckSummary::default();
    for n in 1..=effects.len() {
        for stop in [StopPoint::Before(n), StopPoint::During(n), StopPoint::After(n)] {
            let (log, engine) = (EffectLog::default(), Arc::default());
            let first = Attempt::new(&engine, stop, false);
            let before = pull_until_stopped(script.start_run(&log, &first), &first).await;
            if !first.is_stopped() {
                return Err(format!("{script:?} was not stopped: {stop:?}"));
            }
            let failed = |what: &str| Err(format!("{script:?}, {stop:?}: {what}"));
            if !whole.starts_with(&before) {
                return failed("the events before the stop differ");
            }
            let kept: HashSet<EffectKey> = engine.values.lock().unwrap().keys().cloned().collect();
            let done = engine.performed_keys.lock().unwrap().len();
            let second = Attempt::new(&engine, StopPoint::Never, has_unstable_keys);
            let after = pull_until_stopped(script.start_run(&log, &second), &second).await;

            if without_live_events(&after) != without_live_events(&whole) {
                return failed("the events differ");
            }
            // All deltas are emitted from the effect that was in flight, or else from the next one.
            let from = match stop {
                StopPoint::After(_) => {
                    let rest = whole[before.len()..].iter().position(is_replayed);
                    before.len() + rest.map_or(0, |at| at + 1)
                }
                _ => *first.0.event_count.lock().unwrap(),
            };
            let is_delta_kept = matches!(stop, StopPoint::After(_));
            let tail = &whole[from..];
            let tail = if is_delta_kept { without_live_events(tail) } else { tail.to_vec() };
            let end = if is_delta_kept { without_live_events(&after) } else { after.clone() };
            if !end.ends_with(&tail) {
                return failed("the events after the stop differ");
            }
            let performed = engine.performed_keys.lock().unwrap().clone();
            if performed[done..].iter().any(|key| kept.contains(key)) {
                return failed("an effect was performed again whose value was kept");
            }
            let mut times = BTreeMap::<EffectKey, usize>::new();
            for key in &performed {
                *times.entry(key.clone()).or_default() += 1;
            }
            if times.keys().ne(effects.iter().collect::<std::collections::BTreeSet<_>>()) {
                return failed("other effects were performed");
            }
            let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
            let in_flight = matches!(stop, StopPoint::During(_));
            if twice.len() > usize::from(in_flight) || twice.iter().any(|(_, times)| **times > 2) {
                return failed("an effect was performed twice that was not in flight");
            }
            came.in_flight_stop_count += twice.len();
            // Tool effects may be repeated only if they were in flight.
            if !in_flight && *log.lock().unwrap() != work {
                return failed("tools ran otherwise");
            }
            came.stop_count += 1;
        }
    }
    Ok(came)
}

fn all_scenarios() -> Vec<Scenario> {
    use Feature::{
        Approval, Compaction, Failure, Fallback, Nothing, OwnStep, Pool, Steering, SubAgent,
        ToolSource,
    };
    let extras = [
        Nothing, Approval, Steering, Compaction, Fallback, SubAgent, Pool, OwnStep, ToolSource,
        Failure,
    ];
    let mut scripts = Vec::new();
    for extra in extras {
        for (turns, calls) in [(0, 0), (1, 1), (1, 3), (2, 2), (3, 1)] {
            for hooks in [false, true] {
                scripts.push(Scenario {
                    turn_count: turns,
                    calls_per_turn: calls,
                    feature: extra,
                    has_hooks: hooks,
                });
            }
        }
    }
    scripts
}

#[tokio::test(start_paused = true)]
async fn a_run_stopped_at_any_effect_continues_from_the_stored_values() {
    // Shares no factor with the 10 scenarios of each feature.
    let step = cases::sample_step(7);
    let mut all = CheckSummary::default();
    for script in all_scenarios().into_iter().step_by(step) {
        let came = check_scenario(script, false).await.unwrap_or_else(|why| panic!("{why}"));
        all.stop_count += came.stop_count;
        all.in_flight_stop_count += came.in_flight_stop_count;
    }
    println!("stopped at {} effects; {} were in flight", all.stop_count, all.in_flight_stop_count);
    assert!(all.stop_count >= 2_000 / step, "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn unstable_effect_keys_are_detected() {
    let script =
        Scenario { turn_count: 1, calls_per_turn: 1, feature: Feature::Nothing, has_hooks: false };
    let why = check_scenario(script, true).await.unwrap_err();
    assert!(why.contains("other effects") || why.contains("performed"), "{why}");
}
