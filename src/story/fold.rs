//! The fold of events over a history, without any sharing.

use std::collections::HashSet;

use crate::error::Error;
use crate::event::{Event, Outcome, Phase, Reason, ToolEvent, Undelivered};
use crate::item::{
    History, INTERRUPTED_BEFORE_START, INTERRUPTED_MID_EXECUTION, Item, ResultKind, ToolCall,
    ToolResult,
};
use crate::turn::{PartialTurn, TurnEvent};
use crate::usage::Usage;

/// What the events so far have made of a history.
#[derive(Debug)]
pub(super) struct Fold {
    /// Without the turn that is open and the results that are held.
    history: History,
    /// How many of its entries were there before.
    known: usize,
    /// The turn that streams.
    open: PartialTurn,
    /// The calls of the last completed turn, in order, with what came for them.
    batch: Vec<(ToolCall, Option<ToolResult>)>,
    started: HashSet<String>,
    /// Of completed turns and of void attempts.
    spent: Usage,
    requests: u32,
    turns: u32,
    last_text: String,
}

impl Fold {
    pub(super) fn new(history: History) -> Self {
        // Calls that are still open can be answered by the events to come.
        let batch = history.unanswered_calls().into_iter().map(|call| (call, None)).collect();
        Self {
            known: history.len(),
            history,
            open: PartialTurn::default(),
            batch,
            started: HashSet::new(),
            spent: Usage::default(),
            requests: 0,
            turns: 0,
            last_text: String::new(),
        }
    }

    pub(super) fn observe(&mut self, event: &Event) {
        match event {
            Event::Turn(event) => self.observe_turn(event),
            Event::Tool(ToolEvent::Output(result)) => self.hold(result),
            Event::Tool(ToolEvent::Started { call_id, .. }) => {
                self.started.insert(call_id.clone());
            }
            Event::Appended { items, .. } => {
                self.flush();
                self.history.extend(items.iter().cloned());
            }
            Event::Rewritten { from, to, items, .. } => {
                self.flush();
                let before = self.history.len();
                self.history.rewrite(*from..*to, items.iter().cloned());
                if *from < self.known {
                    // Entries that were there before grew or shrank with the rest.
                    let now = (self.known + self.history.len()).saturating_sub(before);
                    self.known = now.max(*from).min(self.history.len());
                }
            }
            Event::TurnStarted { .. } => {
                self.flush();
                self.requests += 1;
                self.last_text.clear();
            }
            Event::Finished(_) => self.flush(),
            // A child's ending is not ours, and nobody folds what nobody knows.
            Event::Tool(_) | Event::Nested { .. } | Event::Continued { .. } | Event::Unknown => {}
        }
    }

    fn observe_turn(&mut self, event: &TurnEvent) {
        // Without a `TurnStarted` a turn begins with its first event.
        self.flush_results();
        match event {
            TurnEvent::TurnComplete { turn } => {
                self.open = PartialTurn::default();
                self.spent += turn.usage();
                self.turns += 1;
                self.last_text = turn.text();
                self.history.extend(turn.to_history_items());
                self.batch.extend(turn.tool_calls().map(|call| (call.clone(), None)));
            }
            TurnEvent::Retracted { usage, .. } => {
                self.spent += *usage;
                self.open = PartialTurn::default();
            }
            event => self.open.absorb(event),
        }
    }

    fn hold(&mut self, result: &ToolResult) {
        let open = self.batch.iter_mut().find(|(call, _)| call.call_id == result.call_id);
        if let Some((_, held @ None)) = open {
            *held = Some(result.clone());
        }
        if self.batch.iter().all(|(_, held)| held.is_some()) {
            self.flush_results();
        }
    }

    fn flush_results(&mut self) {
        // A call without its result stays open: it may still come.
        for (call, held) in std::mem::take(&mut self.batch) {
            match held {
                Some(result) => self.history.push(Item::tool_result(result)),
                None => self.batch.push((call, None)),
            }
        }
    }

    /// Writes what is held and what is open into the history.
    fn flush(&mut self) {
        self.flush_results();
        if !self.open.is_empty() {
            let open = std::mem::take(&mut self.open);
            self.spent += open.usage();
            self.last_text = open.text();
            self.history.extend(open.items());
        }
    }

    pub(super) fn history(&self) -> History {
        let mut history = self.history.clone();
        let held = self.batch.iter().filter_map(|(_, held)| held.clone());
        history.extend(held.map(Item::tool_result));
        history.extend(self.open.items());
        history
    }

    pub(super) fn usage(&self) -> Usage {
        self.spent + self.open.usage()
    }

    pub(super) fn new_items(&self) -> Vec<Item> {
        self.history().iter().skip(self.known).cloned().collect()
    }

    pub(super) fn phase(&self) -> Phase {
        match self.unanswered().next() {
            Some(_) => Phase::Tools,
            None => Phase::Streaming,
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.unanswered().next().is_none()
    }

    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The result of the next call that has none, made up.
    pub(super) fn missing_output(&self) -> Option<ToolEvent> {
        let call = self.unanswered().next()?;
        let text = if self.started.contains(&call.call_id) {
            INTERRUPTED_MID_EXECUTION
        } else {
            INTERRUPTED_BEFORE_START
        };
        Some(ToolEvent::made_up(call, ResultKind::Interrupted, text))
    }

    pub(super) fn outcome(
        &self,
        reason: Reason,
        error: Option<Error>,
        undelivered: Vec<Undelivered>,
    ) -> Outcome {
        let open = u32::from(!self.open.is_empty());
        let text = if self.open.is_empty() { self.last_text.clone() } else { self.open.text() };
        Outcome {
            reason,
            partial: reason.is_partial(),
            text,
            turns: self.requests.max(self.turns + open),
            usage: self.usage(),
            nested_usage: Usage::default(),
            new_items: self.new_items(),
            error,
            pending: Vec::new(),
            undelivered,
            evidence: Vec::new(),
            budget: None,
        }
    }

    fn unanswered(&self) -> impl Iterator<Item = &ToolCall> {
        self.batch.iter().filter(|(_, held)| held.is_none()).map(|(call, _)| call)
    }
}
