//! Adds selected context to a single request, up to a maximum number of tokens, and records the
//! selection.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::context::transcript::call_summary;
use crate::context::turn_starts::{KeptItems, start_of_newest_turns};
use crate::context::{BytesDiv4, CountTokens, MemoryNote, Recall};
use crate::error::Error;
use crate::item::{History, Item};

/// A piece of text that could be added to a request, such as part of a file, a note or a search
/// result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCandidate {
    /// The source of the text, for example `src/lib.rs:1-40`.
    pub source: String,
    /// The text for the model.
    pub text: String,
    /// The reason why the text is relevant to the current step. Candidates without a reason are
    /// rejected.
    pub why: String,
}

impl From<MemoryNote> for ContextCandidate {
    fn from(note: MemoryNote) -> Self {
        Self {
            source: format!("memory/{}", note.name),
            text: note.text,
            why: "a note from an earlier conversation that matches the message".to_owned(),
        }
    }
}

/// The chosen and the rejected candidates for a request, each with a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextSelection {
    /// The chosen candidates, in the order in which the model reads them.
    pub chosen: Vec<SelectedCandidate>,
    /// The rejected candidates, in the order in which they were offered.
    pub left_out: Vec<RejectedCandidate>,
    /// The number of tokens in all of the added text, including the constraints and the summary of
    /// earlier steps. The number never exceeds `cap`.
    pub tokens: u64,
    /// The maximum number of tokens that may be added to the request.
    pub cap: u64,
}

/// A candidate that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedCandidate {
    /// The source of the candidate's text.
    pub source: String,
    /// The reason why the text is relevant to the current step, copied from the candidate.
    pub why: String,
    /// The number of tokens that the candidate added to the request.
    pub tokens: u64,
}

/// A candidate that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedCandidate {
    /// The source of the candidate's text. The source is `constraints` if the constraints did not
    /// fit, `steps` if the summary of earlier steps did not fit, and `memory` if the notes of the
    /// memory could not be read.
    pub source: String,
    /// The reason why the candidate was rejected.
    pub why: String,
}

/// The context for a request, along with a record of the selection.
#[derive(Clone, Debug, PartialEq)]
pub struct InjectedContext {
    /// The history to send, including the added text.
    pub context: History,
    /// The record of the selection.
    pub selection: ContextSelection,
}

/// Adds selected context to a request, up to a fixed maximum number of tokens.
///
/// You provide a function that takes the history and returns candidates, with the most important
/// first. The injector goes through the candidates in the order in which they were returned, and
/// skips any that do not fit or have no reason. The chosen text is added after the history as a
/// single user message: first the constraints, then the summary of earlier steps, then each
/// candidate with its source and reason. The stored history is not changed.
///
/// When used as a [hook](crate::agent::hook::Hook), an injector adds context to each request before
/// the request is sent. The same history and candidates always produce the same bytes.
///
/// ```
/// use std::sync::Arc;
///
/// use turnstream::context::{ContextCandidate, ContextInjector};
/// use turnstream::{Agent, provider::Scripted};
///
/// let mut injector = ContextInjector::new(1_000, |_history| vec![
///     ContextCandidate {
///         source: "src/lib.rs:1-2".into(),
///         text: "pub mod agent;\npub mod context;".into(),
///         why: "the task names this file".into(),
///     },
///     ContextCandidate { source: "notes.md".into(), text: "Buy milk.".into(), why: String::new() },
/// ]);
/// injector.constraints = "Change no public names.".to_owned();
/// injector.on_selection = Some(Arc::new(|selection| {
///     assert_eq!(selection.chosen[0].source, "src/lib.rs:1-2");
///     assert_eq!(selection.left_out[0].why, "no reason was given");
///     assert!(selection.tokens <= selection.cap);
/// }));
/// let agent = Agent::new(Scripted::new(["Two modules."])).with_hook(injector);
/// # drop(agent);
/// ```
#[derive(Clone)]
pub struct ContextInjector {
    /// The maximum number of tokens of text that are added.
    pub max_tokens: u64,
    /// The function that returns the candidates for a history, with the most important first.
    pub candidates: Arc<CandidatesFn>,
    /// The constraints, which are added as text before the summary and the candidates; empty by
    /// default.
    pub constraints: String,
    /// The number of newest turns to send. All system items and the user's latest message are also
    /// sent. The omitted turns are replaced by a summary of their steps. `None` is the default and
    /// sends all turns; 0 counts as 1.
    pub max_turns: Option<usize>,
    /// The function that creates the summary from the items in the omitted turns. By default, the
    /// summary contains one line for each call, with the tool's name, the arguments, and the kind
    /// of result.
    pub step_summary: Arc<dyn Fn(&History) -> String + Send + Sync>,
    /// The token counter; [`BytesDiv4`] by default.
    pub counter: Arc<dyn CountTokens>,
    /// The notes of a memory, which are offered after the other candidates; `None` by default. They
    /// are searched when the injector is used as a hook, and [`inject`](Self::inject) ignores them.
    pub recall: Option<Recall>,
    /// A function that is called with each selection before the request is sent; it must return
    /// quickly.
    pub on_selection: Option<Arc<SelectionFn>>,
}

type CandidatesFn = dyn Fn(&History) -> Vec<ContextCandidate> + Send + Sync;
type SelectionFn = dyn Fn(&ContextSelection) + Send + Sync;

impl ContextInjector {
    /// Creates an injector that adds at most `max_tokens` tokens of text. The text is selected from
    /// the candidates that the function `candidates` returns for the history.
    pub fn new(
        max_tokens: u64,
        candidates: impl Fn(&History) -> Vec<ContextCandidate> + Send + Sync + 'static,
    ) -> Self {
        Self {
            max_tokens,
            candidates: Arc::new(candidates),
            constraints: String::new(),
            max_turns: None,
            step_summary: Arc::new(|old| call_summary(&old.iter().collect::<Vec<_>>())),
            counter: Arc::new(BytesDiv4),
            recall: None,
            on_selection: None,
        }
    }

    /// Returns the context to send for a history, along with a record of the selection. This method
    /// does not call the function [`on_selection`](Self::on_selection).
    pub fn inject(&self, history: &History) -> InjectedContext {
        self.inject_with(history, &Ok(Vec::new()))
    }

    /// Returns the context to send, with notes as further candidates after those of the function.
    /// Notes that could not be read are left out.
    pub(crate) fn inject_with(
        &self,
        history: &History,
        recalled: &Result<Vec<MemoryNote>, Error>,
    ) -> InjectedContext {
        let mut context = history.clone();
        let mut earlier = String::new();
        if let Some(turns) = self.max_turns {
            let items: Vec<&Item> = history.iter().collect();
            let cut = start_of_newest_turns(&items, turns);
            let retained = KeptItems::new(&items, cut);
            earlier = (self.step_summary)(&history.truncated(cut));
            context.rewrite(0..cut, retained.instructions.into_iter().chain(retained.prompt));
        }
        let mut choice = SelectionBuilder::new(self.max_tokens, &*self.counter);
        choice.add_section("constraints", "Constraints:", &self.constraints);
        choice.add_section("steps", "Done so far:", &earlier);
        let notes = recalled.as_deref().unwrap_or_default();
        let notes = notes.iter().cloned().map(ContextCandidate::from);
        for candidate in (self.candidates)(history).into_iter().chain(notes) {
            choice.add_candidate(candidate);
        }
        if let Err(error) = recalled {
            choice.reject("memory".to_owned(), error.message().to_owned());
        }
        if !choice.text.is_empty() {
            context.push(Item::user(choice.text));
        }
        InjectedContext { context, selection: choice.selection }
    }
}

/// Builds a selection, along with the text to add.
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

    /// Appends a block of text. Returns the number of tokens that the block adds, or the reason why
    /// it does not fit.
    fn try_append(&mut self, block: &str) -> Result<u64, String> {
        let gap = if self.text.is_empty() { "" } else { "\n\n" };
        let longer = [&self.text, gap, block].concat();
        // The whole text is counted, because a tokenizer's result depends on the surrounding text.
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
