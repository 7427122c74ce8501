//! What the end of an item, and the end of the response, say of the items.

use serde_json::value::RawValue;

use super::items::{Items, key};
use super::slot::{Kind, Place, Slot};
use super::wire::{Arguments, WireItem, WirePart};
use super::words::{Agreement, Voice};
use super::{NAME, keep};
use crate::error::{Error, ErrorKind};
use crate::item::ProviderData;
use crate::turn::TurnBuilder;

impl Items {
    /// An item is finished.
    pub(super) fn done(
        &mut self,
        place: Place<'_>,
        raw: &RawValue,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let mut room = String::new();
        let Some(item) = WireItem::read(raw, &mut room) else { return Ok(()) };
        let place = Place { id: item.id.or_empty(), ..place };
        let found = self.find_or_newest(place, |slot| slot.may_be(&item));
        let at = found.unwrap_or_else(|| self.open(place, Kind::of(&item)));
        // "mcp_list_tools" may come without its tools, which the terminal event has then.
        if item.r#type.or_empty() == "mcp_list_tools" && item.tools.is_none() {
            self.slots[at].data = keep::whole(raw);
            return Ok(());
        }
        self.finish(at, raw, &item, turn)
    }

    /// The terminal event, whose output is taken for what did not come before it.
    pub(super) fn backfill(
        &mut self,
        output: &[&RawValue],
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        for (index, raw) in (0..).zip(output) {
            if self.is_overfull() {
                break;
            }
            let mut room = String::new();
            let Some(item) = WireItem::read(raw, &mut room) else { continue };
            let place = Place { index: Some(index), id: item.id.or_empty() };
            let at = self.told(place, &item).unwrap_or_else(|| self.open(place, Kind::of(&item)));
            self.slots[at].matched = true;
            self.finish(at, raw, &item, turn)?;
        }
        for at in 0..self.slots.len() {
            if let Slot { kind: Kind::Own(_), done: false, data: Some(_), .. } = self.slots[at] {
                self.slots[at].done = true;
                self.attach(at, turn);
            }
        }
        Ok(())
    }

    /// Whether something was streamed that must be taken back; it is said only once.
    pub(super) fn must_retract(&mut self) -> bool {
        std::mem::take(&mut self.differs)
    }

    /// Says everything once more, after a retraction.
    pub(super) fn say_again(&mut self, turn: &mut TurnBuilder) {
        for at in 0..self.slots.len() {
            match &self.slots[at].kind {
                Kind::Message(words) | Kind::Reasoning(words) => words.say_again(key(at), turn),
                Kind::Call(_) => self.say_call(at, turn),
                Kind::Own(_) => {}
            }
            if self.slots[at].done {
                self.attach(at, turn);
            }
        }
    }

    pub(super) fn refuses(&self) -> bool {
        let refuses = |slot: &Slot| matches!(&slot.kind, Kind::Message(words) if words.refuses());
        self.slots.iter().any(refuses)
    }

    pub(super) fn has_calls(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot.kind, Kind::Call(_)))
    }

    /// Says the calls that were cut off before they could be said.
    pub(super) fn say_rest(&mut self, turn: &mut TurnBuilder) {
        for at in 0..self.slots.len() {
            if let Kind::Call(call) = &mut self.slots[at].kind
                && call.is_unsaid()
            {
                call.say(key(at), turn);
            }
        }
    }

    /// Checks that every call was written to its end.
    pub(super) fn check_calls(&self) -> Result<(), Error> {
        for slot in &self.slots {
            if let Kind::Call(call) = &slot.kind
                && !call.is_whole()
            {
                let message = match call.name.as_str() {
                    "" => "a tool call has no name",
                    _ => "a tool call was not written to its end",
                };
                return Err(Error::new(ErrorKind::Protocol, message));
            }
        }
        Ok(())
    }

    /// The item that the terminal event tells of: by the id of the call, by its own id, by its
    /// place, by its turn among those of its kind.
    fn told(&self, place: Place<'_>, item: &WireItem<'_>) -> Option<usize> {
        let kind = Kind::of(item);
        let call_id = item.call_id.or_empty();
        let is_this_call = |slot: &Slot| match &slot.kind {
            Kind::Call(call) => !call_id.is_empty() && call.id == call_id,
            Kind::Message(_) | Kind::Reasoning(_) | Kind::Own(_) => false,
        };
        let may_be = |slot: &Slot| match &slot.kind {
            Kind::Call(_) => slot.may_be(item),
            Kind::Message(_) | Kind::Reasoning(_) | Kind::Own(_) => slot.kind.is_like(&kind),
        };
        let first = |wanted: &dyn Fn(&Slot) -> bool| {
            self.slots.iter().position(|slot| !slot.matched && wanted(slot))
        };
        first(&is_this_call)
            .or_else(|| first(&|slot| may_be(slot) && slot.has_id(place.id)))
            .or_else(|| first(&|slot| may_be(slot) && slot.index == place.index))
            .or_else(|| first(&may_be))
    }

    /// Takes an item as it is told as a whole.
    fn finish(
        &mut self,
        at: usize,
        raw: &RawValue,
        item: &WireItem<'_>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let (slot, key) = (&mut self.slots[at], key(at));
        let after = self.reasoned.as_deref();
        match &mut slot.kind {
            Kind::Call(call) => {
                call.describe(item, &self.declared);
                let cut_off = matches!(item.status.or_empty(), "incomplete" | "failed");
                let told = Arguments::of(item.arguments);
                self.differs |= call.finish(told, cut_off, key, turn)? == Agreement::Differs;
                slot.data = slot.data.take().or_else(|| keep::call(raw, after));
            }
            _ if slot.done => return Ok(()),
            Kind::Message(words) => {
                let told = told_words(&item.content.0);
                self.differs |= words.all(&told, key, turn) == Agreement::Differs;
                self.overfull |= words.is_overfull();
                if item.phase.get() == Some("commentary") {
                    turn.commentary(key);
                }
                slot.data = keep::message(raw, &item.content.0, after);
            }
            Kind::Reasoning(words) => {
                if words.is_empty() {
                    let _ = words.all(&told_thoughts(item), key, turn);
                    self.overfull |= words.is_overfull();
                }
                slot.data = keep::whole(raw);
                self.reasoned = Some(item.id.or_empty().to_owned());
            }
            Kind::Own(_) => slot.data = keep::whole(raw),
        }
        slot.done = true;
        self.say_if_whole(at, turn);
        self.attach(at, turn);
        Ok(())
    }

    /// Gives the turn what goes back verbatim.
    fn attach(&self, at: usize, turn: &mut TurnBuilder) {
        let Slot { kind, data: Some(value), .. } = &self.slots[at] else { return };
        let (provider, model, value) = (NAME.to_owned(), self.model.clone(), value.clone());
        let data = ProviderData { provider, model, value };
        match kind {
            Kind::Message(_) => turn.text_data(key(at), data),
            Kind::Reasoning(_) => turn.reasoning_data(key(at), data),
            Kind::Call(_) => turn.tool_call_data(key(at), data),
            Kind::Own(_) => turn.other(data),
        }
    }
}

fn told_words<'a>(content: &'a [WirePart<'_>]) -> Vec<(Voice, u64, &'a str)> {
    let told = |(index, part): (u64, &'a WirePart<'_>)| match part.r#type.or_empty() {
        "output_text" | "text" => Some((Voice::Text, index, part.text.or_empty())),
        "refusal" => Some((Voice::Refusal, index, part.refusal.or_empty())),
        _ => None,
    };
    (0..).zip(content).filter_map(told).collect()
}

/// The thoughts of an item that streamed none. Those that stand there twice are told once.
fn told_thoughts<'a>(item: &'a WireItem<'_>) -> Vec<(Voice, u64, &'a str)> {
    let parts = |voice, parts: &'a [WirePart<'_>]| {
        (0..).zip(parts).map(move |(index, part)| (voice, index, part.text.or_empty()))
    };
    let text = |parts: &[WirePart<'_>]| -> String {
        parts.iter().map(|part| part.text.or_empty()).collect()
    };
    let (summary, content) = (&item.summary.0, &item.content.0);
    let twice = text(summary) == text(content);
    let content = if twice { &[][..] } else { content };
    parts(Voice::Summary, summary).chain(parts(Voice::Trace, content)).collect()
}
