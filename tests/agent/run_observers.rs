//! Observers of all runs of an agent or of a hub.

use std::sync::{Arc, Mutex};

use futures::{FutureExt, StreamExt};
use serde_json::json;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::agent::{EventObserver, ObservedRun, RunObserver};
use turnstream::error::Error;
use turnstream::event::Event;
use turnstream::hub::{Hub, RunSource};
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::Recorder;
use turnstream::tool::{RunData, Tool, ToolContext};
use turnstream::{Agent, ErrorKind, History, Usage};
use turnstream_test_support::tools::spec;

/// Writes down what happens to an observer.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// An observer that writes down the types of a run's events.
struct Writer {
    notes: Notes,
    /// The name of the observer.
    name: &'static str,
    panics_at: Option<&'static str>,
}

struct EventWriter(Notes, Option<&'static str>);

impl Notes {
    fn observer(&self, name: &'static str) -> Writer {
        Writer { notes: self.clone(), name, panics_at: None }
    }
}

impl RunObserver for Writer {
    fn start(&self, run: &ObservedRun<'_>) -> Option<Box<dyn EventObserver>> {
        let Self { notes, name, panics_at } = self;
        let nested = if run.is_sub_agent { ", nested" } else { "" };
        notes.add(format!("{name} starts{nested}: {}", run.label));
        assert_ne!(*panics_at, Some("start"), "the observer panics");
        Some(Box::new(EventWriter(notes.clone(), *panics_at)))
    }
}

impl EventObserver for EventWriter {
    fn observe(&mut self, event: &Event) {
        let json = serde_json::to_value(event).unwrap();
        let name = json["type"].as_str().unwrap();
        self.0.add(name);
        assert_ne!(self.1, Some(name), "the observer panics");
    }

    fn observe_end(&mut self, error: Option<&Error>) {
        self.0.add(error.map_or("end".to_owned(), |error| format!("end: {error}")));
    }

    fn run_data(&self) -> RunData {
        RunData::new().insert("from the observer")
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        self.0.add("dropped");
    }
}

fn greeter() -> Agent {
    Agent::new(Scripted::new([Reply::text("Hello.")])).with_label("greeter")
}

const EVENTS: [&str; 5] = ["appended", "turn_started", "text_delta", "turn_complete", "finished"];

#[tokio::test]
async fn an_observer_sees_each_event_of_a_run_and_its_end() {
    let notes = Notes::default();
    let mut run = greeter().with_run_observer(notes.observer("agent")).run("Hi");
    assert_eq!(notes.all(), [""; 0]);
    let mut seen = Vec::new();
    while let Some(event) = run.next().await {
        let json = serde_json::to_value(event.unwrap()).unwrap();
        seen.push(json["type"].as_str().unwrap().to_owned());
        // The observer has seen the event before the run yielded it.
        assert_eq!(notes.all().last(), seen.last());
    }
    assert_eq!(seen, EVENTS);
    let all = [&["agent starts: greeter"][..], &EVENTS, &["end", "dropped"]].concat();
    assert_eq!(notes.all(), all);
}

#[tokio::test]
async fn dropping_a_run_drops_its_observer_without_an_end() {
    let notes = Notes::default();
    let mut run = greeter().with_run_observer(notes.observer("agent")).run("Hi");
    run.next().await.unwrap().unwrap();
    drop(run);
    assert_eq!(notes.all(), ["agent starts: greeter", "appended", "dropped"]);
}

#[tokio::test]
async fn a_run_continues_without_an_observer_that_panics() {
    for place in ["start", "text_delta", "finished"] {
        let notes = Notes::default();
        let observer = Writer { panics_at: Some(place), ..notes.observer("agent") };
        let outcome = greeter().with_run_observer(observer).run("Hi").outcome().await;
        assert_eq!((outcome.text.as_str(), outcome.error), ("Hello.", None), "{place}");
        // Nothing is observed after the panic.
        let at = EVENTS.iter().position(|name| *name == place).map_or(0, |at| at + 1);
        let mut expected = vec!["agent starts: greeter"];
        expected.extend(&EVENTS[..at]);
        expected.extend((place != "start").then_some("dropped"));
        assert_eq!(notes.all(), expected, "{place}");
    }
}

#[tokio::test]
async fn the_values_of_an_observer_are_part_of_the_runs_data() {
    let read = Tool::raw(spec("read"), |_, cx: ToolContext| async move {
        cx.data::<&str>().map_or(String::new(), |text| (*text).to_owned())
    });
    let model = Scripted::new([Reply::new().call("read", json!({})), Reply::text("Done.")]);
    let agent = Agent::new(model).with_tools([read.unwrap()]);
    let agent = agent.with_run_observer(Notes::default().observer("agent"));
    let outcome = agent.run("Hi").with_data("from the program").outcome().await;
    let results: Vec<_> = outcome
        .new_items()
        .iter()
        .filter_map(|item| Some(item.as_tool_result()?.content.text()))
        .collect();
    assert_eq!(results, ["from the observer"]);
}

#[tokio::test]
async fn the_observer_of_a_sub_agent_knows_that_its_parent_yields_the_events() {
    let notes = Notes::default();
    let inner = greeter().with_run_observer(notes.observer("inner"));
    let ask = Reply::new().call("greet", json!({ "prompt": "Hi" }));
    let outer = Agent::new(Scripted::new([ask, Reply::text("Done.")])).with_label("lead");
    let outer = outer.with_tools([inner.as_tool("greet", "Greets.").unwrap()]);
    outer.run("Go.").outcome().await;
    assert_eq!(notes.all()[0], "inner starts, nested: lead/greeter");
}

#[tokio::test]
async fn a_hub_observes_the_runs_whose_agents_have_no_observer() {
    let notes = Notes::default();
    let hub = Hub::builder().with_run_observer(notes.observer("hub")).build();
    let agents = [greeter(), greeter().with_run_observer(notes.observer("agent"))];
    for agent in agents {
        hub.start("chat", agent.run("Hi")).await.unwrap().read().count().await;
    }
    let failing = futures::stream::iter([Err(Error::new(ErrorKind::Other, "broken"))]);
    let source = RunSource::new(History::empty("h"), failing);
    hub.start("chat", source).await.unwrap().read().count().await;
    let notes = notes.all();
    let starts: Vec<_> = notes.iter().filter(|note| note.contains("starts")).collect();
    assert_eq!(starts, ["hub starts: greeter", "agent starts: greeter", "hub starts: "]);
    assert_eq!(notes[notes.len() - 2..], ["end: broken", "dropped"]);
}

#[tokio::test]
async fn usage_that_a_hook_has_reported_is_observed_when_the_run_is_dropped() {
    let notes = Notes::default();
    let stuck = hook::before_stop(|state, _| async move {
        state.report_helper("judge", None, Usage { input_tokens: 1, ..Usage::default() });
        std::future::pending::<StopDecision>().await
    });
    let agent = greeter().with_hook(stuck).with_run_observer(notes.observer("agent"));
    let mut run = agent.run("Hi");
    while let Some(Some(event)) = run.next().now_or_never() {
        event.unwrap();
    }
    drop(run);
    let expected = [&["agent starts: greeter"][..], &EVENTS[..4], &["helper_usage", "dropped"]];
    assert_eq!(notes.all(), expected.concat());
}

/// Starts observers whose methods panic, and which panic again when they are dropped.
struct StartsPanicking;

struct PanicsTwice;

impl RunObserver for StartsPanicking {
    fn start(&self, _: &ObservedRun<'_>) -> Option<Box<dyn EventObserver>> {
        Some(Box::new(PanicsTwice))
    }
}

impl EventObserver for PanicsTwice {
    fn observe(&mut self, _: &Event) {
        panic!("the observer panics");
    }

    fn run_data(&self) -> RunData {
        panic!("the observer panics");
    }
}

impl Drop for PanicsTwice {
    fn drop(&mut self) {
        panic!("the observer panics again");
    }
}

#[tokio::test]
async fn a_run_continues_without_an_observer_that_panics_again_when_it_is_dropped() {
    let outcome = greeter().with_run_observer(StartsPanicking).run("Hi").outcome().await;
    assert_eq!((outcome.text.as_str(), outcome.error), ("Hello.", None));
}

#[tokio::test]
async fn the_panic_of_a_hand_written_loop_is_observed() {
    let notes = Notes::default();
    let hub = Hub::builder().with_run_observer(notes.observer("hub")).build();
    let events = futures::stream::poll_fn(|_| panic!("boom"));
    let source = RunSource::new(History::empty("h"), events);
    hub.start("chat", source).await.unwrap().read().count().await;
    assert_eq!(notes.all(), ["hub starts: ", "end: the loop panicked: boom", "dropped"]);
}

#[tokio::test]
async fn a_replay_is_not_observed() {
    let notes = Notes::default();
    let replayed = Arc::new(Mutex::new(0));
    let count = Arc::clone(&replayed);
    let recorder = Recorder::to_callback(move |run| {
        let mut rerun = run.recording.replay(&run.agent);
        while let Some(Some(event)) = rerun.next().now_or_never() {
            event.unwrap();
            *count.lock().unwrap() += 1;
        }
    });
    let agent = greeter().with_run_observer(notes.observer("agent")).with_recorder(&recorder);
    agent.run("Hi").outcome().await;
    assert_eq!(*replayed.lock().unwrap(), EVENTS.len());
    assert_eq!(notes.all().len(), EVENTS.len() + 2);
}
