//! What a run tells its recorder, or takes from its recording: each is a door of the loop to the
//! world outside.

use std::cell::Cell;
use std::sync::Arc;

use futures::stream::{self, Stream};

use crate::agent::hook::OnStop;
use crate::replay::line::{Changed, Noted, Outside, Prepared, Said, TimeUp};
use crate::replay::played_turn::PlayedTurn;
use crate::replay::playing::{Ending, Playing};
use crate::replay::recorder::{Recorder, Writing};
use crate::replay::recording::Entry;
use crate::agent::{Agent, AtStop};
use crate::context::Compaction;
use crate::error::Error;
use crate::event::{Event, Outcome, ToolEvent};
use crate::item::{History, Item, Report, Tombstones};
use crate::request::Request;
use crate::stream::{TurnStream, seal};

/// Whether the runs of an agent are recorded or played.
#[derive(Clone, Debug, Default)]
pub(super) enum Watch {
    #[default]
    Off,
    Recorded(Recorder),
    Played(Arc<Playing>),
}

/// The same for one run.
#[derive(Clone, Debug)]
pub(super) enum Tape {
    Off,
    Writing(Arc<Writing>),
    Playing(Arc<Playing>),
}

impl Tape {
    pub(super) fn new(agent: &Agent, history: &History, resuming: bool) -> Self {
        match &agent.watch {
            Watch::Off => Self::Off,
            Watch::Recorded(recorder) => {
                Self::Writing(Arc::new(Writing::new(recorder, agent, history, resuming)))
            }
            Watch::Played(playing) => Self::Playing(Arc::clone(playing)),
        }
    }

    fn playing(&self) -> Option<&Arc<Playing>> {
        match self {
            Self::Playing(playing) => Some(playing),
            Self::Off | Self::Writing(_) => None,
        }
    }

    fn writing(&self) -> Option<&Writing> {
        match self {
            Self::Writing(writing) => Some(writing),
            Self::Off | Self::Playing(_) => None,
        }
    }

    pub(super) fn is_playing(&self) -> bool {
        self.playing().is_some()
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing().is_some()
    }

    /// An event is given out.
    pub(super) fn event(&self, event: &Event) {
        match self {
            Self::Off => {}
            Self::Writing(writing) => writing.event(event),
            Self::Playing(playing) => playing.event(event),
        }
    }

    /// The loop is about to be polled.
    pub(super) fn polled(&self) {
        self.writing().into_iter().for_each(Writing::polled);
    }

    /// How the recorded loop was ended at this event, if it was.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.playing()?.ending()
    }

    /// The loop is ended by an error, by the end of its time, or else by an interrupt.
    pub(super) fn ended(&self, error: Option<&Error>, time_up: Option<TimeUp>) {
        match self {
            Self::Off => {}
            Self::Writing(writing) => writing.ended(error, time_up),
            Self::Playing(playing) => playing.ended(),
        }
    }

    /// The run is dropped.
    pub(super) fn over(&self) {
        self.writing().into_iter().for_each(Writing::over);
    }

    /// How the recorded run ended.
    pub(super) fn outcome(&self) -> Option<&Outcome> {
        self.playing()?.outcome()
    }

    /// What calls had put on record that were dropped.
    pub(super) fn reports(&self) -> Vec<(String, Report)> {
        self.playing().map(|playing| playing.reports()).unwrap_or_default()
    }

    /// The next id, where it is known.
    pub(super) fn id(&self) -> Option<String> {
        self.playing().map(|playing| playing.id())
    }

    /// What is known besides the state.
    pub(super) fn facts(&self, outside: &mut Outside) {
        match self {
            Self::Off => {}
            Self::Writing(writing) => {
                let nth = writing.next_facts();
                if *outside != Outside::default() {
                    writing.noted(&Noted::Facts { nth, outside: *outside });
                }
            }
            Self::Playing(playing) => *outside = playing.facts(),
        }
    }

    /// What a holder of the recorded run said before the next request.
    pub(super) fn said(&self) -> Option<Event> {
        self.playing()?.said()
    }

    /// What became void next in the recorded run.
    pub(super) fn tombstones(&self) -> Option<Tombstones> {
        self.playing()?.tombstones()
    }

    /// What hooks made of a request, which was `plain` before.
    pub(super) fn prepared(&self, plain: Option<&Request>, request: &mut Request) {
        match self {
            Self::Off => {}
            Self::Writing(writing) => {
                if let Some(prepared) = plain.and_then(|plain| prepared(plain, request)) {
                    writing.noted(&Noted::Prepared(Box::new(prepared)));
                }
            }
            Self::Playing(playing) => {
                let gave_way = Cell::new(false);
                let noted = playing.take(|entry| match entry {
                    Entry::Noted(Noted::Prepared(prepared)) if !gave_way.get() => {
                        Some(prepared.clone())
                    }
                    Entry::Noted(Noted::GaveWay) => {
                        // What comes after it was made of the next request.
                        gave_way.set(true);
                        None
                    }
                    _ => None,
                });
                if let Some(noted) = noted {
                    prepare(request, *noted);
                }
            }
        }
    }

    /// A request is handed to the provider, or the recorded turn is given for it.
    pub(super) fn ask(&self, request: &Request) -> Result<Option<TurnStream>, Error> {
        Ok(match self {
            Self::Off => None,
            Self::Writing(writing) => {
                writing.asked(request);
                None
            }
            Self::Playing(playing) => {
                playing.asked(request)?;
                let turn = PlayedTurn { playing: Arc::clone(playing), at: 0 };
                Some(seal(request, turn))
            }
        })
    }

    /// The turn has failed.
    pub(super) fn failed(&self, error: &Error) {
        self.writing().into_iter().for_each(|writing| writing.failed(error));
    }

    /// The recorded events of the calls of a turn.
    pub(super) fn tools(&self) -> Option<impl Stream<Item = ToolEvent> + Send + use<>> {
        let playing = Arc::clone(self.playing()?);
        let mut at = 0;
        Some(stream::poll_fn(move |_| {
            playing.poll_entry(&mut at, |entry| match entry.event()? {
                Event::Tool(event) => Some(event.clone()),
                Event::Nested { call_id, name, event } => Some(ToolEvent::Nested {
                    call_id: call_id.clone(),
                    name: name.clone(),
                    event: event.clone(),
                }),
                _ => None,
            })
        }))
    }

    /// What hooks want said in the next request.
    pub(super) fn notes(&self, notes: Vec<Item>) -> Vec<Item> {
        match self {
            Self::Off => {}
            Self::Writing(_) if notes.is_empty() => {}
            Self::Writing(writing) => writing.noted(&Noted::Notes { items: notes.clone() }),
            // What was there early is not written a second time.
            Self::Playing(_) if !notes.is_empty() => {}
            Self::Playing(_) => return self.early_notes(),
        }
        notes
    }

    /// What hooks wanted said when they were told of a turn: older recordings have it there.
    pub(super) fn early_notes(&self) -> Vec<Item> {
        let noted = self.playing().and_then(|playing| {
            playing.take(|entry| match entry {
                Entry::Noted(Noted::Notes { items }) => Some(items.clone()),
                _ => None,
            })
        });
        noted.unwrap_or_default()
    }

    /// Whether a hook wants the run to stop here.
    pub(super) fn should_stop(&self, stops: bool) -> bool {
        match self {
            Self::Off => stops,
            Self::Writing(writing) => {
                if stops {
                    writing.noted(&Noted::ShouldStop);
                }
                stops
            }
            Self::Playing(playing) => {
                let is_it =
                    |entry: &Entry| matches!(entry, Entry::Noted(Noted::ShouldStop)).then_some(());
                playing.take(is_it).is_some()
            }
        }
    }

    /// Whether a request was not sent, since something else came up while it waited.
    pub(super) fn gave_way(&self, gave_way: bool) -> bool {
        match self {
            Self::Off => gave_way,
            Self::Writing(writing) => {
                if gave_way {
                    writing.noted(&Noted::GaveWay);
                }
                gave_way
            }
            Self::Playing(playing) => {
                let is_it =
                    |entry: &Entry| matches!(entry, Entry::Noted(Noted::GaveWay)).then_some(());
                playing.take(is_it).is_some()
            }
        }
    }

    /// What validations and stop hooks have said.
    pub(super) fn at_stop(&self, said: AtStop) -> AtStop {
        match self {
            Self::Off => said,
            Self::Writing(writing) => {
                if let Some((said, text)) = written(&said) {
                    writing.noted(&Noted::AtStop { said, text });
                }
                said
            }
            Self::Playing(playing) => {
                let noted = playing.take(|entry| match entry {
                    Entry::Noted(Noted::AtStop { said, text }) => Some((*said, text.clone())),
                    _ => None,
                });
                noted.map_or(AtStop::Fine, |(said, text)| read(said, text))
            }
        }
    }

    /// How the history was made shorter, or why it was not.
    pub(super) fn compacted(&self, made: &Result<Option<Compaction>, Error>) {
        if let (Some(writing), Some(noted)) = (self.writing(), Noted::compacted(made)) {
            writing.noted(&noted);
        }
    }

    /// The same of the recorded run; the outer `None` where nothing is played.
    pub(super) fn made(&self) -> Option<Result<Option<Compaction>, Error>> {
        let playing = self.playing()?;
        let made = playing.take(|entry| match entry {
            Entry::Noted(noted) => noted.made(),
            _ => None,
        });
        Some(made.transpose())
    }
}

fn written(said: &AtStop) -> Option<(Said, String)> {
    Some(match said {
        AtStop::Objection(text) => (Said::Objection, text.clone()),
        AtStop::Hook(OnStop::Block(text)) => (Said::Block, text.clone()),
        AtStop::Hook(OnStop::Prevent(text)) => (Said::Prevent, text.clone()),
        AtStop::Hook(OnStop::Blocked(text)) => (Said::Blocked, text.clone()),
        AtStop::Hook(OnStop::Unproven(text)) => (Said::Unproven, text.clone()),
        AtStop::Hook(OnStop::LetGo) | AtStop::Nudge(_) | AtStop::Fine => return None,
    })
}

fn read(said: Said, text: String) -> AtStop {
    match said {
        Said::Objection => AtStop::Objection(text),
        Said::Block => AtStop::Hook(OnStop::Block(text)),
        Said::Prevent => AtStop::Hook(OnStop::Prevent(text)),
        Said::Blocked => AtStop::Hook(OnStop::Blocked(text)),
        Said::Unproven => AtStop::Hook(OnStop::Unproven(text)),
    }
}

/// The parts of a request that are not those of the plain one.
fn prepared(plain: &Request, request: &Request) -> Option<Prepared> {
    let prepared = Prepared {
        model: (request.model != plain.model).then(|| request.model.iter().cloned().collect()),
        system: (request.system != plain.system).then(|| request.system.clone()),
        tools: (request.tools != plain.tools).then(|| request.tools.to_vec()),
        options: (request.options != plain.options).then(|| request.options.clone()),
        context: (request.context != plain.context)
            .then(|| changed(&plain.context, &request.context)),
    };
    let Prepared { model, system, tools, options, context } = &prepared;
    let is_any = model.is_some() || system.is_some() || tools.is_some();
    (is_any || options.is_some() || context.is_some()).then_some(prepared)
}

fn changed(plain: &History, context: &History) -> Changed {
    let alike = |(a, b): &(&Item, &Item)| a == b;
    let before = plain.iter().zip(context.iter()).take_while(alike).count();
    let behind = plain.newest_first().zip(context.newest_first()).take_while(alike).count();
    let behind = behind.min(plain.len().min(context.len()) - before);
    let items = context.iter().take(context.len() - behind).skip(before).cloned().collect();
    Changed { id: context.id().to_owned(), before, items, behind }
}

fn prepare(request: &mut Request, prepared: Prepared) {
    let Prepared { model, system, tools, options, context } = prepared;
    if let Some(model) = model {
        request.model = model.into_iter().next();
    }
    if let Some(system) = system {
        request.system = system;
    }
    if let Some(tools) = tools {
        request.tools = tools.into();
    }
    if let Some(options) = options {
        request.options = options;
    }
    if let Some(Changed { id, before, items, behind }) = context {
        let plain = request.context.clone();
        let first = plain.iter().take(before).cloned();
        let last = plain.iter().skip(plain.len().saturating_sub(behind)).cloned();
        request.context = History::from_items(id, first.chain(items).chain(last));
    }
}
