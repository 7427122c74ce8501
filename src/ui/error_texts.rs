//! Controls whether clients receive error messages.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use crate::env::{Ids, SystemIds};
use crate::error::Error;
use crate::event::{EndReason, Event, Outcome, ToolEvent};
use crate::item::{History, Item, ItemKind, ToolResult};
use crate::lock::lock_ignoring_poison;
use crate::turn::TurnEvent;

type LogFn = dyn Fn(&str, &str) + Send + Sync;

/// The number of different hidden messages, and of hidden results, that are remembered.
const MAX_REMEMBERED: usize = 1_000;

/// Decides whether error messages from models and tools are sent to a front end.
///
/// An error message may contain a path, a query or an address that the user should not see. The
/// same applies to [`Outcome::why`](crate::Outcome::why), unless it is the reason for an interrupt.
/// By default, each message is replaced with the kind of the error, or with the reason why the run
/// ended, and an id. If a tool fails, the id is the tool call's id. Otherwise, equal messages have
/// the same id, as long as the message is one of the last 1,000 different ones. The function passed
/// to [`log`](Self::log) receives the id together with the original message.
///
/// ```
/// use turnstream::ui::ErrorTexts;
///
/// let hidden = ErrorTexts::hidden().log(|id, text| eprintln!("error {id}: {text}"));
/// # drop(hidden);
/// ```
#[derive(Clone)]
pub struct ErrorTexts {
    is_shown: bool,
    ids: Arc<dyn Ids>,
    log: Option<Arc<LogFn>>,
    logged: Arc<Mutex<LoggedTexts>>,
    /// Whether the messages that were logged already are not logged again.
    is_for_readers: bool,
}

/// The last messages that were logged, except by settings for readers, the newest first. Hashes are
/// kept instead of the messages, which can be large.
#[derive(Default)]
struct LoggedTexts {
    hasher: RandomState,
    /// Each message and its id.
    ids: VecDeque<(u64, String)>,
    /// The results of failed calls, each with the call's id.
    results: VecDeque<u64>,
}

impl LoggedTexts {
    fn find_id(&self, text: &str) -> Option<&str> {
        let hash = self.hasher.hash_one(text);
        self.ids.iter().find(|(logged, _)| *logged == hash).map(|(_, id)| id.as_str())
    }

    /// Adds a message as the newest one. An equal message that is remembered keeps its id. Returns
    /// the message's id.
    fn add(&mut self, text: &str, new_id: String) -> String {
        let hash = self.hasher.hash_one(text);
        let known = self.ids.iter().position(|(logged, _)| *logged == hash);
        let known = known.and_then(|at| self.ids.remove(at));
        let (_, id) = known.unwrap_or((hash, new_id));
        self.ids.truncate(MAX_REMEMBERED - 1);
        self.ids.push_front((hash, id.clone()));
        id
    }

    fn contains_result(&self, call_id: &str, text: &str) -> bool {
        self.results.contains(&self.hasher.hash_one((call_id, text)))
    }

    fn add_result(&mut self, call_id: &str, text: &str) {
        self.results.truncate(MAX_REMEMBERED - 1);
        self.results.push_front(self.hasher.hash_one((call_id, text)));
    }
}

impl ErrorTexts {
    /// Creates settings that replace each error message with the error's kind and an id. Hiding
    /// error messages is the default.
    pub fn hidden() -> Self {
        Self {
            is_shown: false,
            ids: Arc::new(SystemIds),
            log: None,
            logged: Arc::default(),
            is_for_readers: false,
        }
    }

    /// Creates settings that send error messages unchanged. They can contain the names of hosts and
    /// files, so use these settings only for clients that may read them.
    pub fn shown() -> Self {
        Self { is_shown: true, ..Self::hidden() }
    }

    /// Calls `log` with the id and the original message of each hidden error. `log` should not
    /// block.
    pub fn log(mut self, log: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.log = Some(Arc::new(log));
        self
    }

    /// Sets the generator for the ids that clients receive in place of hidden error messages.
    pub fn with_ids(mut self, ids: impl Ids + 'static) -> Self {
        self.ids = Arc::new(ids);
        self
    }

    /// Returns the settings for clients that read events again whose messages these settings have
    /// hidden before. Such a message keeps the id under which it was logged, and is not logged
    /// again. Any other message, for example the error of a store that cannot be read, gets a new
    /// id and is logged for each client.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use turnstream::ui::ErrorTexts;
    /// use turnstream::{Error, ErrorKind};
    ///
    /// static LOGGED: AtomicUsize = AtomicUsize::new(0);
    /// let texts = ErrorTexts::hidden().log(|_, _| drop(LOGGED.fetch_add(1, Ordering::SeqCst)));
    /// let error = texts.error(&Error::new(ErrorKind::Server, "disk 7 is full"));
    /// for _reader in 0..3 {
    ///     let again = texts.for_readers().error(&Error::new(ErrorKind::Server, "disk 7 is full"));
    ///     assert_eq!(again.message(), error.message());
    /// }
    /// assert_eq!(LOGGED.load(Ordering::SeqCst), 1);
    /// ```
    pub fn for_readers(&self) -> Self {
        Self { is_for_readers: true, ..self.clone() }
    }

    /// Returns the error to send to the client, with the message hidden if necessary.
    pub fn error(&self, error: &Error) -> Error {
        if self.is_shown {
            return error.clone();
        }
        Error::new(error.kind(), self.replacement(error.kind().as_str(), &error.to_string()))
    }

    /// Returns a copy of the result with error messages hidden, or `None` if nothing needs to be
    /// hidden.
    pub(super) fn result(&self, result: &ToolResult) -> Option<ToolResult> {
        if self.is_shown { None } else { hide_result(result) }
    }

    /// Returns a copy of the item with error messages hidden, or `None` if nothing needs to be
    /// hidden. Only results of tools contain error messages.
    pub fn item(&self, item: &Item) -> Option<Item> {
        let result = self.result(item.as_tool_result()?)?;
        Some(Item { kind: ItemKind::ToolResult(result), ..item.clone() })
    }

    /// Returns a copy of the event with error messages hidden, or `None` if nothing needs to be
    /// hidden. Each call reports the messages that it hides to [`log`](Self::log).
    pub fn event(&self, event: &Event) -> Option<Event> {
        if self.is_shown {
            return None;
        }
        match event {
            Event::Appended { items, .. } | Event::Rewritten { items, .. } => {
                let shown = hide_results(items)?;
                let mut event = event.clone();
                if let Event::Appended { items, .. } | Event::Rewritten { items, .. } = &mut event {
                    *items = shown;
                }
                Some(event)
            }
            Event::Turn(TurnEvent::Retrying { attempt, delay_ms, error }) => {
                let (attempt, delay_ms, error) = (*attempt, *delay_ms, self.error(error).into());
                Some(Event::Turn(TurnEvent::Retrying { attempt, delay_ms, error }))
            }
            Event::Turn(TurnEvent::Retracted { why, usage }) => {
                let why = self.replacement("retracted", why);
                Some(Event::Turn(TurnEvent::Retracted { why, usage: usage.clone() }))
            }
            Event::Tool(ToolEvent::Output(result)) => {
                let shown = hide_result(result)?;
                self.log_result(result);
                Some(Event::Tool(ToolEvent::Output(shown)))
            }
            // The sub-agent's history is left out, because its events have already been sent.
            Event::Tool(ToolEvent::Suspended { call_id, name, pending, .. }) => {
                Some(Event::Tool(ToolEvent::Suspended {
                    call_id: call_id.clone(),
                    name: name.clone(),
                    pending: pending.clone(),
                    nested: Box::new(History::empty("")),
                }))
            }
            Event::Nested { call_id, name, event } => {
                self.event(event).map(|event| Event::Nested {
                    call_id: call_id.clone(),
                    name: name.clone(),
                    event: Box::new(event),
                })
            }
            Event::Tool(ToolEvent::Nested { call_id, name, event }) => {
                self.event(event).map(|event| {
                    Event::Tool(ToolEvent::Nested {
                        call_id: call_id.clone(),
                        name: name.clone(),
                        event: Box::new(event),
                    })
                })
            }
            Event::Finished(outcome) => {
                self.outcome(outcome).map(|it| Event::Finished(Box::new(it)))
            }
            _ => None,
        }
    }

    fn outcome(&self, outcome: &Outcome) -> Option<Outcome> {
        let items = hide_results(outcome.new_items());
        // The user gave the reason for an interrupt.
        let is_given = matches!(outcome.reason, EndReason::Interrupted(_));
        let hidden_why = outcome.why.as_ref().filter(|_| !is_given);
        if items.is_none() && outcome.error.is_none() && hidden_why.is_none() {
            return None;
        }
        let mut shown = outcome.clone();
        if let Some(why) = hidden_why {
            shown.why = Some(self.replacement(outcome.reason.as_str(), why));
        }
        shown.error = outcome.error.as_ref().map(|error| self.error(error));
        if let Some(items) = items {
            shown.new_items = items.into();
        }
        Some(shown)
    }

    fn replacement(&self, kind: &str, text: &str) -> String {
        let known = lock_ignoring_poison(&self.logged).find_id(text).map(str::to_owned);
        let is_logged = known.is_some() && self.is_for_readers;
        let mut id = known.unwrap_or_else(|| self.ids.next_id());
        if !self.is_for_readers {
            id = lock_ignoring_poison(&self.logged).add(text, id);
        }
        if !is_logged {
            self.write_log(&id, text);
        }
        format!("{kind} (error {id})")
    }

    /// Logs the message of a tool's error, whose id is the call's.
    fn log_result(&self, result: &ToolResult) {
        let (call_id, text) = (&result.call_id, result.content.text());
        let mut logged = lock_ignoring_poison(&self.logged);
        if self.is_for_readers {
            if logged.contains_result(call_id, &text) {
                return;
            }
        } else {
            logged.add_result(call_id, &text);
        }
        drop(logged);
        self.write_log(call_id, &text);
    }

    fn write_log(&self, id: &str, text: &str) {
        if let Some(log) = &self.log {
            log(id, text);
        }
    }
}

/// Returns copies of the items in which the messages of error results are hidden, or `None` if no
/// result is an error.
fn hide_results(items: &[Item]) -> Option<Vec<Item>> {
    let shown = |item: &Item| item.as_tool_result().and_then(hide_result);
    if !items.iter().any(|item| shown(item).is_some()) {
        return None;
    }
    let hide = |item: &Item| {
        let mut item = item.clone();
        if let Some(result) = shown(&item) {
            item.kind = ItemKind::ToolResult(result);
        }
        item
    };
    Some(items.iter().map(hide).collect())
}

/// Replaces an error result's text with the error's kind and the call's id.
fn hide_result(result: &ToolResult) -> Option<ToolResult> {
    let text = format!("{} ({})", result.kind.as_str(), result.call_id);
    let shown = || ToolResult { content: text.into(), report: None, ..result.clone() };
    result.is_error().then(shown)
}

/// By default, error messages are hidden, as with [`ErrorTexts::hidden`].
impl Default for ErrorTexts {
    fn default() -> Self {
        Self::hidden()
    }
}

impl_debug!(ErrorTexts(it), shown = it.is_shown);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::CountingIds;
    use crate::error::ErrorKind;
    use crate::item::{ResultKind, ToolCall};

    type Log = Arc<Mutex<Vec<String>>>;

    /// Returns settings that log the ids of hidden messages.
    fn logging_texts() -> (ErrorTexts, Log) {
        let log = Log::default();
        let ids = Arc::clone(&log);
        let texts = ErrorTexts::hidden().with_ids(CountingIds::new("e"));
        (texts.log(move |id, _| lock_ignoring_poison(&ids).push(id.to_owned())), log)
    }

    fn hide(texts: &ErrorTexts, text: &str) -> String {
        texts.error(&Error::new(ErrorKind::Server, text)).message().to_owned()
    }

    #[test]
    fn equal_failures_have_the_same_id_for_all_readers_and_each_is_logged() {
        let (texts, log) = logging_texts();
        let live = ["full", "down", "full"].map(|text| hide(&texts, text));
        assert_eq!(live, ["server (error e-1)", "server (error e-2)", "server (error e-1)"]);
        let later = ["full", "down", "full"].map(|text| hide(&texts.for_readers(), text));
        assert_eq!(later, live);
        assert_eq!(*log.lock().unwrap(), ["e-1", "e-2", "e-1"]);
    }

    #[test]
    fn a_failure_that_only_readers_receive_is_logged_for_each_of_them() {
        let (texts, log) = logging_texts();
        let received = [1, 2].map(|_| hide(&texts.for_readers(), "the store is down"));
        assert_eq!(received, ["server (error e-1)", "server (error e-2)"]);
        assert_eq!(*log.lock().unwrap(), ["e-1", "e-2"]);
    }

    #[test]
    fn a_message_keeps_its_id_while_it_is_among_the_last_thousand() {
        let (texts, _) = logging_texts();
        let first = hide(&texts, "first");
        for n in 1..MAX_REMEMBERED {
            hide(&texts, &n.to_string());
        }
        assert_eq!(hide(&texts.for_readers(), "first"), first);
        hide(&texts, "one more");
        assert_ne!(hide(&texts.for_readers(), "first"), first);
    }

    #[test]
    fn the_result_of_a_failed_call_is_logged_once_for_any_number_of_readers() {
        let (texts, log) = logging_texts();
        let call = ToolCall { call_id: "c1".into(), name: "save".into(), arguments: "{}".into() };
        let result = ToolResult::for_call(&call, ResultKind::Error, "the disk is full");
        let event = Event::Tool(ToolEvent::Output(result));
        for texts in [texts.clone(), texts.for_readers(), texts.for_readers()] {
            assert!(texts.event(&event).is_some());
        }
        assert_eq!(*log.lock().unwrap(), ["c1"]);
    }
}
