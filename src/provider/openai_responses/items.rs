//! The items of a response while they stream.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::call::Call;
use super::parallel;
use super::slot::{Kind, Place, Slot};
use super::wire::{Arguments, WireItem};
use super::words::{Agreement, Voice};
use crate::error::{Error, ErrorKind};
use crate::turn::{MOST_ITEMS, TurnBuilder};

/// All items of a response. The place of an item here is its key in the turn.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// The model that was asked: what it writes is bound to this name.
    pub(super) model: String,
    /// The tools that were declared.
    pub(super) declared: Vec<String>,
    pub(super) slots: Vec<Slot>,
    /// The id of the newest reasoning item that is finished.
    pub(super) reasoned: Option<String>,
    /// Something that was streamed is not what the provider says it was.
    pub(super) differs: bool,
    /// The newest slot of each index; not asked where a slot has none.
    newest: HashMap<u64, usize>,
    some_lack_an_index: bool,
    /// A message has more parts than any.
    pub(super) overfull: bool,
    /// How many keys were given to the calls inside of wrappers.
    inner_calls: u32,
}

impl Items {
    /// No items yet, of an answer of a model.
    pub(super) fn of(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }

    /// An item begins.
    pub(super) fn added(&mut self, place: Place<'_>, raw: &RawValue, turn: &mut TurnBuilder) {
        let mut room = String::new();
        let Some(item) = WireItem::read(raw, &mut room) else { return };
        let place = Place { id: item.id.or_empty(), ..place };
        // One that is there already was announced twice.
        if self.find(place, |slot| slot.may_be(&item)).is_none() {
            let at = self.open(place, Kind::of(&item));
            if let Kind::Call(call) = &mut self.slots[at].kind {
                call.begin(&item, &self.declared, key(at), turn);
            }
        }
    }

    /// A piece of the words of a message or of reasoning.
    pub(super) fn words(
        &mut self,
        place: Place<'_>,
        part: (Voice, u64),
        piece: &str,
        turn: &mut TurnBuilder,
    ) {
        let at = self.speaking(place, part.0);
        let Slot { kind, done: false, .. } = &mut self.slots[at] else { return };
        match kind {
            Kind::Message(words) | Kind::Reasoning(words) => {
                words.delta(part, piece, key(at), turn);
                self.overfull |= words.is_overfull();
            }
            Kind::Call(_) | Kind::Own(_) => {}
        }
    }

    /// The whole text of a part.
    pub(super) fn whole_words(
        &mut self,
        place: Place<'_>,
        part: (Voice, u64),
        text: &str,
        turn: &mut TurnBuilder,
    ) {
        let at = self.speaking(place, part.0);
        let key = key(at);
        let Slot { kind, done: false, .. } = &mut self.slots[at] else { return };
        match kind {
            Kind::Message(words) => {
                self.differs |= words.whole(part, text, key, turn) == Agreement::Differs;
                self.overfull |= words.is_overfull();
            }
            // Thoughts are for reading; what goes back is the item as it is told at its end.
            Kind::Reasoning(words) => {
                let _ = words.whole(part, text, key, turn);
                self.overfull |= words.is_overfull();
            }
            Kind::Call(_) | Kind::Own(_) => {}
        }
    }

    /// A piece of a call's arguments; `None` if it is no text.
    pub(super) fn arguments(
        &mut self,
        place: Place<'_>,
        piece: Option<&str>,
        turn: &mut TurnBuilder,
    ) {
        if self.is_anybodys(place) {
            let calls = self.slots.iter_mut().filter_map(|slot| match &mut slot.kind {
                Kind::Call(call) => Some(call),
                Kind::Message(_) | Kind::Reasoning(_) | Kind::Own(_) => None,
            });
            return calls.for_each(|call| call.delta(None, 0, turn));
        }
        let at = self.calling(place);
        if let Some(call) = self.call_mut(at) {
            call.delta(piece, key(at), turn);
        }
    }

    /// The whole of a call's arguments.
    pub(super) fn whole_arguments(
        &mut self,
        place: Place<'_>,
        name: &str,
        told: Arguments<'_>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        if self.is_anybodys(place) {
            let message = "the end of a tool call may be of one of several";
            return Err(Error::new(ErrorKind::Protocol, message));
        }
        let at = self.calling(place);
        if let Kind::Call(call) = &mut self.slots[at].kind {
            call.rename(name, &self.declared);
            let agreement = call.finish(told, false, key(at), turn)?;
            self.differs |= agreement == Agreement::Differs;
        }
        self.say_if_whole(at, turn);
        Ok(())
    }

    /// Says a whole call, or the calls that it wraps.
    pub(super) fn say_call(&mut self, at: usize, turn: &mut TurnBuilder) {
        let Kind::Call(call) = &mut self.slots[at].kind else { return };
        let wraps = call.is_held() && call.is_whole();
        let inner = wraps.then(|| parallel::expanded(&call.arguments, &self.declared)).flatten();
        let Some(inner) = inner else { return call.say(key(at), turn) };
        call.mark_said();
        for (nth, one) in inner.iter().enumerate() {
            // Counted down, so that no item has the same.
            let key = u32::MAX - self.inner_calls;
            self.inner_calls += 1;
            let id = match call.id.as_str() {
                "" => String::new(),
                id => format!("{id}_{nth}"),
            };
            turn.tool_call_start(key, &id, &one.name);
            turn.tool_call_args(key, &one.arguments);
            turn.tool_call_end(key);
        }
    }

    pub(super) fn say_if_whole(&mut self, at: usize, turn: &mut TurnBuilder) {
        if let Kind::Call(call) = &self.slots[at].kind
            && call.is_whole()
            && call.is_unsaid()
        {
            self.say_call(at, turn);
        }
    }

    pub(super) fn has_any(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Whether a piece of a call does not say which of several it is of.
    fn is_anybodys(&self, place: Place<'_>) -> bool {
        let is_call = |slot: &Slot| matches!(slot.kind, Kind::Call(_));
        let mut open = self.slots.iter().filter(|slot| is_call(slot) && !slot.done);
        place.index.is_none() && open.nth(1).is_some() && self.find(place, is_call).is_none()
    }

    /// There is more than any response has: nothing is taken any more.
    pub(super) fn is_overfull(&self) -> bool {
        self.slots.len() > MOST_ITEMS || self.overfull
    }

    pub(super) fn open(&mut self, place: Place<'_>, kind: Kind) -> usize {
        match place.index {
            Some(index) => drop(self.newest.insert(index, self.slots.len())),
            None => self.some_lack_an_index = true,
        }
        self.slots.push(Slot::new(place, kind));
        self.slots.len() - 1
    }

    /// The newest item that is wanted and stands at a place.
    pub(super) fn find(&self, place: Place<'_>, wanted: impl Fn(&Slot) -> bool) -> Option<usize> {
        if let Some(index) = place.index
            && !self.some_lack_an_index
        {
            let newest = *self.newest.get(&index)?;
            if wanted(self.slots.get(newest)?) {
                return Some(newest);
            }
        }
        self.slots.iter().rposition(|slot| slot.stands_at(place) && wanted(slot))
    }

    /// The same; without a place, the newest one that is open.
    pub(super) fn find_or_newest(
        &self,
        place: Place<'_>,
        wanted: impl Fn(&Slot) -> bool,
    ) -> Option<usize> {
        let newest = || self.slots.iter().rposition(|slot| !slot.done && wanted(slot));
        let found = self.find(place, &wanted);
        found.or_else(|| place.index.is_none().then(newest).flatten())
    }

    fn speaking(&mut self, place: Place<'_>, voice: Voice) -> usize {
        let kind = Kind::speaking(voice);
        let found = self.find_or_newest(place, |slot| slot.kind.is_like(&kind));
        found.unwrap_or_else(|| self.open(place, kind))
    }

    /// The call at a place; one whose beginning was lost begins here.
    fn calling(&mut self, place: Place<'_>) -> usize {
        let is_call = |slot: &Slot| matches!(slot.kind, Kind::Call(_));
        let found = self.find_or_newest(place, is_call);
        found.unwrap_or_else(|| self.open(place, Kind::Call(Box::default())))
    }

    fn call_mut(&mut self, at: usize) -> Option<&mut Call> {
        match &mut self.slots[at].kind {
            Kind::Call(call) => Some(call),
            Kind::Message(_) | Kind::Reasoning(_) | Kind::Own(_) => None,
        }
    }
}

/// The key of an item in the turn; no response has as many.
pub(super) fn key(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
