//! The world of a run that is written down.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex};

use futures::FutureExt;

use crate::agent::{Agent, RunStart};
use crate::error::Error;
use crate::event::Event;
use crate::item::{History, Json};
use crate::lock::lock_ignoring_poison;
use crate::provider::is_vetoed;
use crate::replay::counts::Counts;
use crate::replay::entry::is_step;
use crate::replay::line::{Line, VERSION, ValueLine};
use crate::replay::print::Requests;
use crate::replay::recorder::Recorder;
use crate::replay::recording::Reader;
use crate::request::Request;
use crate::stream::TurnStream;
use crate::tool::ToolRun;
use crate::world::{Ask, Effect, Ending, Key, Kind, Value, World};

/// Writes down what another world answers, and the events of the run.
#[derive(Debug)]
pub(super) struct Writing {
    world: Arc<dyn World>,
    page: Arc<Page>,
}

/// What is written of one run.
struct Page {
    recorder: Recorder,
    agent: Agent,
    history: History,
    resuming: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the run, once it has begun.
    run: Option<u32>,
    /// What is handed over at the end.
    read: Reader,
    requests: Vec<Request>,
    asked: Requests,
    /// How often each kind of effect was asked for since the last event.
    counted: Counts,
}

impl Agent {
    /// Has every run written down from here on.
    ///
    /// A [`Recorder`] is told what happens and changes nothing.
    pub fn with_recorder(self, recorder: &Recorder) -> Self {
        let recorder = recorder.clone();
        let inner = self.world();
        self.with_world(move |agent, start| {
            Writing::new(agent.open(&inner, start), &recorder, agent, start)
        })
    }
}

impl Writing {
    pub(super) fn new(
        world: Arc<dyn World>,
        recorder: &Recorder,
        agent: &Agent,
        start: &RunStart<'_>,
    ) -> Self {
        let page = Page {
            recorder: recorder.clone(),
            agent: agent.clone(),
            history: start.history.clone(),
            resuming: start.resuming,
            state: Mutex::default(),
        };
        Self { world, page: Arc::new(page) }
    }
}

impl World for Writing {
    fn draw(&self, key: &Key, live: &mut dyn FnMut() -> Value) -> Value {
        let drawn = self.world.draw(key, live);
        // The others are told by events.
        if matches!(key.kind, Kind::Facts | Kind::Notes) {
            let nth = self.page.count(key);
            self.page.made(key, nth, &drawn);
        }
        drawn
    }

    fn step(&self, key: &Key, effect: Effect) -> Effect {
        let (page, key, nth) = (Arc::clone(&self.page), key.clone(), self.page.count(key));
        let effect = self.world.step(&key, effect);
        async move {
            let made = effect.await;
            match &made {
                Ok(made) => page.made(&key, nth, made),
                Err(error) => page.value(&key, nth, Err(error.clone())),
            }
            made
        }
        .boxed()
    }

    fn turn(&self, key: &Key, request: Request, ask: Ask) -> TurnStream {
        self.page.asked(&request);
        let page = Arc::clone(&self.page);
        self.world.turn(key, request, ask).observed(move |item| {
            if let Err(error) = item {
                page.failed(error);
            }
        })
    }

    fn fan_out(&self, key: &Key, calls: ToolRun) -> ToolRun {
        self.world.fan_out(key, calls)
    }

    fn observe(&self, event: &Event) {
        self.world.observe(event);
        self.page.event(event);
    }

    fn ending(&self) -> Option<Ending> {
        self.world.ending()
    }

    fn ended(&self, ending: &Ending) {
        self.world.ended(ending);
        self.page.ended(ending);
    }

    fn over(&self) {
        self.world.over();
        self.page.over();
    }
}

impl Page {
    /// An event that was given out.
    fn event(&self, event: &Event) {
        if *event.innermost() == Event::Unknown {
            return;
        }
        let mut state = lock_ignoring_poison(&self.state);
        state.counted.clear();
        let vetoed = matches!(event, Event::Turn(event) if is_vetoed(event));
        let event = Cow::Borrowed(event);
        let is_end = is_step(&event) || event.finished().is_some();
        self.append(&mut state, |run| Line::Event { run, vetoed, event });
        if is_end {
            self.recorder.write();
        }
    }

    /// Counts one more effect since the last event.
    fn count(&self, key: &Key) -> u32 {
        lock_ignoring_poison(&self.state).counted.next(key)
    }

    /// A value, unless it says nothing.
    fn made(&self, key: &Key, nth: u32, made: &Value) {
        match made.to_json() {
            Ok(json) if says_nothing(&json) && key.kind != Kind::Step => {}
            made => self.value(key, nth, made),
        }
    }

    fn value(&self, key: &Key, nth: u32, made: Result<Json, Error>) {
        let (of, name) = (key.kind, key.name.to_string());
        let (value, error) = match made {
            Ok(json) => (Some(json), None),
            Err(error) => (None, Some(error)),
        };
        let value = ValueLine { of, name, nth, value, error };
        let mut state = lock_ignoring_poison(&self.state);
        self.append(&mut state, |run| Line::Value { run, value });
    }

    fn asked(&self, request: &Request) {
        let mut state = lock_ignoring_poison(&self.state);
        let print = state.asked.next(request);
        if self.recorder.keeps_requests() {
            state.requests.push(request.clone());
        }
        self.append(&mut state, |run| Line::Asked { run, request: print });
        self.recorder.write();
    }

    fn failed(&self, error: &Error) {
        let mut state = lock_ignoring_poison(&self.state);
        let error = Cow::Borrowed(error);
        self.append(&mut state, |run| Line::Failed { run, error });
        self.recorder.write();
    }

    fn ended(&self, ending: &Ending) {
        let Ending { polled, error, time_up } = ending;
        let (error, time_up) = (error.as_ref().map(Cow::Borrowed), *time_up);
        let mut state = lock_ignoring_poison(&self.state);
        self.append(&mut state, |run| Line::Ended { run, polled: *polled, error, time_up });
        self.recorder.write();
    }

    /// The run is dropped.
    fn over(&self) {
        let state = std::mem::take(&mut *lock_ignoring_poison(&self.state));
        if state.run.is_some() {
            self.recorder.hand_over(&self.agent, state.read, state.requests);
        }
    }

    fn append<'a>(&self, state: &mut State, line: impl FnOnce(u32) -> Line<'a>) {
        let run = match state.run {
            Some(run) => run,
            None => {
                let run = *state.run.insert(self.recorder.begin());
                let (history, resuming) = (Cow::Borrowed(&self.history), self.resuming);
                let header = Line::Run { run, version: VERSION, history, resuming };
                self.recorder.append(&mut state.read, &header);
                run
            }
        };
        self.recorder.append(&mut state.read, &line(run));
    }
}

/// Whether a value is the one that stands for nothing.
fn says_nothing(json: &Json) -> bool {
    matches!(json.as_str(), "null" | "false" | "{}" | "[]")
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("recorder", &self.recorder).finish_non_exhaustive()
    }
}
