//! The values in a run's events that have not ended.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[cfg(feature = "schemars")]
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::Item;
use crate::item::model_json::read_by_type;
use crate::partial::answer_text::AnswerText;
use crate::partial::parser::JsonParser;
use crate::partial::schema::PartialSchema;
use crate::turn::{ParseError, Turn, TurnEvent};

/// A structured answer, or the arguments of a call, in its current state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Partial<T> {
    /// The id of the call whose arguments this is. `None` for an answer.
    pub call_id: Option<String>,
    /// The state of the value.
    pub state: PartialState<T>,
}

/// How much of a value a model has written, and whether the value can be relied on.
///
/// After [`Growing`](Self::Growing), each value gets exactly one other state, if the events are
/// read to their end.
#[derive(Clone, Debug, PartialEq)]
pub enum PartialState<T> {
    /// The value so far. It replaces the last one.
    Growing(T),
    /// The complete value, from a complete turn. An answer is that of [`Turn::parse`].
    Complete(T),
    /// The value is void: the turn was retracted, or the complete turn does not contain the call.
    /// If the turn starts again, a new value follows.
    Retracted,
    /// The turn or the run has ended, and the value is cut off or does not match its type. If the
    /// agent asks the model for a correction, a new value follows.
    Failed(ParseError),
}

/// Reads the values in a run's events while they arrive: each structured answer, or the arguments
/// of each call to a tool.
///
/// Values of sub-agents are not read; apply the [inner event](Event::Nested) for these. When a
/// reader of a [hub](crate::hub) yields a snapshot, start with a new `PartialValues`, and apply the
/// snapshot's events to it. For the turn of a
/// provider, convert its events: `Event::from(turn_event)`.
///
/// ```
/// use turnstream::partial::{PartialState, PartialValues};
/// use turnstream::{Event, TurnEvent};
///
/// let delta = |text: &str| Event::from(TurnEvent::TextDelta { index: 0, text: text.into() });
/// let mut values = PartialValues::untyped_answer(&true.into());
/// for text in [r#"{"city":"Os"#, r#"lo","people":71"#] {
///     values.observe(&delta(text));
/// }
/// // Both pieces are in the one value. The number has not ended.
/// let partial = values.next_partial().unwrap();
/// assert_eq!(partial.state, PartialState::Growing(serde_json::json!({ "city": "Oslo" })));
/// assert_eq!(values.next_partial(), None);
/// ```
pub struct PartialValues<T> {
    source: Source,
    schema: Arc<PartialSchema>,
    /// The values of the current turn.
    open: Vec<OpenPartial>,
    /// The indices of the values to which text was added since they were last built.
    changed: VecDeque<usize>,
    /// The values that have ended and were not taken.
    ended: VecDeque<(Option<String>, End)>,
    value_type: PhantomData<fn() -> T>,
}

#[derive(Clone, Debug)]
enum Source {
    Answer,
    /// The calls to the tool with this name.
    Calls(String),
}

/// A value of the current turn.
#[derive(Clone, Debug)]
struct OpenPartial {
    call_id: Option<String>,
    /// The index of the text item that the value is in. 0 for a call.
    index: u32,
    text: OpenText,
    /// Whether the index of this value is in the list of changed values.
    is_changed: bool,
    /// The number of additions in the value that was built last.
    built: Option<usize>,
    /// Whether a growing value was taken.
    has_grown: bool,
}

#[derive(Clone, Debug)]
enum OpenText {
    Answer(AnswerText),
    Arguments(JsonParser),
}

/// The way in which a value has ended.
#[derive(Clone, Debug)]
enum End {
    Answer(Arc<Turn>),
    /// The call is the item with this index in the turn.
    Call(Arc<Turn>, usize),
    Retracted,
    RunEnded(&'static str),
}

impl<T: DeserializeOwned> PartialValues<T> {
    /// Reads the structured answer of each turn.
    ///
    /// The JSON is found where [`Turn::parse`] finds it, if it begins within the first 1,024 bytes
    /// of the text and is an object, a list or a string. Any other answer has no growing values. In
    /// a turn with calls, a text without JSON is not an answer and yields nothing.
    ///
    /// # Errors
    ///
    /// Returns an [`Unsupported`](ErrorKind::Unsupported) error if the type does not accept an
    /// incomplete value, which names the first field that is required; see the
    /// [module](crate::partial#what-a-growing-value-contains).
    ///
    /// ```
    /// use turnstream::partial::PartialValues;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Recipe {
    ///     #[serde(default)]
    ///     steps: Vec<Step>,
    /// }
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Step {
    ///     title: String,
    /// }
    ///
    /// let error = PartialValues::<Recipe>::of_answer().unwrap_err();
    /// assert!(error.to_string().contains("the field `steps[].title` is required"));
    /// ```
    #[cfg(feature = "schemars")]
    #[cfg_attr(docsrs, doc(cfg(feature = "schemars")))]
    pub fn of_answer() -> Result<Self, Error>
    where
        T: schemars::JsonSchema,
    {
        Self::typed(Source::Answer)
    }

    /// Reads the arguments of each call to the tool with this name. The type is usually the one
    /// that the tool itself deserializes, with fields that may be absent.
    ///
    /// A value is complete when its turn is, because only then is the call certain.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`of_answer`](Self::of_answer).
    #[cfg(feature = "schemars")]
    #[cfg_attr(docsrs, doc(cfg(feature = "schemars")))]
    pub fn of_calls(tool: impl Into<String>) -> Result<Self, Error>
    where
        T: schemars::JsonSchema,
    {
        Self::typed(Source::Calls(tool.into()))
    }

    #[cfg(feature = "schemars")]
    fn typed(source: Source) -> Result<Self, Error>
    where
        T: schemars::JsonSchema,
    {
        let mut schema = PartialSchema::new(&schemars::schema_for!(T).to_value());
        schema.check().map_err(|problem| {
            let name = T::schema_name();
            let message = format!("an incomplete value cannot be read as `{name}`: {problem}");
            Error::new(ErrorKind::Unsupported, message)
        })?;
        Ok(Self::new(source, schema))
    }

    fn new(source: Source, schema: PartialSchema) -> Self {
        Self {
            source,
            schema: Arc::new(schema),
            open: Vec::new(),
            changed: VecDeque::new(),
            ended: VecDeque::new(),
            value_type: PhantomData,
        }
    }

    /// Applies an event of the run. The costs are proportional to the length of the event's text.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Turn(event) => self.observe_turn(event),
            Event::TurnStarted { .. } => self.retract(),
            Event::Finished(outcome) => self.end_early(outcome.reason.as_str()),
            Event::Appended { .. }
            | Event::Rewritten { .. }
            | Event::Tool(_)
            | Event::Nested { .. }
            | Event::HelperUsage { .. }
            | Event::Continued { .. }
            | Event::Unknown => {}
        }
    }

    /// Returns the next value that has changed since it was last returned: first the values that
    /// have ended, and then those that have grown. Returns `None` if no value has changed.
    ///
    /// A growing value is built here, from everything that has arrived. One that does not match the
    /// type yet is left out. Call this method until it returns `None`, at the latest when a turn is
    /// complete, since the ends of values are kept until then.
    pub fn next_partial(&mut self) -> Option<Partial<T>> {
        self.next_ended().or_else(|| self.next_growing())
    }

    pub(crate) fn next_ended(&mut self) -> Option<Partial<T>> {
        let (call_id, end) = self.ended.pop_front()?;
        let parsed = match end {
            End::Answer(turn) => turn.parse(),
            End::Call(turn, index) => match ParseError::from_stop_reason(&turn) {
                None => {
                    let call = turn.items().get(index).and_then(Item::as_tool_call);
                    let arguments = call.map_or("", |call| call.arguments_or_empty_object());
                    ParseError::read_json(arguments)
                }
                Some(error) => Err(error),
            },
            End::Retracted => return Some(Partial { call_id, state: PartialState::Retracted }),
            End::RunEnded(reason) => Err(ParseError::RunEndedEarly { reason: reason.to_owned() }),
        };
        let state = parsed.map_or_else(PartialState::Failed, PartialState::Complete);
        Some(Partial { call_id, state })
    }

    /// Forgets all values.
    pub(crate) fn clear(&mut self) {
        drop(self.take_open());
        self.ended.clear();
    }

    /// Returns whether no value that has ended is left to take.
    pub(super) fn has_no_ended(&self) -> bool {
        self.ended.is_empty()
    }

    fn next_growing(&mut self) -> Option<Partial<T>> {
        while let Some(index) = self.changed.pop_front() {
            let open = &mut self.open[index];
            open.is_changed = false;
            if let Some(value) = open.build_if_changed(&self.schema) {
                open.has_grown = true;
                let (call_id, state) = (open.call_id.clone(), PartialState::Growing(value));
                return Some(Partial { call_id, state });
            }
        }
        None
    }

    fn take_open(&mut self) -> Vec<OpenPartial> {
        self.changed.clear();
        mem::take(&mut self.open)
    }

    /// Ends the values of a turn that does not continue.
    pub(crate) fn end_early(&mut self, reason: &'static str) {
        let grown = self.take_open().into_iter().filter(|open| open.has_grown);
        self.ended.extend(grown.map(|open| (open.call_id, End::RunEnded(reason))));
    }

    fn retract(&mut self) {
        let grown = self.take_open().into_iter().filter(|open| open.has_grown);
        self.ended.extend(grown.map(|open| (open.call_id, End::Retracted)));
    }

    fn observe_turn(&mut self, event: &TurnEvent) {
        match (event, &self.source) {
            (TurnEvent::TextDelta { index, text }, Source::Answer) => {
                if self.open.is_empty() {
                    self.open.push(OpenPartial::of_answer(*index));
                }
                self.open[0].push_answer(*index, text);
                self.mark_changed(0);
            }
            (TurnEvent::ToolCallStart { call_id, name }, Source::Calls(tool)) if name == tool => {
                self.open.push(OpenPartial::of_call(call_id.clone()));
            }
            (TurnEvent::ToolCallArgsDelta { call_id, delta }, Source::Calls(_)) => {
                // The call is usually the last one.
                let is_it = |open: &OpenPartial| open.call_id.as_ref() == Some(call_id);
                if let Some(index) = self.open.iter().rposition(is_it)
                    && let OpenText::Arguments(parser) = &mut self.open[index].text
                {
                    parser.push(delta);
                    self.mark_changed(index);
                }
            }
            (TurnEvent::Retracted { .. }, _) => self.retract(),
            (TurnEvent::TurnComplete { turn }, Source::Answer) => {
                let has_grown = self.take_open().iter().any(|open| open.has_grown);
                if has_grown || turn.tool_calls().next().is_none() {
                    self.ended.push_back((None, End::Answer(turn.clone())));
                }
            }
            (TurnEvent::TurnComplete { turn }, Source::Calls(tool)) => {
                let mut call_ids = HashSet::new();
                for (index, item) in turn.items().iter().enumerate() {
                    if let Some(call) = item.as_tool_call()
                        && call.name == *tool
                        && !item.interrupted
                    {
                        call_ids.insert(&call.call_id);
                        let end = End::Call(turn.clone(), index);
                        self.ended.push_back((Some(call.call_id.clone()), end));
                    }
                }
                // The turn does not contain the remaining calls.
                self.open.retain(|open| {
                    open.call_id.as_ref().is_some_and(|call_id| !call_ids.contains(call_id))
                });
                self.retract();
            }
            _ => {}
        }
    }

    fn mark_changed(&mut self, index: usize) {
        if !mem::replace(&mut self.open[index].is_changed, true) {
            self.changed.push_back(index);
        }
    }
}

impl PartialValues<Value> {
    /// Reads the structured answer of each turn as a JSON value. `schema` describes the answer, and
    /// determines which strings are shown only once they have ended. For an answer without a known
    /// schema, pass `true`.
    pub fn untyped_answer(schema: &Value) -> Self {
        Self::new(Source::Answer, PartialSchema::new(schema))
    }

    /// Reads the arguments of each call to the tool with this name as a JSON value. `schema` is
    /// usually that of the [tool](crate::tool::ToolSpec::parameters).
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::partial::{EventOrPartial, PartialState, PartialValues};
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::{Agent, EventStreamExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let reply = Reply::new().call_raw("c1", "draft", r#"{"title":"Fjords"}"#);
    /// let run = Agent::new(Scripted::new([reply, Reply::text("Done.")])).run("Write");
    /// let drafts = PartialValues::untyped_calls("draft", &true.into());
    /// let mut steps = std::pin::pin!(run.with_partials(drafts));
    /// let mut titles = Vec::new();
    /// while let Some(Ok(step)) = steps.next().await {
    ///     if let EventOrPartial::Partial(draft) = step
    ///         && let PartialState::Growing(value) | PartialState::Complete(value) = draft.state
    ///     {
    ///         titles.push((draft.call_id, value["title"].clone()));
    ///     }
    /// }
    /// assert_eq!(titles, [(Some("c1".to_owned()), "Fjords".into())]);
    /// # }
    /// ```
    pub fn untyped_calls(tool: impl Into<String>, schema: &Value) -> Self {
        Self::new(Source::Calls(tool.into()), PartialSchema::new(schema))
    }
}

impl OpenPartial {
    fn of_answer(index: u32) -> Self {
        Self::new(None, index, OpenText::Answer(AnswerText::default()))
    }

    fn of_call(call_id: String) -> Self {
        Self::new(Some(call_id), 0, OpenText::Arguments(JsonParser::default()))
    }

    fn new(call_id: Option<String>, index: u32, text: OpenText) -> Self {
        Self { call_id, index, text, is_changed: false, built: None, has_grown: false }
    }

    /// Reads a piece of a text item. The JSON may be split into several items, and items without
    /// JSON, such as commentary, may precede it.
    fn push_answer(&mut self, index: u32, piece: &str) {
        let OpenText::Answer(text) = &mut self.text else { return };
        if index != self.index {
            self.index = index;
            let is_open = matches!(text, AnswerText::Json(parser) if parser.is_open());
            if !is_open {
                *text = AnswerText::default();
            }
        }
        text.push(piece);
    }

    /// Builds the value, if it has changed since it was last built and matches the type.
    fn build_if_changed<T: DeserializeOwned>(&mut self, schema: &PartialSchema) -> Option<T> {
        let parser = match &self.text {
            OpenText::Arguments(parser) | OpenText::Answer(AnswerText::Json(parser)) => parser,
            OpenText::Answer(_) => return None,
        };
        // In the arguments of a call, `null` stands for an empty object.
        let is_call = self.call_id.is_some();
        let ended = parser.ended_value().filter(|value| !(is_call && value.is_null()));
        let shown = schema.shown(parser);
        let additions = match (ended, shown) {
            (Some(_), _) => parser.additions(true),
            (None, Some(shown)) => shown.additions,
            (None, None) => return None,
        };
        if self.built.replace(additions) == Some(additions) {
            return None;
        }
        match (ended, shown) {
            (Some(value), _) => build(value),
            (None, Some(shown)) => build(shown.value),
            (None, None) => None,
        }
    }
}

/// Builds a value of a type from a tree. Models write some values in a form that the type does not
/// accept, such as `5.0` for an integer. Only then is the tree converted to text first.
fn build<'de, T, D>(tree: D) -> Option<T>
where
    T: DeserializeOwned,
    D: Deserializer<'de> + Copy,
{
    T::deserialize(tree).ok().or_else(|| {
        let value = Value::deserialize(tree).ok()?;
        read_by_type(&value.to_string()).ok()
    })
}

impl<T> Clone for PartialValues<T> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            schema: self.schema.clone(),
            open: self.open.clone(),
            changed: self.changed.clone(),
            ended: self.ended.clone(),
            value_type: PhantomData,
        }
    }
}

impl<T> fmt::Debug for PartialValues<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialValues").field("source", &self.source).finish_non_exhaustive()
    }
}
