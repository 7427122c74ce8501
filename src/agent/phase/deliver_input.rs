//! Applies pending changes to the history before a request is sent.

use crate::agent::State;
use crate::agent::helper_reports::HelperReport;
use crate::agent::phase::refused_reasoning::reasoning_removal;
use crate::agent::run::checked_input::describe_unsupported_parts;
use crate::agent::run::control::{DeliveryPoint, RunGrants};
use crate::agent::run::run_shared::RunShared;
use crate::agent::run::tombstone_queue::TombstoneQueue;
use crate::event::{AppendReason, Event, RewriteReason, ToolEvent, Transition};
use crate::item::{Item, TombstoneEdit};
use crate::usage::Usage;
use crate::world::EffectKind;

/// Applies the next pending change to the history before a request is sent.
pub(in crate::agent) fn deliver_next_input(
    run: &RunShared,
    state: State,
) -> (State, Option<Event>) {
    let history = run.history();
    if state.transition == Some(Transition::ReasoningRefused)
        && let Some(event) = reasoning_removal(&history, &state.model_selection.model)
    {
        let compaction = state.compaction.after_tombstone(&history);
        return (
            state.update(|it| (it.history, it.compaction) = (history, compaction)),
            Some(event),
        );
    }
    if !run.settings.tools.sources.is_empty()
        && let Some(notice) = run.control().tools.listed.take_notice()
    {
        let (id, items) = (run.new_id(), vec![Item::user(notice)]);
        let notice = Event::Appended { why: AppendReason::Hook, id, items };
        return (state.update(|it| it.history = history), Some(notice));
    }
    let notes = run.effects.draw(EffectKind::HookMessages, || run.control().observers.take_notes());
    if notes.is_empty()
        && let Some(change) =
            next_owner_change(run, RunGrants::take_revoked, |queue| queue.next(&history))
    {
        charge_reported_usage(run, &state, &change);
        let compaction = match change {
            Event::HelperUsage { .. } => state.compaction,
            _ => state.compaction.after_tombstone(&history),
        };
        return (
            state.update(|it| (it.history, it.compaction) = (history, compaction)),
            Some(change),
        );
    }
    let appended = match notes.is_empty() {
        true => {
            let event =
                run.effects.draw(EffectKind::DeliveredInput, || next_input_event(run, &state));
            if let Some(Event::Appended { id, .. }) = &event {
                run.control().inbox.record_delivery(id, state.counts.model_calls + 1);
            }
            event
        }
        false => Some(Event::Appended { why: AppendReason::Hook, id: run.new_id(), items: notes }),
    };
    let appended = appended.map(|event| match event {
        Event::Appended { why, id, mut items } if !omits_unsupported_parts(run) => {
            // The sender cannot correct the input anymore, and the run must not end because of it.
            describe_unsupported_parts(run.provider(&state), &mut items);
            Event::Appended { why, id, items }
        }
        event => event,
    });
    // Only one follow-up is delivered at a time. The next follow-up waits until the model stops
    // again.
    let (follow_up, is_new) = match &appended {
        Some(Event::Appended { why: AppendReason::Hook | AppendReason::Message, .. }) => {
            (state.follow_up_due, false)
        }
        Some(Event::Appended { why, .. }) => {
            (state.follow_up_due && *why != AppendReason::FollowUp, true)
        }
        _ => (false, false),
    };
    let state = state.update(|it| {
        (it.history, it.follow_up_due) = (history, follow_up);
        if is_new {
            // After new input, a claim without evidence may be rejected once more.
            (it.evidence.claim_rejected, it.streaks.idle_turns) = (false, 0);
        }
    });
    (state, appended)
}

/// Returns whether requests describe the parts that the provider cannot send.
fn omits_unsupported_parts(run: &RunShared) -> bool {
    run.settings.prompt.options.omit_unsupported_parts
}

/// Returns the event that delivers the next queued input: steered input or, if one is due, a
/// follow-up.
fn next_input_event(run: &RunShared, state: &State) -> Option<Event> {
    let turn = state.counts.model_calls + 1;
    let (why, input) = match run.control().inbox.dequeue(DeliveryPoint::BeforeNextRequest, turn) {
        Some(input) if run.control().take_message(&input.id) => (AppendReason::Message, input),
        Some(input) => (AppendReason::Steer, input),
        None if state.follow_up_due => (
            AppendReason::FollowUp,
            run.control().inbox.dequeue(DeliveryPoint::AfterModelStops, turn)?,
        ),
        None => return None,
    };
    Some(Event::Appended { why, id: input.id, items: input.items })
}

/// Reports the next usage of a hook or the next revoked grant, or turns the next range of queued
/// items into tombstones, once the run is over. The journal has already observed the returned
/// event.
pub(in crate::agent) fn apply_final_owner_change(run: &RunShared, state: &State) -> Option<Event> {
    let journal = &run.handle.journal;
    let event = next_owner_change(run, RunGrants::take_revoked_or_close, |queue| {
        queue.next_or_close(&journal.history())
    })?;
    let account = &run.control().usage;
    let last_rate = account.rate();
    charge_reported_usage(run, state, &event);
    journal.observe(&event);
    if let Event::HelperUsage { .. } = event {
        // A turn that was cut off is priced as the last request.
        run.budget_usage(state);
        account.begin_request(last_rate);
    }
    if let Some(change) = event.grant_change() {
        run.control().grants.apply(change);
    }
    Some(event)
}

/// Charges the tokens that an event reports for a hook.
fn charge_reported_usage(run: &RunShared, state: &State, event: &Event) {
    if let Event::HelperUsage { model, usage, .. } = event {
        run.charge_helper(state, **usage, model.as_deref());
    }
}

/// Returns the event for the next change that does not come from the loop: the usage that a hook
/// has reported, or what the run's owner has done, a revoked grant or a range of items that become
/// tombstones.
fn next_owner_change(
    run: &RunShared,
    revoked: impl FnOnce(&RunGrants) -> Option<String>,
    next: impl FnOnce(&TombstoneQueue) -> Option<TombstoneEdit>,
) -> Option<Event> {
    let event = run.effects.draw(EffectKind::Tombstones, || {
        let control = run.control();
        if let Some(report) = control.helpers.first() {
            return Some(report.into());
        }
        if let Some(grant_id) = revoked(&control.grants) {
            return Some(ToolEvent::GrantRevoked { grant_id }.into());
        }
        let TombstoneEdit { from, to, items } = next(&control.inbox.tombstone_queue)?;
        let (why, usage) = (RewriteReason::Tombstoned, Usage::default());
        Some(Event::Rewritten { why, from, to, items, usage: usage.into(), model: None })
    });
    if let Some(Event::HelperUsage { purpose, model, usage }) = &event {
        // The event may be a stored one, and the report may come from the stored value of an
        // effect.
        let (purpose, model, usage) = (purpose.clone(), model.clone(), **usage);
        run.control().helpers.remove(&HelperReport { purpose, model, usage });
    }
    event
}
