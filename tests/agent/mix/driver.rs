//! The driver: polls a run by hand, gives verdicts between two polls, and checks the state after
//! each.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::{Stream, StreamExt};
use turnstream::agent::{Pool, RunContext, RunHandle, State, loop_body};
use turnstream::event::AppendReason;
use turnstream::item::PendingCall;
use turnstream::replay::Recorder;
use turnstream::stream::Step;
use turnstream::task::InTaskExt;
use turnstream::tool::Verdict;
use turnstream::{Agent, Error, Event, History, Item, Journal, Outcome, Run, Usage};

use turnstream_test_support::clock;
use turnstream_test_support::random_agent::{self, ToolLog};
use turnstream_test_support::replays;
use turnstream_test_support::seeded_random::Dice;

/// The observations of one seed.
pub(crate) struct SeedRun {
    pub(crate) dice: Arc<Dice>,
    pub(crate) tools: Arc<ToolLog>,
    pub(crate) agent: Agent,
    pub(crate) is_dry: bool,
    /// Idempotency keys, as in the fields below.
    pub(crate) executed_keys: HashSet<String>,
    /// The number of executions that were checked.
    pub(crate) checked_count: usize,
    pub(crate) allowed_keys: HashSet<String>,
    pub(crate) started_keys: HashSet<String>,
    pub(crate) answer_counts: HashMap<String, usize>,
    pub(crate) verdicts: HashMap<String, (PendingCall, Verdict)>,
    /// The calls that wait for a verdict, with the ids of the calls that lead to their sub-agent.
    pub(crate) approval_requests: Vec<(Vec<String>, String, PendingCall)>,
}

#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns how the runs of the seed ended.
pub(crate) fn check_seed(seed: u64) -> Vec<String> {
    clock::paused_runtime().block_on(run_seed(seed))
}

async fn run_seed(seed: u64) -> Vec<String> {
    let dice = Dice::new(seed);
    let tools = Arc::new(ToolLog::default());
    let pool = Pool::new(if dice.one_in(4) { 400 } else { u64::MAX });
    let agent = random_agent::agent(&dice, &tools, &pool, 2).with_recorder(shared_recorder());
    let dry = agent.toolkit().is_dry_run();
    let mut mix = SeedRun {
        dice,
        tools,
        agent,
        is_dry: dry,
        executed_keys: HashSet::new(),
        checked_count: 0,
        allowed_keys: HashSet::new(),
        started_keys: HashSet::new(),
        answer_counts: HashMap::new(),
        verdicts: HashMap::new(),
        approval_requests: Vec::new(),
    };
    let mut ends = Vec::new();
    let mut history = History::empty("h");
    let mut pending = Vec::new();
    let mut chain: Option<Journal> = None;
    for _ in 0..5 {
        let resumes = !pending.is_empty() && !mix.dice.one_in(6);
        let run = match resumes {
            true => mix.resume_run(&history, &pending),
            false => mix.start_run(&history),
        };
        let used = pool.used_tokens();
        let began = match resumes {
            true => history.clone(),
            false => history.settled(),
        };
        // A store may have the events of several runs in sequence.
        let whole = chain.take().filter(|it| it.history() == began);
        let whole = whole.unwrap_or_else(|| Journal::new(began.clone()));
        let (outcome, left, usage) = mix.drive_run(run, began, &whole).await;
        if outcome.is_some() {
            assert_eq!(whole.history(), left, "the fold of all runs is the last history");
            // After a drop, the history may have items that no event reported.
            chain = Some(whole);
        }
        assert_eq!(pool.used_tokens() - used, usage.total(), "the pool is drained once");
        ends.push(match &outcome {
            Some(it) if resumes => format!("{} resumed", it.reason.as_str()),
            Some(it) => it.reason.as_str().to_owned(),
            None => "dropped".to_owned(),
        });
        let written = serde_json::to_string(&left).unwrap();
        history = serde_json::from_str(&written).unwrap();
        assert_eq!(history, left, "a history is what was written of it");
        pending = match outcome {
            Some(outcome) => outcome.pending,
            // Calls that a drop left unfinished can be resumed as well, and may run once more.
            None if mix.dice.one_in(2)
                && mix
                    .agent
                    .resume(history.clone(), [])
                    .is_err_and(|it| it.to_string().contains("no verdict")) =>
            {
                mix.forget_open_calls(&history);
                history.pending_calls()
            }
            None => Vec::new(),
        };
    }
    ends
}

/// A body that emits an event of its own before each iteration.
fn chatty_body(
    cx: RunContext,
    state: State,
) -> impl Stream<Item = Result<Step<Event, State>, Error>> + Send {
    async_stream::stream! {
        if state.approvals.resume_verdicts.is_none() {
            let items = vec![Item::user("Lap.")];
            yield Ok(Step::Value(Event::Appended { why: AppendReason::Hook, id: cx.new_id(), items }));
        }
        let mut lap = Box::pin(loop_body(cx, state));
        while let Some(step) = lap.next().await {
            yield step;
        }
    }
}

/// A recorder that replays every run when it is dropped.
pub(crate) fn shared_recorder() -> &'static Recorder {
    static RECORDER: LazyLock<Recorder> = LazyLock::new(|| {
        Recorder::to_callback(|run| {
            let is_lap = |event: &Event| matches!(event, Event::Appended { items, .. } if items[..] == [Item::user("Lap.")]);
            replays::check_replay(
                &run,
                match run.recording.events().any(is_lap) {
                    true => run.recording.replay_with_body(&run.agent, chatty_body),
                    false => run.recording.replay(&run.agent),
                },
            );
        })
    });
    &RECORDER
}

impl SeedRun {
    /// Allows unfinished calls, and all calls below them, to run again.
    fn forget_open_calls(&mut self, history: &History) {
        for call in history.unanswered_calls() {
            let key = format!("{}/{}", history.id(), call.call_id);
            // A task may have been ahead: its turn was complete, but was not reported yet.
            self.allowed_keys.insert(key.clone());
            let below = format!("{key}/");
            let is_it = |it: &String| *it == key || it.starts_with(&below);
            self.executed_keys.retain(|it| !is_it(it));
            self.started_keys.retain(|it| !is_it(it));
            self.answer_counts.retain(|it, _| !is_it(it));
            self.verdicts.retain(|it, _| !is_it(it));
        }
    }

    fn start_run(&self, history: &History) -> Run {
        match self.dice.roll(3) {
            0 => self.agent.run_with_body(chatty_body, history.clone(), "go"),
            _ => self.agent.run_from(history.clone(), "go"),
        }
    }

    fn resume_run(&mut self, history: &History, pending: &[PendingCall]) -> Run {
        let mut given: Vec<_> = pending
            .iter()
            .map(|call| {
                let external = call.name == "out";
                let verdict = match self.dice.roll(4) {
                    0 => Verdict::deny("no"),
                    1 => Verdict::Output(random_agent::tool_output(&self.dice)),
                    _ if external => Verdict::Output(random_agent::tool_output(&self.dice)),
                    _ => Verdict::Approve,
                };
                (call.clone(), verdict)
            })
            .collect();
        let ran = self.tools.executed_calls.lock().unwrap().len();
        if self.dice.one_in(3) {
            let mut wrong = given.clone();
            match self.dice.roll(3) {
                0 => drop(wrong.pop()),
                1 => wrong.push(wrong[0].clone()),
                _ => wrong[0].0.name.push('x'),
            }
            assert!(self.agent.resume(history.clone(), wrong).is_err());
        }
        if self.dice.one_in(2) {
            given.reverse();
        }
        for (call, verdict) in &given {
            let key = idempotency_key(history.id(), call);
            self.verdicts.insert(key, (call.clone(), verdict.clone()));
        }
        let run = match self.dice.roll(3) {
            0 => self.agent.resume_with_body(chatty_body, history.clone(), given),
            _ => self.agent.resume(history.clone(), given),
        };
        assert_eq!(self.tools.executed_calls.lock().unwrap().len(), ran);
        run.unwrap_or_else(|error| panic!("it cannot be resumed: {error:?} {history:?}"))
    }

    /// Returns the outcome unless the run was dropped, the history that is left, and the usage.
    async fn drive_run(
        &mut self,
        run: Run,
        began: History,
        whole: &Journal,
    ) -> (Option<Outcome>, History, Usage) {
        let folded = Journal::new(began);
        let bell = Arc::new(WakeFlag::default());
        let waker = Waker::from(Arc::clone(&bell));
        let (handle, journal) = (run.handle(), run.journal().clone());
        *self.tools.journal.lock().unwrap() = Some(journal.clone());
        // The task may run ahead of the consumer.
        let ahead = NonZero::new(usize::try_from(self.dice.roll(8)).unwrap());
        let mut run = match ahead {
            Some(ahead) => run.in_task(ahead).boxed(),
            None => run.boxed(),
        };
        let (mut given, mut silences) = (0_usize, 0);
        let (mut outcome, mut polls): (Option<Outcome>, u32) = (None, 0);
        self.approval_requests.clear();
        let ran_before = self.tools.executed_calls.lock().unwrap().len();
        let mut is_silent = false;
        loop {
            polls += 1;
            assert!(polls < 20_000, "it never ends");
            let polled = match bell.0.swap(false, Ordering::Relaxed) || !is_silent {
                true => run.poll_next_unpin(&mut Context::from_waker(&waker)),
                false => Poll::Pending,
            };
            is_silent = polled.is_pending();
            match polled {
                Poll::Ready(None) => break,
                Poll::Ready(Some(event)) => {
                    silences = 0;
                    let event = match event {
                        Ok(event) => event,
                        Err(error) => {
                            check_stream_error(outcome.as_ref(), &error);
                            continue;
                        }
                    };
                    assert!(outcome.is_none(), "an event followed the ending");
                    let line = serde_json::to_string(&event).unwrap();
                    let read: Event = serde_json::from_str(&line).unwrap();
                    folded.observe(&read);
                    whole.observe(&read);
                    self.record_event(folded.history().id(), &mut Vec::new(), &event);
                    if let Event::Finished(it) = event {
                        assert_eq!(self.tools.running_count.load(Ordering::Relaxed), 0, "running");
                        outcome = Some(*it);
                    }
                    if ahead.is_none() || outcome.is_some() {
                        self.check_state(&journal, &folded);
                    }
                }
                Poll::Pending => {
                    silences += 1;
                    if ahead.is_some() {
                        tokio::task::yield_now().await;
                    }
                    if !bell.0.load(Ordering::Relaxed) {
                        tokio::time::advance(Duration::from_millis(10)).await;
                    }
                    if silences > 40 {
                        for (path, key, call) in std::mem::take(&mut self.approval_requests) {
                            self.give_verdict(&handle, &path, &key, &call, Verdict::Approve);
                        }
                    }
                    assert!(silences < 400, "it hangs");
                }
            }
            match self.disturb_run(&handle) {
                Some(said) => given += usize::from(said),
                None if outcome.is_none() => break,
                None => {}
            }
        }
        let before = journal.history();
        drop(run);
        if ahead.is_some() {
            // The task is notified, and drops what it has.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            // The task was ahead: some calls ran without being reported before the drop.
            let ran = self.tools.executed_calls.lock().unwrap();
            for (key, ..) in &ran[self.checked_count..] {
                assert!(self.executed_keys.insert(key.clone()), "{key} ran twice");
                self.started_keys.insert(key.clone());
                self.allowed_keys.insert(key.clone());
            }
            self.checked_count = ran.len();
        }
        assert_eq!(self.tools.running_count.load(Ordering::Relaxed), 0, "nothing runs");
        assert!(ahead.is_some() || handle.history() == before, "a drop loses nothing");
        let ran = self.tools.executed_calls.lock().unwrap().len();
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(self.tools.executed_calls.lock().unwrap().len(), ran, "nothing begins");
        assert!(handle.steer("late").is_err());
        for (path, _, call) in &self.approval_requests {
            let late = handle_at(&handle, path).map(|it| it.approve(call).is_ok());
            assert!(late != Some(true), "a verdict was accepted that is never used");
        }
        if let Some(outcome) = &outcome {
            self.check_end(outcome, &handle, &folded, given, ran_before);
        }
        (outcome, handle.history(), journal.usage() + journal.nested_usage())
    }

    /// Performs a random action between two polls, or none. Returns whether it sent input; `None`
    /// means that the run is to be dropped.
    fn disturb_run(&mut self, handle: &RunHandle) -> Option<bool> {
        match self.dice.roll(400) {
            0..6 => return Some(handle.steer("Look here.").is_ok()),
            6..10 => return Some(handle.follow_up("And then?").is_ok()),
            10 => handle.stop_after_turn(),
            11 => handle.interrupt(),
            12 => return None,
            13 => Self::with_child_handle(handle, RunHandle::interrupt),
            14 => Self::with_child_handle(handle, RunHandle::stop_after_turn),
            15 => Self::with_child_handle(handle, |child| drop(child.steer("Look here, child."))),
            16..160 => self.decide_approval(handle),
            _ => {}
        }
        Some(false)
    }

    fn decide_approval(&mut self, handle: &RunHandle) {
        let Some(at) = self.approval_requests.len().checked_sub(1) else { return };
        let at = usize::try_from(self.dice.roll(at as u64 + 1)).unwrap();
        let (path, key, call) = self.approval_requests[at].clone();
        let verdict = match self.dice.roll(6) {
            0 => Verdict::deny("no"),
            1 => Verdict::Output(random_agent::tool_output(&self.dice)),
            2 => {
                let mut other = call.clone();
                match self.dice.roll(3) {
                    0 => other.arguments.push(' '),
                    1 => other.approval_id.push('x'),
                    _ => other.definition.push(' '),
                }
                let taken = self::handle_at(handle, &path).map(|it| it.approve(&other).is_ok());
                assert!(taken != Some(true), "a verdict on another call");
                return;
            }
            _ => Verdict::Approve,
        };
        self.approval_requests.remove(at);
        self.give_verdict(handle, &path, &key, &call, verdict);
    }

    fn give_verdict(
        &mut self,
        handle: &RunHandle,
        path: &[String],
        key: &str,
        call: &PendingCall,
        verdict: Verdict,
    ) {
        let Some(run) = handle_at(handle, path) else { panic!("no child at {path:?}") };
        if run.submit_verdict(call, verdict.clone()).is_ok() {
            assert!(run.approve(call).is_err(), "twice");
            self.verdicts.insert(key.to_owned(), (call.into(), verdict));
        }
    }

    fn with_child_handle(handle: &RunHandle, what: impl FnOnce(&RunHandle)) {
        let ids = handle.history().unanswered_calls();
        if let Some(child) = ids.iter().find_map(|call| handle.sub_agent_handle(&call.call_id)) {
            what(&child);
        }
    }
}

/// The handle at the end of a path of call ids.
fn handle_at(handle: &RunHandle, path: &[String]) -> Option<RunHandle> {
    path.iter().try_fold(handle.clone(), |handle, call_id| handle.sub_agent_handle(call_id))
}

/// Checks that an `Err` of the stream is the outcome's error, and comes after the outcome.
#[track_caller]
fn check_stream_error(outcome: Option<&Outcome>, error: &Error) {
    let own = outcome.and_then(|outcome| outcome.error.as_ref());
    assert_eq!(own, Some(error), "the error of a failed run");
}

/// The idempotency key of a call of the run on the history `id`, or of a sub-agent of it.
pub(crate) fn idempotency_key(id: &str, call: &PendingCall) -> String {
    let path = [&[id.to_owned()], &call.path[..], std::slice::from_ref(&call.call_id)].concat();
    path.join("/")
}
