//! Durable runs in a hub: the events that readers receive, and the effects of the hub's commands.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join;
use turnstream::durable::{Attempt, is_attempt_lost};
use turnstream::event::EndReason;
use turnstream::hub::{Command, EventNumber, Hub, HubEvent, MemoryInbox, MemoryLog, SlowReaders};
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Journal, Outcome, TurnEvent};

use turnstream_test_support::tools::nap_tool;
use turnstream_testing::durable_suite::{Loss, LossMoment, LossPlan, MemoryEngine};

const RUN: &str = "run-1";

fn results(history: &History) -> usize {
    history.iter().filter(|item| item.as_tool_result().is_some()).count()
}

/// An agent that streams a text, calls a tool, and streams another text, slowly.
fn talking_agent() -> Agent {
    let model = Scripted::from_fn(|request, _| match results(&request.history) {
        0 => Reply::new()
            .say("Let ")
            .say("me ")
            .delay(Duration::from_millis(2))
            .say("look.")
            .call_raw("c1", "nap", r#"{"ms":3}"#),
        1 => Reply::new().say("And ").say("again.").call_raw("c2", "nap", "{}").call_raw(
            "c3",
            "nap",
            r#"{"ms":2}"#,
        ),
        _ => Reply::new().say("All ").delay(Duration::from_millis(2)).say("is ").say("done."),
    });
    Agent::new(model).with_tool(nap_tool("nap").idempotent())
}

fn attempt(agent: &Agent, hub: &Hub) -> Attempt {
    Attempt::run(agent, "s", Vec::new(), "Do it.").with_hub(hub, RUN)
}

async fn drive_all(agent: &Agent, hub: &Hub, plan: &LossPlan) -> Outcome {
    let first = MemoryEngine::new();
    loop {
        let mut engine = plan.wrap(first.next_attempt());
        match attempt(agent, hub).drive(&mut engine).await {
            Err(error) if is_attempt_lost(&error) => {
                assert!(plan.attempts() < 50, "lost again and again: {error}");
                // The hub drops an attempt when its task runs.
                tokio::task::yield_now().await;
            }
            done => return done.unwrap(),
        }
    }
}

/// A reader's view of a run.
#[derive(Default)]
struct Reading {
    journal: Option<Journal>,
    /// The text of the current turn and of earlier ones, as a screen shows them.
    words: Vec<String>,
    open: String,
    finished: Vec<Outcome>,
}

impl Reading {
    fn observe(&mut self, event: &Event) {
        match event {
            Event::Turn(TurnEvent::TextDelta { text, .. }) => self.open.push_str(text),
            Event::Turn(TurnEvent::Retracted { .. }) => self.open.clear(),
            Event::Turn(TurnEvent::TurnComplete { turn }) => {
                // A turn in the snapshot has no deltas.
                let text = turn.text();
                assert!(self.open.is_empty() || self.open == text, "{:?}, {text:?}", self.open);
                self.open.clear();
                self.words.push(text);
            }
            Event::Finished(outcome) => self.finished.push((**outcome).clone()),
            _ => {}
        }
        self.journal.as_ref().unwrap().observe(event);
    }

    /// Returns whether the run has ended.
    fn read(&mut self, read: &HubEvent) -> bool {
        match read {
            HubEvent::Snapshot { snapshot, .. } => {
                *self = Self::default();
                self.journal = Some(Journal::new(snapshot.start().clone()));
                for event in snapshot.events() {
                    self.observe(event);
                }
                false
            }
            HubEvent::Event { event, .. } => {
                self.observe(event);
                false
            }
            HubEvent::Ended { error, .. } => {
                assert!(error.is_none(), "{error:?}");
                true
            }
            other => panic!("{other:?}"),
        }
    }

    fn check(&self, outcome: &Outcome) {
        assert_eq!(self.finished.len(), 1);
        assert_eq!(self.finished[0], *outcome);
        let read = self.journal.as_ref().unwrap().history();
        assert!(
            read == outcome.history,
            "a reader has {read:#?}, and the run {:#?}",
            outcome.history
        );
    }
}

/// Reads a run to its end, and continues after the last number when an attempt is lost.
async fn read_to_end(hub: &Hub) -> Reading {
    let (mut reading, mut number): (_, Option<EventNumber>) = (Reading::default(), None);
    for _ in 0..10_000 {
        let Ok(mut reader) = hub.read_run(RUN, number.as_ref()) else {
            tokio::time::sleep(Duration::from_micros(100)).await;
            continue;
        };
        while let Some(Ok(read)) = reader.next().await {
            number = read.number().cloned();
            if reading.read(&read) {
                return reading;
            }
        }
        tokio::task::yield_now().await;
    }
    panic!("the run does not end");
}

#[tokio::test(start_paused = true)]
async fn a_reader_receives_each_delta_once_despite_lost_attempts() {
    let agent = talking_agent();
    let plan = LossPlan::new();
    let hub = Hub::new();
    let (outcome, reading) = join(drive_all(&agent, &hub, &plan), read_to_end(&hub)).await;
    reading.check(&outcome);
    let words = reading.words.clone();
    assert_eq!(words, ["Let me look.", "And again.", "All is done."]);
    for operation in 0..plan.operations() {
        for moment in [LossMoment::After(1), LossMoment::After(4), LossMoment::Kept] {
            let hub = Hub::new();
            let plan = LossPlan::with_losses([Loss { operation, moment }]);
            let read = tokio::time::timeout(Duration::from_mins(1), read_to_end(&hub));
            println!("lost at {operation}, {moment:?}");
            let (outcome, reading) = join(drive_all(&agent, &hub, &plan), read).await;
            let reading =
                reading.unwrap_or_else(|_| panic!("a reader hangs: {operation}, {moment:?}"));
            assert_eq!(reading.words, words, "{operation}, {moment:?}");
            reading.check(&outcome);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_continues_in_the_next_attempt_receives_a_snapshot_and_a_retraction() {
    let agent = talking_agent();
    let hub = Hub::new();
    let first = MemoryEngine::new();
    let mut engine = first.next_attempt();
    let read = async {
        let mut reader = loop {
            match hub.read_run(RUN, None) {
                Ok(reader) => break reader,
                Err(_) => tokio::time::sleep(Duration::from_micros(10)).await,
            }
        };
        // A snapshot and the first word.
        reader.next().await.unwrap().unwrap();
        reader.next().await.unwrap().unwrap().number().cloned()
    };
    let number = {
        let mut driven = Box::pin(attempt(&agent, &hub).drive(&mut engine));
        tokio::select! {
            _ = &mut driven => panic!("it ends"),
            number = read => number,
        }
    };
    tokio::task::yield_now().await;
    let mut engine = first.next_attempt();
    let read = async {
        loop {
            if let Ok(reader) = hub.read_run(RUN, number.as_ref()) {
                return reader.map(Result::unwrap).collect::<Vec<_>>().await;
            }
            tokio::time::sleep(Duration::from_micros(10)).await;
        }
    };
    let (_, events) = join(attempt(&agent, &hub).drive(&mut engine), read).await;
    let HubEvent::Snapshot { snapshot, .. } = &events[0] else { panic!("{:?}", events[0]) };
    let is_delta = |event: &Event| matches!(event, Event::Turn(TurnEvent::TextDelta { .. }));
    assert!(!snapshot.events().iter().any(|event| is_delta(event)), "{snapshot:?}");
    let HubEvent::Event { event, .. } = &events[1] else { panic!("{:?}", events[1]) };
    assert!(
        matches!(&**event, Event::Turn(TurnEvent::Retracted { why, .. }) if why.contains("was lost")),
        "{event:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_a_run_that_loses_no_attempt_receives_no_retraction() {
    let hub = Hub::new();
    let mut engine = MemoryEngine::new();
    let read = async {
        let reader = loop {
            match hub.read_run(RUN, None) {
                Ok(reader) => break reader,
                Err(_) => tokio::time::sleep(Duration::from_micros(10)).await,
            }
        };
        reader.map(Result::unwrap).collect::<Vec<_>>().await
    };
    let agent = talking_agent();
    let (outcome, read) = join(attempt(&agent, &hub).drive(&mut engine), read).await;
    assert_eq!(outcome.unwrap().reason, EndReason::Completed);
    let events = read.iter().flat_map(|read| match read {
        HubEvent::Snapshot { snapshot, .. } => snapshot.events().to_vec(),
        HubEvent::Event { event, .. } => vec![Arc::clone(event)],
        _ => Vec::new(),
    });
    let events: Vec<_> = events.collect();
    let is_retraction =
        |event: &&Arc<Event>| matches!(&***event, Event::Turn(TurnEvent::Retracted { .. }));
    assert_eq!(events.iter().find(is_retraction), None);
    let is_delta = |event: &&Arc<Event>| event.text_delta().is_some();
    assert_eq!(events.iter().filter(is_delta).count(), 8, "the reader received every word");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_through_the_hub_keeps_partial_text() {
    let model = Scripted::from_fn(|_, _| {
        Reply::new().say("So ").say("far.").delay(Duration::from_secs(5)).say(" Never.")
    });
    let agent = Agent::new(model);
    let hub = Hub::new();
    let first = MemoryEngine::new();
    let mut engine = first.next_attempt();
    let interrupt = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        hub.send(RUN, Command::Interrupt).await.unwrap();
    };
    let (outcome, ()) = join(attempt(&agent, &hub).drive(&mut engine), interrupt).await;
    let outcome = outcome.unwrap();
    assert!(matches!(outcome.reason, EndReason::Interrupted(_)));
    assert!(outcome.partial);
    let said = |history: &History| {
        history.iter().filter_map(|item| item.as_text().map(str::to_owned)).collect::<String>()
    };
    assert_eq!(said(&outcome.history), "So far.");
    let again = attempt(&agent, &Hub::new()).drive(&mut first.next_attempt()).await.unwrap();
    assert_eq!(again, outcome);
}

#[tokio::test(start_paused = true)]
async fn commands_stored_by_the_engine_are_rejected_by_the_hub() {
    let agent = talking_agent();
    let hub = Hub::new();
    let mut engine = MemoryEngine::new();
    let send = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        for command in [
            Command::Steer(vec![Item::user("Stop.")]),
            Command::FollowUp(vec![Item::user("Then this.")]),
            Command::StopAfterTurn,
        ] {
            let error = hub.send(RUN, command).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    };
    let (outcome, ()) = join(attempt(&agent, &hub).drive(&mut engine), send).await;
    assert_eq!(outcome.unwrap().reason, EndReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_hub_shutdown_drops_attempts_without_interrupting_their_runs() {
    let agent = talking_agent();
    let first = MemoryEngine::new();
    for moment in 0..12 {
        let hub = Hub::new();
        let first = first.next_run();
        let mut engine = first.next_attempt();
        let shut_down = async {
            tokio::time::sleep(Duration::from_millis(moment)).await;
            hub.shut_down(Duration::ZERO).await;
        };
        let entries = first.entries();
        let attempt = || Attempt::run(&agent, "s", entries.clone(), "Do it.");
        let driven = attempt().with_hub(&hub, RUN).drive(&mut engine);
        let driven = tokio::time::timeout(Duration::from_mins(1), driven);
        let (driven, ()) = join(driven, shut_down).await;
        match driven.unwrap_or_else(|_| panic!("it hangs after {moment} ms")) {
            Ok(outcome) => assert_eq!(outcome.reason, EndReason::Completed, "{moment} ms"),
            Err(error) => {
                assert!(is_attempt_lost(&error), "{moment} ms: {error}");
                let hub = Hub::new();
                let mut engine = first.next_attempt();
                let outcome = attempt().with_hub(&hub, RUN).drive(&mut engine).await.unwrap();
                assert_eq!(outcome.reason, EndReason::Completed, "{moment} ms");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_an_attempt_ends_its_readers() {
    let agent = talking_agent();
    let hub = Hub::new();
    let first = MemoryEngine::new();
    let mut engine = first.next_attempt();
    let driven = attempt(&agent, &hub).drive(&mut engine);
    let driven = tokio::time::timeout(Duration::from_millis(1), driven).await;
    assert!(driven.is_err(), "it is dropped in the middle of the first turn");
    let read = async {
        match hub.read_run(RUN, None) {
            Ok(reader) => reader.collect::<Vec<_>>().await.pop(),
            Err(error) => Some(Err(error)),
        }
    };
    let last = tokio::time::timeout(Duration::from_mins(1), read).await.expect("it hangs");
    assert!(matches!(last, Some(Err(_))), "{last:?}");
    assert!(hub.run_id("s").is_none(), "the hub has no active run");
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_fails_while_the_first_is_running() {
    let agent = talking_agent();
    let hub = Hub::new();
    let first = MemoryEngine::new();
    let (mut engine, mut second) = (first.next_attempt(), first.next_attempt());
    let mut living = Box::pin(attempt(&agent, &hub).drive(&mut engine));
    tokio::select! {
        _ = &mut living => panic!("it ends"),
        () = tokio::time::sleep(Duration::from_millis(1)) => {}
    }
    let driven = attempt(&agent, &hub).drive(&mut second);
    let error = tokio::time::timeout(Duration::from_mins(1), driven).await.unwrap().unwrap_err();
    assert!(is_attempt_lost(&error), "{error}");
    drop(living);
    tokio::task::yield_now().await;
    let driven = attempt(&agent, &hub).drive(&mut second_attempt(&first)).await;
    assert_eq!(driven.unwrap().reason, EndReason::Completed);
}

fn second_attempt(engine: &MemoryEngine) -> MemoryEngine {
    engine.next_attempt()
}

#[tokio::test(start_paused = true)]
async fn a_log_blocked_by_a_slow_reader_delays_the_run() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let model = Scripted::from_fn(move |request, _| {
        count.fetch_add(1, Ordering::Relaxed);
        let done = results(&request.history);
        let reply = (0..40).fold(Reply::new(), |reply, _| reply.say("word "));
        match done < 10 {
            true => reply.call_raw(&format!("c{done}"), "nap", "{}"),
            false => reply,
        }
    });
    let agent = Agent::new(model).with_tool(nap_tool("nap").idempotent());
    let log = MemoryLog::new().with_slow_readers(SlowReaders::Wait(Duration::MAX));
    let hub = Hub::builder().with_backend(log, MemoryInbox::new()).with_capacity(64).build();
    let mut engine = MemoryEngine::new();
    let read = async {
        let mut reader = loop {
            match hub.read("s", None) {
                Ok(reader) => break reader,
                Err(_) => tokio::time::sleep(Duration::from_micros(10)).await,
            }
        };
        tokio::time::sleep(Duration::from_mins(1)).await;
        let before = requests.load(Ordering::Relaxed);
        assert!(before <= 4, "{before} requests were made ahead of the reader");
        let mut reading = Reading::default();
        while let Some(read) = reader.next().await {
            if reading.read(&read.unwrap()) {
                break;
            }
        }
        reading
    };
    let (outcome, reading) = join(attempt(&agent, &hub).drive(&mut engine), read).await;
    reading.check(&outcome.unwrap());
    assert_eq!(requests.load(Ordering::Relaxed), 11);
}

#[tokio::test(start_paused = true)]
async fn a_permanently_failed_run_ends_its_readers_with_the_error() {
    let model = Scripted::from_fn(|_, _| Reply::text("w".repeat(10 << 20)));
    let agent = Agent::new(model);
    let hub = Hub::new();
    let mut engine = MemoryEngine::new();
    let read = async {
        loop {
            if let Ok(reader) = hub.read("s", None) {
                return reader.collect::<Vec<Result<HubEvent, Error>>>().await;
            }
            tokio::time::sleep(Duration::from_micros(10)).await;
        }
    };
    let (driven, mut read) = join(attempt(&agent, &hub).drive(&mut engine), read).await;
    assert_eq!(driven.unwrap_err().kind(), ErrorKind::TooLarge);
    let last = read.pop().unwrap();
    match last {
        Ok(HubEvent::Ended { error: Some(error), .. }) => {
            assert_eq!(error.kind(), ErrorKind::TooLarge);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_published_only_after_it_is_recorded() {
    // The first call returns an output without running; the second one waits.
    let model = Scripted::from_fn(|request, _| match results(&request.history) {
        0 => Reply::new().call_raw("c1", "nobody", "{}").call_raw("c2", "nap", r#"{"ms":9}"#),
        _ => Reply::text("Done."),
    });
    let agent = Agent::new(model).with_tool(nap_tool("nap").idempotent());
    for operation in 0..9 {
        let hub = Hub::new();
        let first = MemoryEngine::new();
        let plan = LossPlan::with_losses([Loss { operation, moment: LossMoment::Before }]);
        let mut engine = plan.wrap(first.next_attempt());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let read = async {
            for _ in 0..200 {
                if let Ok(mut reader) = hub.read("s", None) {
                    while let Some(Ok(read)) = reader.next().await {
                        if matches!(read, HubEvent::Ended { .. }) {
                            return;
                        }
                        if let HubEvent::Event { event, .. } = &read
                            && event.tool_output().is_some()
                        {
                            seen.lock().unwrap().push(Arc::clone(event));
                        }
                    }
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let (driven, ()) = join(attempt(&agent, &hub).drive(&mut engine), read).await;
        if driven.is_ok() {
            continue;
        }
        let kept = first.operations().iter().filter(|name| **name == "step").count();
        let seen = seen.lock().unwrap().len();
        // The turn, the start of the calls, and the calls.
        assert!(kept >= 3 || seen == 0, "{seen} results after {kept} steps, lost at {operation}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_interrupt_ends_the_wait_for_a_verdict() {
    let model = Scripted::from_fn(|request, _| match results(&request.history) {
        0 => Reply::new().call_raw("c1", "nap", "{}"),
        _ => Reply::text("Done."),
    });
    let agent = Agent::new(model).with_tool(nap_tool("nap").requires_approval()).interactive();
    let hub = Hub::new();
    let mut engine = MemoryEngine::new();
    let queue = engine.next_attempt();
    let interrupt = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Through the hub, an interrupt affects only a running step, and none is running here.
        hub.send(RUN, Command::Interrupt).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.send("w1", Command::Interrupt).unwrap();
    };
    let driven = attempt(&agent, &hub).drive(&mut engine);
    let driven = tokio::time::timeout(Duration::from_hours(1), driven);
    let (driven, ()) = join(driven, interrupt).await;
    let outcome = driven.expect("the run waits on").unwrap();
    assert!(
        matches!(outcome.reason, EndReason::Interrupted(_) | EndReason::Pending),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_through_the_hub_ends_the_run_after_separately_executed_calls() {
    let model = Scripted::from_fn(|request, _| match results(&request.history) {
        0 => Reply::new().call_raw("c1", "nap", r#"{"ms":7200000}"#).call_raw(
            "c2",
            "nap",
            r#"{"ms":7200000}"#,
        ),
        _ => Reply::text("Done."),
    });
    let agent = Agent::new(model).with_tool(nap_tool("nap").idempotent());
    let hub = Hub::new();
    let mut engine = MemoryEngine::new().with_worker(&agent);
    let interrupt = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        hub.send(RUN, Command::Interrupt).await.unwrap();
    };
    let driven = attempt(&agent, &hub).drive(&mut engine);
    let (driven, ()) = join(driven, interrupt).await;
    assert!(matches!(driven.unwrap().reason, EndReason::Interrupted(_)));
}
