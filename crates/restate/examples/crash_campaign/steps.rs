//! The steps of the log: which of them ran twice, and whether a kill was the cause.

use std::collections::BTreeMap;

use crate::killer::{Kill, KillTarget};
use crate::log::{COMPACTION, MODEL, Phase, Record};

/// A result that has arrived is stored within this time. So a step that ended earlier than this
/// before a kill was not in progress.
const MAX_STORE_MICROS: u64 = 2_000_000;

/// All steps that have started, with their attempts in chronological order.
pub(crate) struct StepLog(BTreeMap<StepName, Vec<StepAttempt>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StepName {
    pub(crate) key: String,
    pub(crate) step: String,
}

#[derive(Clone, Debug)]
pub(crate) struct StepAttempt {
    pub(crate) pid: u32,
    pub(crate) begin: u64,
    /// `None` if the attempt was dropped.
    pub(crate) end: Option<u64>,
}

/// The position of a session's step in its run: the task, the turn, and the part of the turn.
type StepLocation = (u32, u32, Part);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Compaction,
    Model,
    Tools,
}

impl StepLog {
    pub(crate) fn new(records: Vec<Record>) -> Self {
        let mut steps: BTreeMap<StepName, Vec<StepAttempt>> = BTreeMap::new();
        for Record { time, pid, phase, step, key } in records {
            let attempts = steps.entry(StepName { key, step }).or_default();
            match phase {
                Phase::Begin => attempts.push(StepAttempt { pid, begin: time, end: None }),
                Phase::End => {
                    let own = attempts.iter_mut().rev().find(|attempt| attempt.pid == pid);
                    own.expect("a step begins before it ends").end = Some(time);
                }
            }
        }
        Self(steps)
    }

    /// The attempts at a call of a session's own run.
    pub(crate) fn calls(&self, session: &str, tool: &str, call_id: &str) -> &[StepAttempt] {
        let name = StepName { key: format!("{session}/{call_id}"), step: tool.to_owned() };
        self.0.get(&name).map_or(&[], Vec::as_slice)
    }

    /// All pairs of consecutive attempts at the same step.
    pub(crate) fn repeats(&self) -> impl Iterator<Item = (&StepName, &StepAttempt, &StepAttempt)> {
        self.0.iter().flat_map(|(name, attempts)| {
            attempts.windows(2).map(move |pair| (name, &pair[0], &pair[1]))
        })
    }

    /// A later step of the same session that had started at this time: then the result of this step
    /// was stored.
    pub(crate) fn successor(&self, name: &StepName, time: u64) -> Option<&StepName> {
        let session = name.session();
        let location = name.location().filter(|_| !name.is_nested())?;
        let of_session = self.0.range(StepName::first_of(session)..);
        let of_session = of_session.take_while(|(other, _)| other.key.starts_with(session));
        let of_session = of_session.filter(|(other, _)| other.session() == session);
        let mut later = of_session.filter(|(other, attempts)| {
            other.location().is_some_and(|other| other > location)
                && attempts.first().is_some_and(|first| first.begin < time)
        });
        later.next().map(|(other, _)| other)
    }
}

impl StepName {
    fn first_of(session: &str) -> Self {
        Self { key: session.to_owned(), step: String::new() }
    }

    /// The id of the session: the key up to the first `/` or `@`.
    pub(crate) fn session(&self) -> &str {
        self.key.split(['/', '@']).next().unwrap_or_default()
    }

    /// Whether a sub-agent performed the step.
    pub(crate) fn is_nested(&self) -> bool {
        self.key.matches(['/', '@']).count() > 1
    }

    pub(crate) fn is_idempotent(&self) -> bool {
        matches!(&*self.step, MODEL | COMPACTION | "look")
    }

    /// A sub-agent's steps have the position of the call that runs the sub-agent.
    fn location(&self) -> Option<StepLocation> {
        let rest = &self.key[self.session().len()..];
        let number = |text: Option<&str>| text?.parse().ok();
        if let Some(position) = rest.strip_prefix('@') {
            let mut numbers = position.split('.');
            let part = if self.step == COMPACTION { Part::Compaction } else { Part::Model };
            return Some((number(numbers.next())?, number(numbers.next())?, part));
        }
        let mut numbers = rest.strip_prefix("/call-")?.split('-');
        Some((number(numbers.next())?, number(numbers.next())?, Part::Tools))
    }
}

impl StepAttempt {
    /// Whether a kill can have ended the attempt before its result was stored. `until` is the start
    /// of the next attempt.
    pub(crate) fn was_killed(&self, until: u64, kills: &[Kill]) -> bool {
        kills.iter().any(|kill| {
            let is_own = match kill.target {
                KillTarget::Worker(pid) => pid == self.pid,
                KillTarget::Server => true,
            };
            let last = self.end.map_or(until, |end| until.min(end + MAX_STORE_MICROS));
            is_own && kill.to >= self.begin && kill.from <= last
        })
    }
}
