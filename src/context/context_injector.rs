//! What one request is told besides the conversation: chosen up to a cap, with a reason on record.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::context::transcript::call_summary;
use crate::context::turn_starts::{self, KeptItems};
use crate::context::{BytesDiv4, CountTokens};
use crate::item::{History, Item};

/// Something that a request could be told: a piece of a file, a note, a result of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCandidate {
    /// Where it is from, for example `src/lib.rs:1-40`.
    pub source: String,
    /// What the model reads.
    pub text: String,
    /// Why it matters for this step. Without a reason it is not chosen.
    pub why: String,
}

/// What was chosen for one request, what was not, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextSelection {
    /// In the order in which the model reads it.
    pub chosen: Vec<SelectedCandidate>,
    /// In the order of the candidates.
    pub left_out: Vec<RejectedCandidate>,
    /// The tokens of all that was added, constraints and earlier steps included: never more than
    /// `cap`.
    pub tokens: u64,
    /// The most that there may be.
    pub cap: u64,
}

/// Something that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedCandidate {
    /// The candidate's source.
    pub source: String,
    /// The candidate's reason.
    pub why: String,
    /// The tokens that it added.
    pub tokens: u64,
}

/// Something that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedCandidate {
    /// The candidate's source; `constraints` or `steps` where those did not fit.
    pub source: String,
    /// Why not.
    pub why: String,
}

/// What a history is narrowed to.
#[derive(Clone, Debug, PartialEq)]
pub struct InjectedContext {
    /// What is sent.
    pub context: History,
    /// The record of it.
    pub selection: ContextSelection,
}

/// Chooses what a request is told besides the conversation, up to a hard cap.
///
/// A function of the history names candidates, the most important first. They are taken in this order
/// as long as they fit; one that does not fit, or has no reason, is left out, and the next is looked
/// at. What is chosen stands behind the history as one message of the user: the constraints, the
/// earlier steps, then each candidate with its source and its reason. Nothing enters the ledger.
///
/// As a [hook](crate::agent::hook::Hook) it does so before each request. Behind the same history the
/// same candidates give the same bytes.
///
/// ```
/// use turnstream::context::{ContextCandidate, ContextInjector};
/// use turnstream::{Agent, provider::Scripted};
///
/// let narrow = ContextInjector::new(1_000, |_history| vec![
///     ContextCandidate {
///         source: "src/lib.rs:1-2".into(),
///         text: "pub mod agent;\npub mod context;".into(),
///         why: "the task names this file".into(),
///     },
///     ContextCandidate { source: "notes.md".into(), text: "Buy milk.".into(), why: String::new() },
/// ])
/// .with_constraints("Change no public names.")
/// .on_selection(|selection| {
///     assert_eq!(selection.chosen[0].source, "src/lib.rs:1-2");
///     assert_eq!(selection.left_out[0].why, "no reason was given");
///     assert!(selection.tokens <= selection.cap);
/// });
/// let agent = Agent::new(Scripted::new(["Two modules."])).with_hook(narrow);
/// # drop(agent);
/// ```
#[derive(Clone)]
pub struct ContextInjector {
    max_tokens: u64,
    candidates_fn: Arc<HistoryFn<Vec<ContextCandidate>>>,
    constraints: String,
    /// `None` is one line a call.
    step_summary_fn: Option<Arc<HistoryFn<String>>>,
    max_turns: Option<usize>,
    counter: Arc<dyn CountTokens>,
    on_selection: Option<Arc<SelectionCallback>>,
}

/// What is made of a history.
type HistoryFn<T> = dyn Fn(&History) -> T + Send + Sync;
type SelectionCallback = dyn Fn(&ContextSelection) + Send + Sync;

impl ContextInjector {
    /// Makes one that adds at most `cap` tokens, chosen from what `candidates` makes of the history.
    pub fn new(
        cap: u64,
        candidates: impl Fn(&History) -> Vec<ContextCandidate> + Send + Sync + 'static,
    ) -> Self {
        Self {
            max_tokens: cap,
            candidates_fn: Arc::new(candidates),
            constraints: String::new(),
            step_summary_fn: None,
            max_turns: None,
            counter: Arc::new(BytesDiv4),
            on_selection: None,
        }
    }

    /// Sets what holds whatever is done. It comes first.
    pub fn with_constraints(mut self, text: impl Into<String>) -> Self {
        self.constraints = text.into();
        self
    }

    /// Sends only so many of the newest turns, and at least one, beside all instructions and the
    /// user's newest words. In the place of the others comes what was done in them; all turns are
    /// sent unless set.
    pub fn with_max_turns(mut self, turns: usize) -> Self {
        self.max_turns = Some(turns.max(1));
        self
    }

    /// Sets how the turns that are not sent are told, from the entries that are left out. Unless
    /// set it is one line for each call: its name, its arguments, how it ended.
    pub fn with_step_summary(
        mut self,
        f: impl Fn(&History) -> String + Send + Sync + 'static,
    ) -> Self {
        self.step_summary_fn = Some(Arc::new(f));
        self
    }

    /// Sets how tokens are counted; [`BytesDiv4`] unless set.
    pub fn with_counter(mut self, counter: impl CountTokens + 'static) -> Self {
        self.counter = Arc::new(counter);
        self
    }

    /// Hands each record to whoever keeps it, before the request is sent. It must be quick.
    pub fn on_selection(mut self, f: impl Fn(&ContextSelection) + Send + Sync + 'static) -> Self {
        self.on_selection = Some(Arc::new(f));
        self
    }

    /// What is sent of a history, and the record. It does not call [`on_selection`](Self::on_selection).
    pub fn inject(&self, history: &History) -> InjectedContext {
        let mut context = history.clone();
        let mut earlier = String::new();
        if let Some(turns) = self.max_turns {
            let items: Vec<&Item> = history.iter().collect();
            let cut = turn_starts::start_of_newest_turns(&items, turns);
            let kept = KeptItems::new(&items, cut);
            earlier = match &self.step_summary_fn {
                Some(f) => f(&history.truncated(cut)),
                None => call_summary(items.get(..cut).unwrap_or_default()),
            };
            context.rewrite(0..cut, kept.instructions.into_iter().chain(kept.prompt));
        }
        let mut choice = SelectionBuilder::new(self.max_tokens, &*self.counter);
        choice.add_section("constraints", "Constraints:", &self.constraints);
        choice.add_section("steps", "Done so far:", &earlier);
        for candidate in (self.candidates_fn)(history) {
            choice.add_candidate(candidate);
        }
        if !choice.text.is_empty() {
            context.push(Item::user(choice.text));
        }
        InjectedContext { context, selection: choice.selection }
    }

    /// Narrows, and hands the record on.
    pub(crate) fn inject_and_report(&self, history: &History) -> History {
        let InjectedContext { context, selection } = self.inject(history);
        if let Some(told) = &self.on_selection {
            told(&selection);
        }
        context
    }
}

impl fmt::Debug for ContextInjector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Narrow")
            .field("cap", &self.max_tokens)
            .field("keep_turns", &self.max_turns)
            .finish_non_exhaustive()
    }
}

/// What was chosen so far.
struct SelectionBuilder<'a> {
    text: String,
    selection: ContextSelection,
    counter: &'a dyn CountTokens,
}

impl<'a> SelectionBuilder<'a> {
    fn new(cap: u64, counter: &'a dyn CountTokens) -> Self {
        let selection = ContextSelection { cap, ..ContextSelection::default() };
        Self { text: String::new(), selection, counter }
    }

    fn add_candidate(&mut self, candidate: ContextCandidate) {
        let ContextCandidate { source, text, why } = candidate;
        if why.trim().is_empty() {
            return self.reject(source, "no reason was given".to_owned());
        }
        match self.try_append(&format!("# {source}\n({why})\n{text}")) {
            Ok(tokens) => self.selection.chosen.push(SelectedCandidate { source, why, tokens }),
            Err(why) => self.reject(source, why),
        }
    }

    fn add_section(&mut self, name: &str, head: &str, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        if let Err(why) = self.try_append(&format!("{head}\n{}", text.trim_end())) {
            self.reject(name.to_owned(), why);
        }
    }

    /// Adds a block and gives its tokens, or why it cannot.
    fn try_append(&mut self, block: &str) -> Result<u64, String> {
        let gap = if self.text.is_empty() { "" } else { "\n\n" };
        let longer = [&self.text, gap, block].concat();
        // All of it is counted: how a tokenizer cuts depends on what stands around.
        let total = self.counter.count(&longer);
        let tokens = total.saturating_sub(self.selection.tokens);
        if total > self.selection.cap {
            let left = self.selection.cap.saturating_sub(self.selection.tokens);
            return Err(format!("it has {tokens} tokens, and {left} are left"));
        }
        (self.text, self.selection.tokens) = (longer, total);
        Ok(tokens)
    }

    fn reject(&mut self, source: String, why: String) {
        self.selection.left_out.push(RejectedCandidate { source, why });
    }
}
