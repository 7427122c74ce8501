//! Passes the events of a run to the run's observer.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::stream::{BoxStream, Stream, StreamExt};

use crate::agent::{EventObserver, ObservedRun, RunObserver};
use crate::error::{Error, catch_panic, observe_panic};
use crate::event::Event;
use crate::item::History;
use crate::lock::lock_ignoring_poison;
use crate::request::Options;
use crate::tool::RunData;
use crate::world::{LiveWorld, World};

/// The observer that a run will have. The run takes it when it is first polled.
#[derive(Default)]
pub(in crate::agent) struct ObserverSetting(Mutex<SettingState>);

#[derive(Default)]
enum SettingState {
    #[default]
    Unset,
    Set(Arc<dyn RunObserver>),
    Taken,
}

impl ObserverSetting {
    /// Sets the observer, unless the run has one or has started.
    pub(in crate::agent) fn set_if_unset(&self, observer: &Arc<dyn RunObserver>) {
        let mut state = lock_ignoring_poison(&self.0);
        if let SettingState::Unset = *state {
            *state = SettingState::Set(Arc::clone(observer));
        }
    }

    fn take(&self) -> Option<Arc<dyn RunObserver>> {
        match mem::replace(&mut *lock_ignoring_poison(&self.0), SettingState::Taken) {
            SettingState::Set(observer) => Some(observer),
            SettingState::Unset | SettingState::Taken => None,
        }
    }
}

/// The state of a run's observer.
#[derive(Default)]
pub(in crate::agent) enum Observation {
    /// The run has not been polled.
    NotStarted(RunOrigin),
    #[default]
    Unobserved,
    /// The observer may have no trace context yet, because the run repeats recorded steps.
    Starting(Box<dyn EventObserver>),
    Observing(Box<dyn EventObserver>),
}

/// Who has started a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum RunOrigin {
    Program,
    /// A call that runs the agent as a sub-agent.
    ParentRun,
}

impl Observation {
    /// Starts the observer of a run that is polled for the first time, and returns the values that
    /// the observer adds to the run's data. Returns `None` if the run is not observed.
    pub(in crate::agent) fn start(
        &mut self,
        setting: &ObserverSetting,
        world: &dyn World,
        describe: impl FnOnce() -> ObservedParts,
    ) -> Option<RunData> {
        let Self::NotStarted(origin) = mem::take(self) else { return None };
        let observer = setting.take()?;
        let parts = describe();
        let run = ObservedRun {
            label: &parts.label,
            history: &parts.history,
            options: &parts.options,
            data: &parts.data,
            is_sub_agent: origin == RunOrigin::ParentRun,
            is_repeating: world.is_repeating(),
            first_trace_context: world.first_trace_context(),
        };
        *self = Self::Starting(catch_panic(|| observer.start(&run)).ok()??);
        let mut added = None;
        self.call(|observer| added = Some(observer.run_data()));
        self.record_trace_context(world);
        added
    }

    /// Observes an event that the run is about to yield.
    #[inline]
    pub(in crate::agent) fn observe(&mut self, event: &Event, world: &dyn World) {
        match self {
            Self::NotStarted(_) | Self::Unobserved => {}
            Self::Starting(_) => self.observe_first(event, world),
            Self::Observing(_) => self.call(|observer| observer.observe(event)),
        }
    }

    fn observe_first(&mut self, event: &Event, world: &dyn World) {
        if world.is_repeating() {
            return self.call(|observer| observer.observe_repeated(event));
        }
        self.call(|observer| observer.observe(event));
        self.record_trace_context(world);
    }

    /// Records the trace context of the observer's span, once the span has started.
    fn record_trace_context(&mut self, world: &dyn World) {
        if world.is_repeating() {
            return;
        }
        let mut context = None;
        self.call(|observer| context = observer.trace_context());
        if let Some(context) = context {
            world.record_trace_context(&context);
        }
        *self = match mem::take(self) {
            Self::Starting(observer) => Self::Observing(observer),
            other => other,
        };
    }

    /// Observes the end of the events, and drops the observer.
    pub(in crate::agent) fn end(&mut self, error: Option<&Error>) {
        if let Self::Starting(_) | Self::Observing(_) = self {
            self.call(|observer| observer.observe_end(error));
            self.stop();
        }
    }

    /// Drops the observer.
    pub(in crate::agent) fn stop(&mut self) {
        let observer = mem::replace(self, Self::Unobserved);
        let _ = catch_panic(|| drop(observer));
    }

    /// Calls a method of the observer, and drops the observer if the method panics.
    fn call(&mut self, method: impl FnOnce(&mut dyn EventObserver)) {
        let (Self::Starting(observer) | Self::Observing(observer)) = self else { return };
        if catch_panic(|| method(&mut **observer)).is_err() {
            self.stop();
        }
    }
}

/// The parts of a run's description that do not come from its world.
pub(in crate::agent) struct ObservedParts {
    pub(in crate::agent) label: Arc<str>,
    pub(in crate::agent) history: History,
    pub(in crate::agent) options: Options,
    pub(in crate::agent) data: RunData,
}

/// The events of a hand-written loop, which are passed to an observer.
pub(crate) struct ObservedEvents {
    events: BoxStream<'static, Result<Event, Error>>,
    setting: ObserverSetting,
    history: History,
    observation: Observation,
}

impl ObservedEvents {
    /// Passes the events of a loop that starts with `history` to an observer.
    pub(crate) fn new(
        events: BoxStream<'static, Result<Event, Error>>,
        history: History,
        observer: &Arc<dyn RunObserver>,
    ) -> Self {
        let setting = ObserverSetting::default();
        setting.set_if_unset(observer);
        let observation = Observation::NotStarted(RunOrigin::Program);
        Self { events, setting, history, observation }
    }
}

impl Stream for ObservedEvents {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { events, setting, history, observation } = &mut *self;
        if let Observation::NotStarted(_) = observation {
            observation.start(setting, &LiveWorld, || ObservedParts {
                label: Arc::default(),
                history: history.clone(),
                options: Options::default(),
                data: RunData::new(),
            });
        }
        let polled = observe_panic(
            || events.poll_next_unpin(cx),
            |message| observation.end(Some(&Error::from_panic("the loop", message))),
        );
        match &polled {
            Poll::Ready(Some(Ok(event))) => observation.observe(event, &LiveWorld),
            Poll::Ready(Some(Err(error))) => observation.end(Some(error)),
            Poll::Ready(None) => observation.end(None),
            Poll::Pending => {}
        }
        polled
    }
}
