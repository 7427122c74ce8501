//! Decides which of a turn's calls may run, and answers the calls that may not.

use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Poll};

use crate::error::Error;
use crate::event::ToolEvent;
use crate::item::{INTERRUPTED_MID_EXECUTION, PendingCall, ResultKind, ToolCall};
use crate::tool::run::call_journal::AdmittedCall;
use crate::tool::run::concurrency_slots::ConcurrencySlots;
use crate::tool::run::policy_handle::PolicyFuture;
use crate::tool::run::turn_calls::{
    AnsweredCall, ArgsError, CallPermission, ReadyCall, Refusal, TurnCalls, prepare_call,
};
use crate::tool::{Permission, PermissionDecision, PreparedCall, Tool, Verdict};

/// Decides whether each queued call may run. For each call, an `Admission` finds the tool, prepares
/// the arguments, asks the policy, and waits for an approval if necessary.
pub(super) struct Admission {
    /// The calls that have not been checked yet, in call order, each with its index in the turn.
    queue: VecDeque<(usize, ToolCall)>,
    /// The calls that an earlier attempt allowed to run, with the arguments that their tools
    /// receive.
    admitted: Vec<AdmittedCall>,
    call_limit: CallLimit,
    /// The request for the decision that the policy is currently making. The request is boxed
    /// because it is rarely needed: most policies decide without waiting.
    permission_request: Option<Box<PermissionRequest>>,
    /// The calls that are waiting for a verdict, in call order.
    awaiting_verdict: Vec<AwaitingCall>,
    /// Whether a grant was added since grants were looked up for the waiting calls.
    has_new_grant: bool,
}

/// A call that is waiting for a verdict.
struct AwaitingCall {
    ready_call: ReadyCall,
    /// The request for the verdict.
    request: PendingCall,
}

/// The result of a single admission step.
pub(super) enum AdmissionStep {
    /// The call may run and starts as soon as a slot is free.
    Allowed(ReadyCall),
    /// The call is answered without running.
    Answered(AnsweredCall),
    /// An approval is requested for the call.
    VerdictRequested(ToolEvent),
    /// A call made progress, but there is no event to emit.
    Progressed,
    /// No call can be checked now, or the policy has not decided yet.
    Idle,
}

/// The limit on the number of calls that may start.
struct CallLimit {
    /// The number of calls in the run that may still start, or `None` if there is no limit.
    remaining: Option<u32>,
    /// The answer given to calls that exceed the limit.
    refusal: Refusal,
    /// The number of calls that were answered because they exceeded the limit.
    over_limit_count: usize,
    /// Whether a call is held back while earlier calls are waiting for verdicts and could use up
    /// the limit.
    defers_calls: bool,
}

/// A request for the policy's decision on a call.
struct PermissionRequest {
    ready_call: ReadyCall,
    permission: PolicyFuture<Result<Permission, Error>>,
}

impl Admission {
    pub(super) fn new(queue: VecDeque<(usize, ToolCall)>) -> Self {
        let refusal = (ResultKind::Skipped, String::new());
        let limit =
            CallLimit { remaining: None, refusal, over_limit_count: 0, defers_calls: false };
        Self {
            queue,
            admitted: Vec::new(),
            call_limit: limit,
            permission_request: None,
            awaiting_verdict: Vec::new(),
            has_new_grant: false,
        }
    }

    pub(super) fn set_admitted(&mut self, admitted: Vec<AdmittedCall>) {
        self.admitted = admitted;
    }

    pub(super) fn set_call_limit(&mut self, left: u32, refusal: Refusal) {
        self.call_limit =
            CallLimit { remaining: Some(left), refusal, over_limit_count: 0, defers_calls: true };
    }

    /// Polls the policy's pending decision, if there is one. Otherwise, checks the next call if
    /// `places` has a slot for it. `places` is `None` while an admitted call is waiting for its
    /// slot.
    pub(super) fn next(
        &mut self,
        calls: &mut TurnCalls,
        slots: Option<ConcurrencySlots>,
        cx: &mut Context<'_>,
    ) -> Result<AdmissionStep, Error> {
        if let Some(mut asking) = self.permission_request.take() {
            let Poll::Ready(permission) = asking.permission.poll(cx)? else {
                self.permission_request = Some(asking);
                return Ok(AdmissionStep::Idle);
            };
            return self.apply_permission(calls, asking.ready_call, permission?);
        }
        let Some((at, mut call)) = slots.and_then(|slots| self.take_queued(calls, slots)) else {
            return Ok(AdmissionStep::Idle);
        };
        if let Some((tool, prepared)) = find_resumed(calls, &call)? {
            return Ok(AdmissionStep::Allowed(ReadyCall {
                index: at,
                call,
                tool,
                prepared,
                is_resumed: true,
                permission: CallPermission::Unconditional,
            }));
        }
        if let Some(admitted) = self.find_admitted(calls, at, &call) {
            return Ok(admitted);
        }
        let examined = validate_call(calls, at, &mut call)?;
        let is_beyond_limit = |tool: &Tool| tool.counts_as_call() && self.is_limit_reached();
        let (tool, prepared) = match examined {
            Ok((tool, prepared)) if !is_beyond_limit(&tool) => (tool, prepared),
            refused => {
                if calls.is_resumed
                    && let request = PendingCall::from(call.clone())
                    && let Some(Verdict::Output(output)) =
                        calls.policy.call_policy(|policy| policy.verdict(&request))?
                {
                    // The verdict is applied even if the call can no longer run.
                    let result = output.into_result_for(&call);
                    return Ok(AdmissionStep::Answered(AnsweredCall { index: at, call, result }));
                }
                let refusal = refused.err().unwrap_or_else(|| self.refuse_over_limit());
                return Ok(AdmissionStep::Answered(AnsweredCall::from_refusal(at, call, refusal)));
            }
        };
        let permission = CallPermission::Unconditional;
        let ready_call =
            ReadyCall { index: at, call, tool, prepared, is_resumed: false, permission };
        match calls
            .policy
            .call_policy(|policy| Some(PolicyFuture::new(policy.before_call(&ready_call.call))))?
        {
            Some(permission) => {
                self.permission_request =
                    Some(Box::new(PermissionRequest { ready_call, permission }));
                Ok(AdmissionStep::Progressed)
            }
            None => self.apply_permission(calls, ready_call, Permission::allow()),
        }
    }

    /// Admits a call that an earlier attempt already admitted. The policy and the limit on calls
    /// are not applied to a resumed call a second time.
    fn find_admitted(
        &self,
        calls: &TurnCalls,
        at: usize,
        call: &ToolCall,
    ) -> Option<AdmissionStep> {
        let is_it = |admitted: &&AdmittedCall| admitted.call.call_id == call.call_id;
        let AdmittedCall { mut call, grant_id, new_grant } =
            self.admitted.iter().find(is_it)?.clone();
        let tool = calls.toolkit.get(&call.name).cloned();
        let prepared = tool.as_ref().and_then(|tool| prepare_call(tool, &mut call).ok());
        Some(match (tool, prepared) {
            (Some(tool), Some(prepared)) => AdmissionStep::Allowed(ReadyCall {
                index: at,
                call,
                tool,
                prepared,
                is_resumed: false,
                permission: match new_grant {
                    Some(grant) => CallPermission::NewGrant(grant),
                    None => CallPermission::Earlier { grant_id },
                },
            }),
            // The call may have started with a tool that no longer exists.
            (_, _) => {
                let refusal = (ResultKind::Interrupted, INTERRUPTED_MID_EXECUTION.to_owned());
                AdmissionStep::Answered(AnsweredCall::from_refusal(at, call, refusal))
            }
        })
    }

    /// Takes the next call from the queue if the call could start now or must wait for a verdict
    /// anyway.
    fn take_queued(
        &mut self,
        calls: &TurnCalls,
        slots: ConcurrencySlots,
    ) -> Option<(usize, ToolCall)> {
        let (_, call) = self.queue.front()?;
        let tool = calls.toolkit.get(&call.name);
        if tool.is_some_and(|tool| self.must_defer(tool)) {
            return None;
        }
        let waits = tool.is_some_and(|tool| tool.is_approval_required() || tool.is_external());
        (waits || slots.has_slot_for(tool)).then(|| self.queue.pop_front())?
    }

    /// Applies the policy's decision to a call.
    fn apply_permission(
        &mut self,
        calls: &mut TurnCalls,
        mut ready_call: ReadyCall,
        permission: Permission,
    ) -> Result<AdmissionStep, Error> {
        let Permission { decision: answer, arguments } = permission;
        let asks = match answer {
            PermissionDecision::Allow => ready_call.tool.is_approval_required(),
            PermissionDecision::RequireApproval => true,
            PermissionDecision::Deny(why) => return Ok(deny_call(ready_call, &why)),
        };
        if let Some(arguments) = arguments {
            ready_call.call.arguments = arguments;
            let prepared = match ready_call.tool.spec().approved_server() {
                // An approver must not approve other arguments than those that the provider runs.
                Some(_) => Err(ArgsError::InvalidArguments(
                    "the provider runs the call with the model's own arguments".to_owned(),
                )),
                None => prepare_call(&ready_call.tool, &mut ready_call.call),
            };
            match prepared {
                Ok(prepared) => ready_call.prepared = prepared,
                Err(ArgsError::InvalidArguments(why) | ArgsError::Panic(why)) => {
                    let call = &ready_call.call;
                    calls.policy.call_policy(|policy| policy.on_invalid_rewrite(call, &why))?;
                    let text = format!(
                        "Not run: a rule rewrote the arguments of `{}`, and they do not fit: {why}. \
                         This is not your fault; try another way.",
                        ready_call.call.name
                    );
                    return Ok(AdmissionStep::Answered(
                        ready_call.into_refused(ResultKind::Error, text),
                    ));
                }
            }
        }
        let external = ready_call.tool.is_external();
        if !asks && !external {
            return Ok(AdmissionStep::Allowed(ready_call));
        }
        if !calls.policy.is_some() {
            return Ok(if external {
                let why = "Not run: no executor is available for this tool.";
                AdmissionStep::Answered(ready_call.into_refused(ResultKind::Skipped, why))
            } else {
                deny_call(ready_call, "it needs an approval, and no approver is available")
            });
        }
        let request = new_request(calls, &ready_call)?;
        if let Some(verdict) = calls.policy.call_policy(|policy| policy.verdict(&request))?
            && is_decisive_for(&ready_call, &verdict)
        {
            return apply_verdict(calls, ready_call, &request, verdict);
        }
        if external {
            calls.policy.call_policy(|policy| policy.on_verdict_requested(&request))?;
            self.awaiting_verdict.push(AwaitingCall { ready_call, request });
            return Ok(AdmissionStep::Progressed);
        }
        if let Some(grant_id) = calls.policy.call_policy(|policy| policy.find_grant(&request))? {
            ready_call.permission = CallPermission::Grant(grant_id.into());
            return Ok(AdmissionStep::Allowed(ready_call));
        }
        self.await_verdict(calls, ready_call, request).map(AdmissionStep::VerdictRequested)
    }

    /// Requests an approval for a call that was admitted under a grant that no longer exists.
    pub(super) fn request_verdict(
        &mut self,
        calls: &mut TurnCalls,
        mut ready_call: ReadyCall,
    ) -> Result<ToolEvent, Error> {
        ready_call.permission = CallPermission::Unconditional;
        let request = new_request(calls, &ready_call)?;
        self.await_verdict(calls, ready_call, request)
    }

    /// Lets a call wait for a verdict, and returns the event that requests an approval.
    fn await_verdict(
        &mut self,
        calls: &mut TurnCalls,
        ready_call: ReadyCall,
        request: PendingCall,
    ) -> Result<ToolEvent, Error> {
        calls.policy.call_policy(|policy| policy.on_verdict_requested(&request))?;
        let event = ToolEvent::ApprovalRequested(Box::new(request.clone()));
        let index = ready_call.index;
        let place = self.awaiting_verdict.partition_point(|it| it.ready_call.index < index);
        self.awaiting_verdict.insert(place, AwaitingCall { ready_call, request });
        Ok(event)
    }

    /// Looks up grants for the waiting calls again in the next poll.
    pub(super) fn recheck_grants(&mut self) {
        self.has_new_grant = true;
    }

    /// Applies verdicts to the calls that are waiting for them. The returned steps contain any
    /// number of calls that may run, followed by at most one answered call.
    pub(super) fn take_verdicts(
        &mut self,
        calls: &mut TurnCalls,
    ) -> Result<Vec<AdmissionStep>, Error> {
        let mut at = 0;
        let mut steps = Vec::new();
        let has_new_grant = mem::take(&mut self.has_new_grant);
        while let Some(AwaitingCall { ready_call, request }) = self.awaiting_verdict.get(at) {
            match calls.policy.call_policy(|policy| policy.verdict(request))? {
                Some(verdict) if is_decisive_for(ready_call, &verdict) => {
                    let AwaitingCall { ready_call, request } = self.awaiting_verdict.remove(at);
                    let settled = apply_verdict(calls, ready_call, &request, verdict)?;
                    // The event of an answered call, or of a new grant, must be emitted before
                    // further verdicts are applied.
                    let has_to_tell = !matches!(
                        &settled,
                        AdmissionStep::Allowed(ReadyCall {
                            permission: CallPermission::Unconditional,
                            ..
                        })
                    );
                    steps.push(settled);
                    if has_to_tell {
                        self.has_new_grant |= has_new_grant;
                        break;
                    }
                }
                None if has_new_grant && !ready_call.tool.is_external() => {
                    match calls.policy.call_policy(|policy| policy.find_grant(request))? {
                        Some(grant_id) => {
                            let AwaitingCall { mut ready_call, .. } =
                                self.awaiting_verdict.remove(at);
                            ready_call.permission = CallPermission::Grant(grant_id.into());
                            steps.push(AdmissionStep::Allowed(ready_call));
                        }
                        None => at += 1,
                    }
                }
                Some(_) | None => at += 1,
            }
        }
        Ok(steps)
    }

    /// Returns whether the policy is deciding on a call.
    pub(super) fn is_asking(&self) -> bool {
        self.permission_request.is_some()
    }

    /// Returns whether the run is waiting for the policy's decision or for an approval.
    pub(super) fn must_wait(&self, calls: &mut TurnCalls) -> Result<bool, Error> {
        let needs_verdict =
            self.awaiting_verdict.iter().any(|it| !it.ready_call.tool.is_external());
        Ok(self.permission_request.is_some()
            || (needs_verdict && calls.policy.call_policy(|policy| policy.waits_for_verdicts())?))
    }

    /// Returns the calls that are waiting for a verdict, in call order, each with its index in the
    /// turn.
    pub(super) fn awaiting_verdict(&self) -> impl Iterator<Item = (usize, &PendingCall)> {
        self.awaiting_verdict.iter().map(|it| (it.ready_call.index, &it.request))
    }

    /// Returns whether no further calls may start.
    pub(super) fn is_limit_reached(&self) -> bool {
        self.call_limit.remaining == Some(0)
    }

    /// Counts a started call towards the limit.
    pub(super) fn count_started(&mut self) {
        self.call_limit.remaining = self.call_limit.remaining.map(|left| left.saturating_sub(1));
    }

    /// Returns the answer to a call that exceeds the limit, and counts the call.
    pub(super) fn refuse_over_limit(&mut self) -> Refusal {
        self.call_limit.over_limit_count += 1;
        self.call_limit.refusal.clone()
    }

    /// Returns the number of calls that were answered because they exceeded the limit.
    pub(super) fn over_limit_count(&self) -> usize {
        self.call_limit.over_limit_count
    }

    /// Returns whether a call must be held back because calls that are waiting for a verdict could
    /// use up the rest of the limit.
    fn must_defer(&self, tool: &Tool) -> bool {
        let Some(left) =
            self.call_limit.remaining.filter(|left| self.call_limit.defers_calls && *left > 0)
        else {
            return false;
        };
        let undecided = self.awaiting_verdict.iter().filter(|it| !it.ready_call.tool.is_external());
        tool.counts_as_call() && usize::try_from(left).unwrap_or(usize::MAX) <= undecided.count()
    }

    /// Releases the calls that were held back, and returns whether there were any such calls. This
    /// method is called once all verdicts are known.
    pub(super) fn release_deferred(&mut self) -> bool {
        mem::take(&mut self.call_limit.defers_calls) && !self.queue.is_empty()
    }

    /// Drops all calls that have not been admitted yet.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.awaiting_verdict.clear();
        self.permission_request = None;
    }
}

/// Returns a call's tool and the prepared call if the call resumes a suspended sub-agent. The
/// policy and the limit on calls are not applied to a resumed call a second time.
fn find_resumed(
    calls: &mut TurnCalls,
    call: &ToolCall,
) -> Result<Option<(Tool, PreparedCall)>, Error> {
    let was_suspended = calls.history.nested_history(&call.call_id).is_some();
    if !calls.is_resumed || calls.refusal.is_some() || !was_suspended {
        return Ok(None);
    }
    // Without a parent run, a sub-agent starts over, and its call is admitted like any other call.
    if calls.policy.call_policy(|policy| policy.policy_extension())?.is_none() {
        return Ok(None);
    }
    let tool = calls.toolkit.get(&call.name);
    Ok(tool.and_then(|tool| Some((tool.clone(), tool.prepare_resumed(&call.arguments)?))))
}

/// Finds the tool for a call and prepares the call, if the turn, the toolkit and the arguments
/// allow the call to run. If the arguments are repaired or read differently, the new arguments
/// replace those in `call`.
fn validate_call(
    calls: &mut TurnCalls,
    at: usize,
    call: &mut ToolCall,
) -> Result<Result<(Tool, PreparedCall), Refusal>, Error> {
    let tool = match calls.find_tool(at, call) {
        Ok(tool) => tool,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let prepared = match prepare_call(&tool, call) {
        Err(ArgsError::InvalidArguments(why)) if calls.toolkit.wraps_calls(&call.name) => {
            let repaired =
                calls.policy.try_call_policy(|policy| policy.repair_arguments(call, &why))?;
            let repaired = repaired.map(|arguments| ToolCall { arguments, ..call.clone() });
            match repaired.map(|call| calls.toolkit.unwrapped_call(&call).into_owned()) {
                Some(inner) if inner.name != call.name => {
                    *call = inner;
                    return validate_call(calls, at, call);
                }
                Some(_) | None => Err(ArgsError::InvalidArguments(why)),
            }
        }
        Err(ArgsError::InvalidArguments(why)) => repair_arguments(calls, &tool, call, why)?,
        prepared => prepared,
    };
    let prepared = prepared.map_err(|misfit| misfit.into_refusal(call));
    Ok(prepared.and_then(|prepared| {
        calls.check_dry_run(&tool, call)?;
        Ok((tool, prepared))
    }))
}

/// Asks the policy to replace invalid arguments, and tries once to prepare the call with the
/// replacement arguments.
fn repair_arguments(
    calls: &mut TurnCalls,
    tool: &Tool,
    call: &mut ToolCall,
    why: String,
) -> Result<Result<PreparedCall, ArgsError>, Error> {
    let Some(arguments) =
        calls.policy.try_call_policy(|policy| policy.repair_arguments(call, &why))?
    else {
        return Ok(Err(ArgsError::InvalidArguments(why)));
    };
    let mut repaired = ToolCall { arguments, ..call.clone() };
    Ok(match prepare_call(tool, &mut repaired) {
        Ok(prepared) => {
            *call = repaired;
            Ok(prepared)
        }
        // The model receives the error in its own arguments, not the error in the replacement
        // arguments.
        Err(ArgsError::InvalidArguments(misfit)) => {
            calls.policy.call_policy(|policy| policy.on_invalid_rewrite(&repaired, &misfit))?;
            Err(ArgsError::InvalidArguments(why))
        }
        panicked => panicked,
    })
}

/// Returns whether the call stops waiting after this verdict. After an approval, a call to an
/// external tool keeps waiting.
fn is_decisive_for(ready_call: &ReadyCall, verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Approve | Verdict::ApproveAlways(_) => !ready_call.tool.is_external(),
        Verdict::Deny(_) | Verdict::Output(_) => true,
    }
}

fn apply_verdict(
    calls: &mut TurnCalls,
    mut ready_call: ReadyCall,
    request: &PendingCall,
    verdict: Verdict,
) -> Result<AdmissionStep, Error> {
    Ok(match verdict {
        Verdict::Approve => AdmissionStep::Allowed(ready_call),
        Verdict::ApproveAlways(terms) => {
            let grant = calls.policy.call_policy(|policy| policy.create_grant(request, &terms))?;
            if let Some(grant) = grant {
                ready_call.permission = CallPermission::NewGrant(Box::new(grant));
            }
            AdmissionStep::Allowed(ready_call)
        }
        Verdict::Deny(why) => deny_call(ready_call, &why),
        Verdict::Output(output) => {
            let result = output.into_result_for(&ready_call.call);
            AdmissionStep::Answered(AnsweredCall {
                index: ready_call.index,
                call: ready_call.call,
                result,
            })
        }
    })
}

/// Creates the request for a verdict on a call.
fn new_request(calls: &mut TurnCalls, ready_call: &ReadyCall) -> Result<PendingCall, Error> {
    let approval_id = calls.policy.call_policy(|policy| policy.next_approval_id())?;
    Ok(PendingCall { approval_id, ..ready_call.to_request() })
}

fn deny_call(ready_call: ReadyCall, why: &str) -> AdmissionStep {
    AdmissionStep::Answered(ready_call.into_refused(ResultKind::Denied, format!("Denied: {why}")))
}
