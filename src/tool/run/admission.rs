//! Which calls may run, and how the others are answered.

use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Poll};

use crate::error::Error;
use crate::event::ToolEvent;
use crate::item::{ResultKind, ToolCall};
use crate::tool::run::calls::{Calls, Candidate, Ended, Misfit, Refusal, prepare};
use crate::tool::run::guarded_gate::OfGate;
use crate::tool::run::places::Places;
use crate::tool::{Answer, Permit, PreparedCall, Tool, Verdict};

/// Takes each call from the queue to where it is known whether it runs: it is found, its arguments are
/// prepared, the gate is asked, and its approval is waited for.
pub(super) struct Admission {
    /// Those that nobody looked at yet, in call order, with their places in it.
    queue: VecDeque<(usize, ToolCall)>,
    limit: Limit,
    /// The one that the gate is being asked about. Boxed, since most runs have no gate that takes time.
    asking: Option<Box<Asking>>,
    /// Those that wait for a verdict, in call order.
    waiting: Vec<Candidate>,
}

/// What became of looking at a call.
pub(super) enum Admitted {
    /// It starts as soon as there is room.
    Allowed(Candidate),
    /// It is answered without running.
    Ended(Ended),
    /// Somebody is asked.
    Asked(ToolEvent),
    /// It got further, without anything to tell.
    Further,
    /// There is none to look at, or the gate takes its time.
    Nothing,
}

/// How many calls may start.
struct Limit {
    /// `None` for any number.
    left: Option<u32>,
    /// What the others are answered with.
    refusal: Refusal,
    /// How many of these there are.
    answered: usize,
    /// Whether calls are left alone while it is open whether they may start.
    holds_back: bool,
}

/// A call that the gate is being asked about.
struct Asking {
    candidate: Candidate,
    permit: OfGate<Result<Permit, Error>>,
}

impl Admission {
    pub(super) fn new(queue: VecDeque<(usize, ToolCall)>) -> Self {
        let refusal = (ResultKind::Skipped, String::new());
        let limit = Limit { left: None, refusal, answered: 0, holds_back: false };
        Self { queue, limit, asking: None, waiting: Vec::new() }
    }

    pub(super) fn limit(&mut self, left: u32, refusal: Refusal) {
        self.limit = Limit { left: Some(left), refusal, answered: 0, holds_back: true };
    }

    /// Looks at the next call, if `places` has one for it, or goes on asking the gate about it. `places`
    /// is `None` while an allowed call waits for its own.
    pub(super) fn next(
        &mut self,
        calls: &mut Calls,
        places: Option<Places>,
        cx: &mut Context<'_>,
    ) -> Result<Admitted, Error> {
        if let Some(mut asking) = self.asking.take() {
            let Poll::Ready(permit) = asking.permit.poll(cx)? else {
                self.asking = Some(asking);
                return Ok(Admitted::Nothing);
            };
            return self.permitted(calls, asking.candidate, permit?);
        }
        let Some((at, mut call)) = places.and_then(|places| self.take_queued(calls, places)) else {
            return Ok(Admitted::Nothing);
        };
        if let Some((tool, prepared)) = continued(calls, &call)? {
            return Ok(Admitted::Allowed(Candidate { at, call, tool, prepared, continues: true }));
        }
        let examined = examine(calls, at, &mut call)?;
        let is_beyond_limit = |tool: &Tool| !tool.is_external() && self.is_used_up();
        let (tool, prepared) = match examined {
            Ok((tool, prepared)) if !is_beyond_limit(&tool) => (tool, prepared),
            refused => {
                if calls.resumed
                    && let Some(Verdict::Output(output)) =
                        calls.gate.ask(|gate| gate.verdict(&call))?
                {
                    // It counts also where the call could not run any more.
                    let result = output.answering(&call);
                    return Ok(Admitted::Ended(Ended { at, call, result }));
                }
                let refusal = refused.err().unwrap_or_else(|| self.beyond_limit());
                return Ok(Admitted::Ended(Ended::refused(at, call, refusal)));
            }
        };
        let candidate = Candidate { at, call, tool, prepared, continues: false };
        match calls.gate.ask(|gate| Some(OfGate::new(gate.before(&candidate.call))))? {
            Some(permit) => {
                self.asking = Some(Box::new(Asking { candidate, permit }));
                Ok(Admitted::Further)
            }
            None => self.permitted(calls, candidate, Permit::run()),
        }
    }

    /// Takes the next call to look at, if it may start or will wait in any case.
    fn take_queued(&mut self, calls: &Calls, places: Places) -> Option<(usize, ToolCall)> {
        let (_, call) = self.queue.front()?;
        let tool = calls.kit.get(&call.name);
        if tool.is_some_and(|tool| self.holds_back(tool)) {
            return None;
        }
        let waits = tool.is_some_and(|tool| tool.wants_approval() || tool.is_external());
        (waits || places.are_left(tool)).then(|| self.queue.pop_front())?
    }

    /// Does with a call what the gate says.
    fn permitted(
        &mut self,
        calls: &mut Calls,
        mut candidate: Candidate,
        permit: Permit,
    ) -> Result<Admitted, Error> {
        let Permit { answer, arguments } = permit;
        let asks = match answer {
            Answer::Run => candidate.tool.wants_approval(),
            Answer::Ask => true,
            Answer::Deny(why) => return Ok(deny(candidate, &why)),
        };
        if let Some(arguments) = arguments {
            candidate.call.arguments = arguments;
            match prepare(&candidate.tool, &candidate.call) {
                Ok(prepared) => candidate.prepared = prepared,
                Err(Misfit::Arguments(why) | Misfit::Panic(why)) => {
                    let text = format!(
                        "Not run: a rule rewrote the arguments of `{}`, and they do not fit: {why}. \
                         This is not your fault; try another way.",
                        candidate.call.name
                    );
                    return Ok(Admitted::Ended(candidate.refused(ResultKind::Error, text)));
                }
            }
        }
        let external = candidate.tool.is_external();
        if !asks && !external {
            return Ok(Admitted::Allowed(candidate));
        }
        if !calls.gate.can_be_asked() {
            return Ok(if external {
                let why = "Not run: nobody is there who runs this tool.";
                Admitted::Ended(candidate.refused(ResultKind::Skipped, why))
            } else {
                deny(candidate, "it needs an approval, and nobody can be asked")
            });
        }
        if let Some(verdict) = calls.gate.ask(|gate| gate.verdict(&candidate.call))?
            && is_settled(&candidate, &verdict)
        {
            return Ok(settle(candidate, verdict));
        }
        calls.gate.ask(|gate| gate.asked(&candidate.call))?;
        let call = (!external).then(|| candidate.call.clone());
        self.waiting.push(candidate);
        let asked = |call| Admitted::Asked(ToolEvent::ApprovalRequested(call));
        Ok(call.map_or(Admitted::Further, asked))
    }

    /// Looks for verdicts on those that wait: any number that may run, and after them at most one that is
    /// answered.
    pub(super) fn judge(&mut self, calls: &mut Calls) -> Result<Vec<Admitted>, Error> {
        let mut at = 0;
        let mut judged = Vec::new();
        while let Some(candidate) = self.waiting.get(at) {
            match calls.gate.ask(|gate| gate.verdict(&candidate.call))? {
                Some(verdict) if is_settled(candidate, &verdict) => {
                    let settled = settle(self.waiting.remove(at), verdict);
                    // What has something to tell is told first.
                    let has_to_tell = !matches!(settled, Admitted::Allowed(_));
                    judged.push(settled);
                    if has_to_tell {
                        break;
                    }
                }
                Some(_) | None => at += 1,
            }
        }
        Ok(judged)
    }

    /// Whether the gate, or somebody's approval, is waited for.
    pub(super) fn is_waited_for(&self, calls: &mut Calls) -> Result<bool, Error> {
        let asked = self.waiting.iter().any(|candidate| !candidate.tool.is_external());
        Ok(self.asking.is_some() || (asked && calls.gate.ask(|gate| gate.waits())?))
    }

    /// Those that wait for a verdict, in call order, with their places in it.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (usize, &ToolCall)> {
        self.waiting.iter().map(|candidate| (candidate.at, &candidate.call))
    }

    /// Whether no call may start any more.
    pub(super) fn is_used_up(&self) -> bool {
        self.limit.left == Some(0)
    }

    /// Counts a call that has started.
    pub(super) fn count(&mut self) {
        self.limit.left = self.limit.left.map(|left| left.saturating_sub(1));
    }

    /// What a call is answered with that may not start any more. It is counted.
    pub(super) fn beyond_limit(&mut self) -> Refusal {
        self.limit.answered += 1;
        self.limit.refusal.clone()
    }

    /// How many calls were answered since they were beyond the limit.
    pub(super) fn limited(&self) -> usize {
        self.limit.answered
    }

    /// Whether it is open how many calls may start, since some of those that may are waited for.
    fn holds_back(&self, tool: &Tool) -> bool {
        let Some(left) = self.limit.left.filter(|left| self.limit.holds_back && *left > 0) else {
            return false;
        };
        let undecided = self.waiting.iter().filter(|candidate| !candidate.tool.is_external());
        !tool.is_external() && usize::try_from(left).unwrap_or(usize::MAX) <= undecided.count()
    }

    /// Lets those by that were held back, now that nothing is decided any more. Tells whether there
    /// are any.
    pub(super) fn lets_go(&mut self) -> bool {
        mem::take(&mut self.limit.holds_back) && !self.queue.is_empty()
    }

    /// Drops all calls.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.waiting.clear();
        self.asking = None;
    }
}

/// The tool of a call that continues a sub-agent that was suspended: neither rules nor limits are
/// asked about it again.
fn continued(calls: &mut Calls, call: &ToolCall) -> Result<Option<(Tool, PreparedCall)>, Error> {
    let was_suspended = calls.history.nested_history(&call.call_id).is_some();
    if !calls.resumed || calls.refusal.is_some() || !was_suspended {
        return Ok(None);
    }
    // Without a run above it, a sub-agent begins anew, and is admitted like any other call.
    if calls.gate.ask(|gate| gate.extension())?.is_none() {
        return Ok(None);
    }
    let tool = calls.kit.get(&call.name);
    Ok(tool.and_then(|tool| Some((tool.clone(), tool.continued(&call.arguments)?))))
}

/// Finds the tool of a call that may run as far as the turn, the kit and the arguments go, and
/// prepares it. If the arguments had to be repaired, the call has the repaired ones.
fn examine(
    calls: &mut Calls,
    at: usize,
    call: &mut ToolCall,
) -> Result<Result<(Tool, PreparedCall), Refusal>, Error> {
    let tool = match calls.find(at, call) {
        Ok(tool) => tool,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let prepared = match prepare(&tool, call) {
        Err(Misfit::Arguments(why)) => repair(calls, &tool, call, why)?,
        prepared => prepared,
    };
    let prepared = prepared.map_err(|misfit| misfit.refusal(call));
    Ok(prepared.and_then(|prepared| {
        calls.for_real(&tool, call)?;
        Ok((tool, prepared))
    }))
}

/// Asks the gate for arguments in the place of those that do not fit, and prepares them once.
fn repair(
    calls: &mut Calls,
    tool: &Tool,
    call: &mut ToolCall,
    why: String,
) -> Result<Result<PreparedCall, Misfit>, Error> {
    let Some(arguments) = calls.gate.try_ask(|gate| gate.repair(call, &why))? else {
        return Ok(Err(Misfit::Arguments(why)));
    };
    let repaired = ToolCall { arguments, ..call.clone() };
    Ok(match prepare(tool, &repaired) {
        Ok(prepared) => {
            *call = repaired;
            Ok(prepared)
        }
        // The model reads of what it wrote.
        Err(Misfit::Arguments(_)) => Err(Misfit::Arguments(why)),
        panicked => panicked,
    })
}

/// Whether the verdict says what becomes of the call: nobody here can run an external one.
fn is_settled(candidate: &Candidate, verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Approve => !candidate.tool.is_external(),
        Verdict::Deny(_) | Verdict::Output(_) => true,
    }
}

fn settle(candidate: Candidate, verdict: Verdict) -> Admitted {
    match verdict {
        Verdict::Approve => Admitted::Allowed(candidate),
        Verdict::Deny(why) => deny(candidate, &why),
        Verdict::Output(output) => {
            let result = output.answering(&candidate.call);
            Admitted::Ended(Ended { at: candidate.at, call: candidate.call, result })
        }
    }
}

fn deny(candidate: Candidate, why: &str) -> Admitted {
    Admitted::Ended(candidate.refused(ResultKind::Denied, format!("Denied: {why}")))
}
