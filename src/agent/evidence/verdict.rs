//! What the results of a run prove, as a pure function.

use std::fmt;

use crate::agent::evidence::{Noted, Standing};
use crate::item::{Evidence, Json, ResultKind, SideEffect};

/// So many side effects are named in words.
const NAMED: usize = 5;

/// What the results of a run prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This check passed behind the last change, and none that failed is left.
    Proven(Evidence),
    /// Nothing was changed, and nothing was checked.
    NothingChanged,
    /// A change is not checked, or a check has failed.
    Unproven(Missing),
}

/// What is missing for a proof. As text it is said to the model and kept in the outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// The newest check that failed and has not passed since.
    pub failed: Option<Evidence>,
    /// The last change, where none of the checks behind it has passed.
    pub last_change: Option<Change>,
}

/// A call that changed something, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The call.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// What it says that was changed. It is empty where the call was cut short, so that nobody
    /// knows.
    pub side_effects: Vec<SideEffect>,
}

/// What the rules are asked of a result besides what is in it.
pub(super) struct Rules<'a> {
    /// Whether a tool of this name never changes anything.
    pub(super) is_harmless: &'a dyn Fn(&str) -> bool,
    /// What was checked, where a piece of evidence is a check.
    pub(super) read: &'a dyn Fn(&Json) -> Option<Evidence>,
}

/// A check on record.
struct Check<'a> {
    by: &'a Noted,
    evidence: Evidence,
    passed: bool,
}

/// The changes and the checks among the results.
struct Weighed<'a> {
    changes: Vec<&'a Noted>,
    checks: Vec<Check<'a>>,
}

impl Standing {
    /// What it proves.
    ///
    /// - A *change* is a result with side effects, also one of a call that failed. A call that was
    ///   interrupted, took too long or panicked may have changed something, and counts as one.
    /// - A *check* is an [`Evidence`]. It passes with exit code 0, in a result that is no error.
    /// - A passing check counts if it is behind the last change: in a later batch of calls, or in
    ///   the same result. The order of calls that stand beside each other in a turn is not known.
    /// - A check that fails leaves nothing proven until the same command passes, in a later batch
    ///   or further down in the same result. Another command does not mend it.
    pub fn verdict(&self) -> Verdict {
        self.verdict_by(&Rules::usual())
    }

    pub(super) fn verdict_by(&self, rules: &Rules<'_>) -> Verdict {
        let Weighed { changes, checks } = Weighed::of(self, rules);
        let is_open = |at: usize| !checks[at].passed && !is_mended(&checks, at);
        let failed = (0..checks.len()).rfind(|at| is_open(*at)).map(|at| &checks[at].evidence);
        let proof = checks.iter().rfind(|check| check.counts(&changes));
        match (failed, proof, changes.last()) {
            (None, Some(check), _) => Verdict::Proven(check.evidence.clone()),
            (None, None, None) => Verdict::NothingChanged,
            (failed, proof, change) => Verdict::Unproven(Missing {
                failed: failed.cloned(),
                last_change: change.filter(|_| proof.is_none()).map(|noted| Change::of(noted)),
            }),
        }
    }

    /// The evidence that still says something to somebody who cannot see what came before it:
    /// checks that passed behind the last change, unless the whole has failed, checks that failed
    /// and were not mended, and whatever is no check.
    pub(in crate::agent) fn left(&self, has_failed: bool) -> Vec<Json> {
        let rules = Rules::usual();
        let Weighed { changes, checks } = Weighed::of(self, &rules);
        let others = self.noted().iter().flat_map(Noted::evidence);
        let others = others.filter(|json| (rules.read)(json).is_none()).cloned();
        let left = checks.iter().enumerate().filter(|(at, check)| match check.passed {
            true => !has_failed && check.counts(&changes),
            false => !is_mended(&checks, *at),
        });
        others.chain(left.filter_map(|(_, check)| check.to_json())).collect()
    }

    /// Whether it holds a change.
    pub(super) fn has_changed(&self, rules: &Rules<'_>) -> bool {
        self.noted().iter().any(|noted| is_change(noted, rules))
    }
}

fn is_change(noted: &Noted, rules: &Rules<'_>) -> bool {
    !noted.side_effects().is_empty() || (noted.is_cut_short() && !(rules.is_harmless)(&noted.tool))
}

/// Whether one result is known to come from behind what the other did, or is that result.
fn is_behind(later: &Noted, earlier: &Noted) -> bool {
    later.batch > earlier.batch || std::ptr::eq(later, earlier)
}

/// Whether the same command has passed behind this check.
fn is_mended(checks: &[Check<'_>], at: usize) -> bool {
    let Some((failed, later)) = checks.get(at..).and_then(<[_]>::split_first) else { return false };
    later.iter().any(|later| {
        later.passed
            && later.evidence.command == failed.evidence.command
            && is_behind(later.by, failed.by)
    })
}

impl Rules<'_> {
    fn usual() -> Self {
        Rules { is_harmless: &|_| false, read: &Evidence::from_json }
    }
}

impl<'a> Weighed<'a> {
    fn of(standing: &'a Standing, rules: &Rules<'_>) -> Self {
        let noted = standing.noted().iter();
        Self {
            changes: noted.clone().filter(|noted| is_change(noted, rules)).collect(),
            checks: noted.flat_map(|noted| Check::all_of(noted, rules)).collect(),
        }
    }
}

impl<'a> Check<'a> {
    fn all_of(by: &'a Noted, rules: &Rules<'_>) -> impl Iterator<Item = Self> {
        let is_ok = by.kind == ResultKind::Ok;
        by.evidence().iter().filter_map(|json| (rules.read)(json)).map(move |evidence| Check {
            by,
            passed: is_ok && evidence.is_passing(),
            evidence,
        })
    }

    /// Whether it passed behind all changes.
    fn counts(&self, changes: &[&Noted]) -> bool {
        self.passed && changes.iter().all(|change| is_behind(self.by, change))
    }

    /// Of a call that failed nobody knows how the command ended.
    fn to_json(&self) -> Option<Json> {
        let exit_code = self.evidence.exit_code.filter(|code| self.passed || *code != 0);
        Json::new(&Evidence { exit_code, ..self.evidence.clone() }).ok()
    }
}

impl Change {
    fn of(noted: &Noted) -> Self {
        Self {
            call_id: noted.call_id.clone(),
            tool: noted.tool.clone(),
            side_effects: noted.side_effects().to_vec(),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tool, side_effects, .. } = self;
        if side_effects.is_empty() {
            return write!(f, "a call of `{tool}` was cut short and may have changed something");
        }
        for (at, effect) in side_effects.iter().take(NAMED).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} `{}`", effect.kind, effect.target)?;
        }
        let more = side_effects.len().saturating_sub(NAMED);
        match more {
            0 => write!(f, " (by `{tool}`)"),
            _ => write!(f, " and {more} more (by `{tool}`)"),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.failed, &self.last_change) {
            (None, None) => f.write_str("no check is on record"),
            (None, Some(change)) => {
                write!(f, "no check has passed since the last change: {change}")
            }
            (Some(failed), None) => write_failed(f, failed),
            (Some(failed), Some(change)) => {
                write_failed(f, failed)?;
                write!(f, ", and no check has passed since the last change: {change}")
            }
        }
    }
}

fn write_failed(f: &mut fmt::Formatter<'_>, failed: &Evidence) -> fmt::Result {
    let command = &failed.command;
    match failed.exit_code {
        Some(0) => write!(f, "the call that ran `{command}` failed"),
        Some(code) => write!(f, "`{command}` failed with exit code {code}"),
        None => write!(f, "`{command}` ended without an exit code"),
    }?;
    f.write_str(" and has not passed since")
}
