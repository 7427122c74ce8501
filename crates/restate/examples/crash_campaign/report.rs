//! The checks at the end of a campaign.

use std::collections::HashMap;
use std::fmt;

use turnstream::item::{ResultKind, ToolCall};
use turnstream::session::{Entry, restore_history};

use crate::killer::{Kill, KillTarget};
use crate::session::SessionTraces;
use crate::steps::StepLog;

/// The numbers of a campaign.
#[derive(Debug, Default)]
pub(crate) struct Report {
    seed: u64,
    runs: usize,
    runs_finished: usize,
    worker_kills: usize,
    server_kills: usize,
    sessions: usize,
    valid_histories: usize,
    calls_begun_twice: usize,
    /// Without steps of non-idempotent tools.
    repeated_steps: usize,
    /// Repeated steps that no kill explains.
    unexplained_steps: usize,
    interrupted_results: usize,
    /// In runs that were sent an interrupt.
    results_interrupted_by_command: usize,
    /// In other runs, although the tool had ended.
    results_lost_after_end: usize,
    steered_inputs: usize,
    delivered_once: usize,
    still_queued: usize,
    receipts_without_delivery: usize,
    /// Each with its seed and session.
    pub(crate) violations: Vec<String>,
}

/// Whether steps can be lost without a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepLosses {
    ByKills,
    /// The partitions of a cluster move between its nodes.
    ByElections,
}

impl Report {
    pub(crate) fn new(
        seed: u64,
        runs: usize,
        sessions: &[SessionTraces],
        steps: &StepLog,
        kills: &[Kill],
        losses: StepLosses,
    ) -> Self {
        let server_kills = kills.iter().filter(|kill| kill.target == KillTarget::Server).count();
        let mut report = Self {
            seed,
            runs,
            server_kills,
            worker_kills: kills.len() - server_kills,
            sessions: sessions.len(),
            ..Self::default()
        };
        for session in sessions {
            report.runs_finished += session.runs_finished;
            report.check_history(session);
            report.check_inputs(session);
            report.check_results(session, steps, kills, losses);
        }
        report.check_repeats(sessions, steps, kills, losses);
        if report.runs_finished < runs {
            report.violations.push(format!("seed {seed}: not all runs have finished"));
        }
        report
    }

    fn violation(&mut self, session: &str, what: impl fmt::Display) {
        let seed = self.seed;
        self.violations.push(format!("seed {seed}, session {session}: {what}"));
    }

    /// Checks that a history can be sent, and that it has each turn and each result once.
    fn check_history(&mut self, session: &SessionTraces) {
        let mut found = session.violations.clone();
        let history = restore_history(session.id.clone(), session.entries.iter().cloned());
        if !history.is_settled() {
            found.push("the history is not settled".to_owned());
        }
        let mut once: HashMap<String, u32> = HashMap::new();
        for entry in &session.entries {
            let Entry::Item(item) = entry else { continue };
            let turn = item.as_text().and_then(|text| text.split(' ').next());
            let names = [
                turn.map(|turn| format!("the turn `{turn}`")),
                item.as_tool_call().map(|call| format!("the call `{}`", call.call_id)),
                item.as_tool_result().map(|result| format!("the result `{}`", result.call_id)),
            ];
            for name in names.into_iter().flatten() {
                *once.entry(name).or_default() += 1;
            }
        }
        for (name, count) in once.iter().filter(|(_, count)| **count > 1) {
            found.push(format!("{name} is in the history {count} times"));
        }
        self.valid_histories += usize::from(found.is_empty());
        for what in found {
            self.violation(&session.id, what);
        }
    }

    fn check_inputs(&mut self, session: &SessionTraces) {
        let mut delivered: HashMap<String, usize> = HashMap::new();
        for entry in &session.entries {
            if let Entry::Item(item) = entry
                && let Some(content) = item.as_user()
            {
                *delivered.entry(content.text()).or_default() += 1;
            }
        }
        for input in &session.inputs {
            let is_it = |count: &&usize| **count > 0;
            let delivered = delivered.get(&input.text).filter(is_it).copied().unwrap_or_default();
            let queued = session.queued.iter().filter(|stored| stored.id == input.id).count();
            self.steered_inputs += usize::from(input.is_steered);
            match (delivered, queued) {
                (1, 0) if input.is_steered => self.delivered_once += 1,
                (0, 1) if input.is_steered => self.still_queued += 1,
                (1, 0) => {}
                (0, 0) => {
                    self.receipts_without_delivery += 1;
                    self.violation(
                        &session.id,
                        format!("`{}` is neither delivered nor queued", input.id),
                    );
                }
                _ => self.violation(
                    &session.id,
                    format!("`{}` was delivered {delivered} times, queued {queued}", input.id),
                ),
            }
        }
    }

    fn check_results(
        &mut self,
        session: &SessionTraces,
        steps: &StepLog,
        kills: &[Kill],
        losses: StepLosses,
    ) {
        let items = session.entries.iter().filter_map(|entry| match entry {
            Entry::Item(item) => Some(item),
            _ => None,
        });
        let calls: HashMap<&str, &ToolCall> = items
            .clone()
            .filter_map(|item| item.as_tool_call())
            .map(|call| (&*call.call_id, call))
            .collect();
        for result in items.filter_map(|item| item.as_tool_result()) {
            let Some(call) = calls.get(&*result.call_id) else { continue };
            let (name, call_id) = (&*call.name, &*call.call_id);
            let attempts = steps.calls(&session.id, name, call_id);
            let last = attempts.last();
            let has_ended = attempts.iter().any(|attempt| attempt.end.is_some());
            let leaves_traces = matches!(name, "pay" | "look" | "alone" | "ask");
            match result.kind {
                ResultKind::Ok if leaves_traces && !has_ended => {
                    self.violation(
                        &session.id,
                        format!("`{call_id}` has a result, but did not end"),
                    );
                }
                ResultKind::Interrupted => {
                    self.interrupted_results += 1;
                    if session.was_interrupted(call_id) {
                        self.results_interrupted_by_command += 1;
                        continue;
                    }
                    self.results_lost_after_end += usize::from(has_ended);
                    if matches!(name, "look" | "research") {
                        let what = format!("`{call_id}` is idempotent, but was interrupted");
                        self.violation(&session.id, what);
                    } else if losses == StepLosses::ByKills
                        && last.is_some_and(|attempt| !attempt.was_killed(u64::MAX, kills))
                    {
                        let what = format!("`{call_id}` was interrupted without a kill");
                        self.violation(&session.id, what);
                    }
                }
                ResultKind::Ok => {}
                ResultKind::Denied if name == "ask" => {}
                kind => self.violation(&session.id, format!("`{call_id}` of `{name}` is {kind}")),
            }
        }
    }

    fn check_repeats(
        &mut self,
        sessions: &[SessionTraces],
        steps: &StepLog,
        kills: &[Kill],
        losses: StepLosses,
    ) {
        for (name, attempt, next) in steps.repeats() {
            let (session, key, step) = (name.session(), &name.key, &name.step);
            if !name.is_idempotent() {
                self.calls_begun_twice += 1;
                self.violation(session, format!("the call {key} of `{step}` began twice"));
                continue;
            }
            self.repeated_steps += 1;
            // A separately executed call of an interrupted run runs to completion, while the next
            // run may have started.
            let call_id = key.rsplit('/').next().unwrap_or(key);
            let is_abandoned = |it: &SessionTraces| it.id == session && it.was_interrupted(call_id);
            let later = steps.successor(name, next.begin);
            if let Some(later) = later.filter(|_| !sessions.iter().any(is_abandoned)) {
                let what = format!("{step} {key} ran again after {} {}", later.step, later.key);
                self.violation(session, what);
            }
            if losses == StepLosses::ByKills && !attempt.was_killed(next.begin, kills) {
                self.unexplained_steps += 1;
                let what = format!("{step} {key} ran twice without a kill: {attempt:?}, {next:?}");
                self.violation(session, what);
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "violation: {violation}")?;
        }
        writeln!(f, "runs finished {} of {}", self.runs_finished, self.runs)?;
        writeln!(f, "worker kills {}", self.worker_kills)?;
        writeln!(f, "server kills {}", self.server_kills)?;
        writeln!(f, "histories valid {} of {}", self.valid_histories, self.sessions)?;
        writeln!(f, "non-idempotent tools that began twice {}", self.calls_begun_twice)?;
        let (repeated, unexplained) = (self.repeated_steps, self.unexplained_steps);
        writeln!(f, "steps that ran twice {repeated}, without a kill {unexplained}")?;
        let (interrupted, by_command) =
            (self.interrupted_results, self.results_interrupted_by_command);
        writeln!(f, "results interrupted {interrupted}, of interrupted runs {by_command}")?;
        writeln!(f, "results lost after the end of the tool {}", self.results_lost_after_end)?;
        let (steered, delivered, queued) =
            (self.steered_inputs, self.delivered_once, self.still_queued);
        writeln!(f, "steered inputs {steered}: delivered once {delivered}, queued {queued}")?;
        writeln!(f, "receipts without delivery {}", self.receipts_without_delivery)?;
        write!(f, "violations {}", self.violations.len())
    }
}
