//! What is done to the history before a request.

use crate::agent::State;
use crate::agent::control::When;
use crate::agent::shared::Shared;
use crate::agent::tombstone_queue::TombstoneQueue;
use crate::event::{AppendedWhy, Event, RewrittenWhy};
use crate::item::TombstoneEdit;
use crate::usage::Usage;
use crate::world::Kind;

/// The next thing that is done to the history before a request.
pub(super) fn deliver(run: &Shared, state: State) -> (State, Option<Event>) {
    let history = run.history();
    let notes = run.effects.draw(Kind::Notes, || run.control().observers().take_notes());
    if notes.is_empty()
        && let Some(voided) = next_voided(run, |queue| queue.next(&history))
    {
        let room = state.room.after_void(&history);
        return (state.with(|it| (it.history, it.room) = (history, room)), Some(voided));
    }
    let said = match notes.is_empty() {
        true => run.effects.draw(Kind::Said, || said(run, &state)),
        false => Some(Event::Appended { why: AppendedWhy::Hook, id: run.id(), items: notes }),
    };
    // One follow-up at a time: the next waits until the model stops again.
    let (follow_up, is_new) = match &said {
        Some(Event::Appended { why: AppendedWhy::Hook, .. }) => (state.follow_up, false),
        Some(Event::Appended { why, .. }) => {
            (state.follow_up && *why != AppendedWhy::FollowUp, true)
        }
        _ => (false, false),
    };
    let state = state.with(|it| {
        (it.history, it.follow_up) = (history, follow_up);
        if is_new {
            // What is new to the model is a new chance to prove what it claims.
            (it.claims.sent_back, it.streaks.idle) = (false, 0);
        }
    });
    (state, said)
}

/// What a holder says before the next request.
fn said(run: &Shared, state: &State) -> Option<Event> {
    let turn = state.counts.model_calls + 1;
    let (why, said) = match run.control().take(When::NextRequest, turn) {
        Some(said) => (AppendedWhy::Steer, said),
        None if state.follow_up => {
            (AppendedWhy::FollowUp, run.control().take(When::ModelStops, turn)?)
        }
        None => return None,
    };
    Some(Event::Appended { why, id: said.id, items: said.items })
}

/// What becomes void when the run is over, already observed.
pub(super) fn void_at_end(run: &Shared) -> Option<Event> {
    let journal = &run.handle.journal;
    let event = next_voided(run, |queue| queue.next_or_close(&journal.history()))?;
    journal.observe(&event);
    Some(event)
}

/// The next range that becomes void, as an event.
fn next_voided(
    run: &Shared,
    next: impl FnOnce(&TombstoneQueue) -> Option<TombstoneEdit>,
) -> Option<Event> {
    run.effects.draw(Kind::Tombstones, || {
        let TombstoneEdit { from, to, items } = next(run.control().tombstones())?;
        let (why, usage) = (RewrittenWhy::Tombstoned, Usage::default());
        Some(Event::Rewritten { why, from, to, items, usage })
    })
}
