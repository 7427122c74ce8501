//! How a call passes the gate.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, ErrorKind, panic_to_error};
use crate::event::ToolEvent;
use crate::item::{Json, ResultKind, ToolCall, ToolResult};
use crate::tool::begin::{Candidate, Misfit, prepare};
use crate::tool::{Answer, Permit, ToolContext, ToolRun, Verdict};

/// A call that the gate is being asked about.
pub(super) struct Asking {
    candidate: Candidate,
    permit: BoxFuture<'static, Result<Permit, Error>>,
}

/// What became of looking at the next call.
pub(super) enum Passed {
    /// It is answered, or somebody is asked.
    Event(ToolEvent),
    /// It got further, without anything to tell.
    Call,
    /// There is none to look at, or the gate takes its time.
    Nothing,
}

impl ToolRun {
    /// Looks at the next call, or goes on asking the gate about it.
    pub(super) fn pass_next(&mut self, cx: &mut Context<'_>) -> Result<Passed, Error> {
        if let Some(asking) = &mut self.asking {
            let Poll::Ready(permit) = guarded(|| asking.permit.poll_unpin(cx))? else {
                return Ok(Passed::Nothing);
            };
            let Some(Asking { candidate, permit: asked }) = self.asking.take().map(|it| *it) else {
                return Ok(Passed::Nothing);
            };
            guarded(|| drop(asked))?;
            return self.permitted(candidate, permit?);
        }
        let Some((at, mut call)) = self.take_queued() else { return Ok(Passed::Nothing) };
        if let Some(candidate) = self.continued(at, &call)? {
            self.allow(candidate);
            return Ok(Passed::Call);
        }
        let (tool, prepared) = match self.examine(at, &mut call)? {
            Ok(examined) => examined,
            Err((kind, why)) => {
                let result = match self.output_of(&call)? {
                    Some(output) => output,
                    None => ToolResult::answering(&call, kind, why),
                };
                return Ok(Passed::Event(self.give_out(at, &call, result)));
            }
        };
        if self.limit.as_ref().is_some_and(|limit| limit.left == 0) && !tool.is_external() {
            if let Some(output) = self.output_of(&call)? {
                return Ok(Passed::Event(self.give_out(at, &call, output)));
            }
            return Ok(self.beyond_limit(at, &call).map_or(Passed::Call, Passed::Event));
        }
        let candidate = Candidate { at, call, tool, prepared, continues: false };
        let Some(gate) = &mut self.gate else { return self.permitted(candidate, Permit::run()) };
        let permit = guarded(|| gate.before(&candidate.call))?;
        self.asking = Some(Box::new(Asking { candidate, permit }));
        Ok(Passed::Call)
    }

    /// The result that somebody has given to a call that is resumed: it counts also where the call
    /// could not run any more.
    fn output_of(&mut self, call: &ToolCall) -> Result<Option<ToolResult>, Error> {
        let Some(gate) = self.gate.as_mut().filter(|_| self.resumed) else { return Ok(None) };
        Ok(match guarded(|| gate.verdict(call))? {
            Some(Verdict::Output(output)) => Some(output.answering(call)),
            Some(Verdict::Approve | Verdict::Deny(_)) | None => None,
        })
    }

    /// Does with a call what the gate says.
    fn permitted(&mut self, mut candidate: Candidate, permit: Permit) -> Result<Passed, Error> {
        let Permit { answer, arguments } = permit;
        let asks = match answer {
            Answer::Run => candidate.tool.wants_approval(),
            Answer::Ask => true,
            Answer::Deny(why) => return Ok(self.deny(&candidate, &why)),
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
                    return Ok(self.answer(candidate.at, &candidate.call, ResultKind::Error, text));
                }
            }
        }
        let external = candidate.tool.is_external();
        if !asks && !external {
            self.allow(candidate);
            return Ok(Passed::Call);
        }
        let Some(gate) = &mut self.gate else {
            return Ok(if external {
                let why = "Not run: nobody is there who runs this tool.".to_owned();
                self.answer(candidate.at, &candidate.call, ResultKind::Skipped, why)
            } else {
                self.deny(&candidate, "it needs an approval, and nobody can be asked")
            });
        };
        if let Some(verdict) = guarded(|| gate.verdict(&candidate.call))?
            && candidate.is_settled_by(&verdict)
        {
            return Ok(self.settle(candidate, verdict));
        }
        guarded(|| gate.asked(&candidate.call))?;
        let call = (!external).then(|| candidate.call.clone());
        self.waiting.push(candidate);
        Ok(call.map_or(Passed::Call, |call| Passed::Event(ToolEvent::ApprovalRequested(call))))
    }

    /// Looks for verdicts on those that wait.
    pub(super) fn judge(&mut self) -> Result<Option<ToolEvent>, Error> {
        let Some(gate) = &mut self.gate else { return Ok(None) };
        let mut at = 0;
        let mut judged = Vec::new();
        while let Some(candidate) = self.waiting.get(at) {
            match guarded(|| gate.verdict(&candidate.call))? {
                Some(verdict) if candidate.is_settled_by(&verdict) => {
                    let approved = verdict == Verdict::Approve;
                    judged.push((self.waiting.remove(at), verdict));
                    // What has something to tell is told first.
                    if !approved {
                        break;
                    }
                }
                Some(_) | None => at += 1,
            }
        }
        let mut told = None;
        for (candidate, verdict) in judged {
            if let Passed::Event(event) = self.settle(candidate, verdict) {
                told = Some(event);
            }
        }
        Ok(told)
    }

    /// Whether somebody's approval is waited for.
    pub(super) fn is_waited_for(&self) -> Result<bool, Error> {
        let asked = self.waiting.iter().any(|candidate| !candidate.tool.is_external());
        match &self.gate {
            Some(gate) if asked => guarded(|| gate.waits()),
            Some(_) | None => Ok(false),
        }
    }

    /// Progress as the gate lets it be seen.
    pub(super) fn redact(&mut self, mut event: ToolEvent) -> ToolEvent {
        let ToolEvent::Progress { call_id, data, .. } = &mut event else { return event };
        let turn = Arc::clone(&self.turn);
        let call = turn.tool_calls().find(|call| call.call_id == *call_id);
        if let (Some(gate), Some(call)) = (&mut self.gate, call)
            && let Err(error) = guarded(|| gate.redact_progress(call, data)).flatten()
        {
            // What could not be looked through is not shown.
            *data = serde_json::Value::Null.into();
            self.fail(error);
        }
        if let ToolEvent::Progress { data, .. } = &mut event {
            flatten(data);
        }
        event
    }

    pub(super) fn starts(&mut self, context: &ToolContext) -> Result<(), Error> {
        self.gate.as_mut().map_or(Ok(()), |gate| guarded(|| gate.starts(context)))
    }

    pub(super) fn extension(&self) -> Result<Option<Arc<dyn Any + Send + Sync>>, Error> {
        self.gate.as_ref().map_or(Ok(None), |gate| guarded(|| gate.extension()))
    }

    /// The result as the gate and the kit let it be seen. It is held from here on.
    pub(super) fn give_out(
        &mut self,
        at: usize,
        call: &ToolCall,
        mut result: ToolResult,
    ) -> ToolEvent {
        if let (Some(gate), Some(report)) = (&mut self.gate, &mut result.report)
            && !report.evidence.is_empty()
        {
            let redact = |json: &mut Json| guarded(|| gate.redact_evidence(call, json)).flatten();
            if let Err(error) = redact_all(&mut Arc::make_mut(report).evidence, redact) {
                self.fail(error);
            }
        }
        if let Some(gate) = &mut self.gate {
            let was = result.clone();
            let looked = guarded(|| gate.after(call, &mut result)).flatten();
            if let Err(error) = looked {
                result = was;
                self.fail(error);
            }
        }
        if let Some(report) = &mut result.report
            && !report.evidence.is_empty()
        {
            Arc::make_mut(report).evidence.iter_mut().for_each(flatten);
        }
        let result = self.kit.clip(call, result);
        self.results.push((at, result.clone()));
        ToolEvent::Output(result)
    }

    pub(super) fn drop_asking(&mut self) {
        let asking = self.asking.take();
        let _ = guarded(|| drop(asking));
    }

    fn settle(&mut self, candidate: Candidate, verdict: Verdict) -> Passed {
        match verdict {
            Verdict::Approve => {
                self.allow(candidate);
                Passed::Call
            }
            Verdict::Deny(why) => self.deny(&candidate, &why),
            Verdict::Output(output) => {
                let result = output.answering(&candidate.call);
                Passed::Event(self.give_out(candidate.at, &candidate.call, result))
            }
        }
    }

    fn deny(&mut self, candidate: &Candidate, why: &str) -> Passed {
        let why = format!("Denied: {why}");
        self.answer(candidate.at, &candidate.call, ResultKind::Denied, why)
    }

    fn answer(&mut self, at: usize, call: &ToolCall, kind: ResultKind, why: String) -> Passed {
        Passed::Event(self.give_out(at, call, ToolResult::answering(call, kind, why)))
    }
}

impl Candidate {
    /// Whether the verdict says what becomes of the call: nobody here can run an external one.
    fn is_settled_by(&self, verdict: &Verdict) -> bool {
        match verdict {
            Verdict::Approve => !self.tool.is_external(),
            Verdict::Deny(_) | Verdict::Output(_) => true,
        }
    }
}

/// Redacts each piece of evidence. One that could not be looked through is not kept; the first error
/// is returned.
pub(crate) fn redact_all(
    evidence: &mut [Json],
    mut redact: impl FnMut(&mut Json) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut redacted = Ok(());
    for json in evidence {
        if let Err(error) = redact(json) {
            *json = serde_json::Value::Null.into();
            redacted = redacted.and(Err(error));
        }
        flatten(json);
    }
    redacted
}

/// It is written with an event or an item and read again, whether a tool or a hook has set it.
fn flatten(json: &mut Json) {
    *json = json.clone().flattened();
}

/// Calls the gate. Its panic is an error.
pub(super) fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, Error> {
    panic_to_error(ErrorKind::Hook, "the gate", f)
}
