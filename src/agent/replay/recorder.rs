//! Who writes runs down.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::agent::Agent;
use crate::agent::replay::line::{Noted, TimeUp, VERSION, Written};
use crate::agent::replay::print::Whole;
use crate::agent::replay::recording::Recording;
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::History;
use crate::lock::lock;
use crate::provider::is_vetoed;
use crate::request::Request;

/// Writes the runs of an agent down, as they go on: [`Agent::with_recorder`] hands it over.
/// [`Recording`] reads them back.
///
/// A recording is JSON lines: a header, then every event, a fingerprint of each request, and what
/// hooks, holders, budgets and the compactor answered where no event tells it. It grows with what is
/// said, not with the number of requests. Each line carries the run's number, so runs that go on at
/// the same time share a file. A run that is dropped simply goes no further in it. A sub-agent's
/// events are in its parent's run.
///
/// Whatever was said is in it, secrets as well; keys of providers are not.
///
/// Lines are written in the poll that gives the event, by a small synchronous append. What cannot be
/// written never breaks a run: it goes on unrecorded, and [`failure`](Self::failure) tells.
///
/// Clones share what is written to.
///
/// ```
/// use futures::StreamExt;
/// use turnstream::Agent;
/// use turnstream::agent::replay::{Recorder, Recording};
/// use turnstream::provider::Scripted;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let path = std::env::temp_dir().join(format!("turnstream-run-{}.jsonl", std::process::id()));
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// let recorded = agent.clone().with_recorder(&Recorder::to_file(&path)?);
/// let outcome = recorded.run("Hi").outcome().await;
///
/// let recording = Recording::from_file(&path)?;
/// let mut again = recording.replay(&agent);
/// while let Some(event) = again.next().await {
///     if let Some(finished) = event?.finished() {
///         assert_eq!(*finished, outcome);
///     }
/// }
/// assert_eq!(again.requests().len(), 1);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Recorder(Arc<Out>);

enum Out {
    Writer(Mutex<Sink>),
    Each(Box<dyn Fn(Recorded) + Send + Sync>),
}

struct Sink {
    out: Box<dyn Write + Send>,
    runs: u32,
    failure: Option<Error>,
}

/// A run that was recorded and is over, with what [`Recorder::each`] knows besides.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recorded {
    /// The agent that ran.
    pub agent: Agent,
    /// The run, read back from its lines.
    pub recording: Recording,
    /// The requests as they were handed to the provider.
    pub requests: Vec<Request>,
}

impl Recorder {
    /// Records into a file. One that is there is replaced.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the file cannot be made.
    pub fn to_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|error| {
            let message = format!("the recording {} cannot be made: {error}", path.display());
            Error::new(ErrorKind::Store, message).with_source(error)
        })?;
        Ok(Self::to(file))
    }

    /// Records into any writer. It is called in the polls of the runs and must not block for long.
    pub fn to(out: impl Write + Send + 'static) -> Self {
        let sink = Sink { out: Box::new(out), runs: 0, failure: None };
        Self(Arc::new(Out::Writer(Mutex::new(sink))))
    }

    /// Hands each run over when it is over, or dropped: for tests that replay every run of a suite.
    /// `then` is called where the run is dropped.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use futures::executor::block_on_stream;
    /// use turnstream::Agent;
    /// use turnstream::agent::replay::Recorder;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let recorder = Recorder::each(|run| {
    ///     for event in block_on_stream(run.recording.replay(&run.agent)) {
    ///         assert!(event.is_ok(), "the run cannot be replayed");
    ///     }
    /// });
    /// let agent = Agent::new(Scripted::new(["Hello!"])).with_recorder(&recorder);
    /// agent.run("Hi").outcome().await;
    /// # }
    /// ```
    pub fn each(then: impl Fn(Recorded) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Out::Each(Box::new(then))))
    }

    /// What went wrong with the writing. Nothing is written behind it.
    pub fn failure(&self) -> Option<Error> {
        match &*self.0 {
            Out::Writer(sink) => lock(sink).failure.clone(),
            Out::Each(_) => None,
        }
    }
}

impl Agent {
    /// Has every run written down from here on.
    ///
    /// A [`Recorder`] is told what happens and changes nothing.
    pub fn with_recorder(mut self, recorder: &Recorder) -> Self {
        self.watch = super::Watch::Recorded(recorder.clone());
        self
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("failure", &self.failure()).finish_non_exhaustive()
    }
}

/// One run that is written down.
pub(in crate::agent) struct Writing {
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
    lines: String,
    requests: Vec<Request>,
    asked: Whole,
    /// How often the facts were asked for since the last event.
    facts: u32,
    /// Whether the loop was polled since the last event.
    polled: bool,
}

impl Writing {
    pub(super) fn new(
        recorder: &Recorder,
        agent: &Agent,
        history: &History,
        resuming: bool,
    ) -> Self {
        Self {
            recorder: recorder.clone(),
            agent: agent.clone(),
            history: history.clone(),
            resuming,
            state: Mutex::default(),
        }
    }

    /// An event that was given out.
    pub(super) fn event(&self, event: &Event) {
        if *event.innermost() == Event::Unknown {
            return;
        }
        let mut state = lock(&self.state);
        (state.facts, state.polled) = (0, false);
        let vetoed = matches!(event, Event::Turn(event) if is_vetoed(event));
        self.write(&mut state, |run| Written::Event { run, vetoed, event });
    }

    /// The loop is about to be polled.
    pub(super) fn polled(&self) {
        lock(&self.state).polled = true;
    }

    /// How often the facts were asked for since the last event, this time included.
    pub(super) fn next_facts(&self) -> u32 {
        let mut state = lock(&self.state);
        state.facts += 1;
        state.facts
    }

    pub(super) fn noted(&self, noted: &Noted) {
        let mut state = lock(&self.state);
        self.write(&mut state, |run| Written::Noted { run, noted });
    }

    pub(super) fn asked(&self, request: &Request) {
        let mut state = lock(&self.state);
        let whole = Whole::of(request);
        let print = whole.since(&state.asked);
        state.asked = whole;
        if let Out::Each(_) = &*self.recorder.0 {
            state.requests.push(request.clone());
        }
        self.write(&mut state, |run| Written::Asked { run, request: &print });
    }

    pub(super) fn failed(&self, error: &Error) {
        let mut state = lock(&self.state);
        self.write(&mut state, |run| Written::Failed { run, error });
    }

    /// The loop was ended by an error, by the end of its time, or else by an interrupt.
    pub(super) fn ended(&self, error: Option<&Error>, time_up: Option<TimeUp>) {
        let mut state = lock(&self.state);
        let polled = state.polled;
        self.write(&mut state, |run| Written::Ended { run, polled, error, time_up });
    }

    /// The run is dropped.
    pub(super) fn over(&self) {
        let state = std::mem::take(&mut *lock(&self.state));
        if state.run.is_none() {
            return;
        }
        match &*self.recorder.0 {
            Out::Writer(sink) => lock(sink).flush(),
            Out::Each(then) => {
                // Law: what was written is a recording.
                if let Ok(recording) = Recording::from_text(&state.lines) {
                    let (agent, requests) = (self.agent.clone(), state.requests);
                    then(Recorded { agent, recording, requests });
                }
            }
        }
    }

    fn write<'a>(&self, state: &mut State, line: impl FnOnce(u32) -> Written<'a>) {
        if state.run.is_none() {
            let run = self.begin();
            state.run = Some(run);
            let Self { history, resuming, .. } = self;
            let resuming = *resuming;
            self.put(state, &Written::Run { run, version: VERSION, history, resuming });
        }
        let line = line(state.run.unwrap_or_default());
        self.put(state, &line);
    }

    fn begin(&self) -> u32 {
        match &*self.recorder.0 {
            Out::Each(_) => 1,
            Out::Writer(sink) => {
                let mut sink = lock(sink);
                sink.runs = sink.runs.saturating_add(1);
                sink.runs
            }
        }
    }

    fn put(&self, state: &mut State, line: &Written<'_>) {
        let json = serde_json::to_string(line);
        match &*self.recorder.0 {
            Out::Writer(sink) => lock(sink).write(json),
            Out::Each(_) => {
                state.lines.push_str(&json.unwrap_or_default());
                state.lines.push('\n');
            }
        }
    }
}

impl Sink {
    fn write(&mut self, json: Result<String, serde_json::Error>) {
        if self.failure.is_none() {
            let written = json.map_err(Into::into);
            let written =
                written.and_then(|json| self.out.write_all(format!("{json}\n").as_bytes()));
            self.note(written);
        }
    }

    fn flush(&mut self) {
        if self.failure.is_none() {
            let flushed = self.out.flush();
            self.note(flushed);
        }
    }

    fn note(&mut self, done: std::io::Result<()>) {
        if let Err(error) = done {
            let message = format!("the recording cannot be written: {error}");
            self.failure = Some(Error::new(ErrorKind::Store, message).with_source(error));
        }
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing").field("recorder", &self.recorder).finish_non_exhaustive()
    }
}
