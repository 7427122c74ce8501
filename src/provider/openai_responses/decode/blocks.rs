//! The items of a response while they stream: the blocks of this wire.

use std::borrow::Cow;
use std::collections::HashMap;
use std::mem::discriminant;

use serde_json::value::RawValue;

use super::calls::{Call, expanded};
use super::frames::WireItem;
use super::text::{Agreement, Parts, TextKind};
use crate::error::Error;
use crate::item::{Json, ProviderData};
use crate::provider::decode::key;
use crate::provider::failure::protocol_error;
use crate::provider::lenient::json;
use crate::provider::openai::arguments;
use crate::provider::openai_responses::passthrough::{self, NAME, Part};
use crate::turn::{MAX_ITEMS, TurnBuilder};

/// Where an event says that its item stands. Ids of items may change from event to event, so the
/// place counts first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Location<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: &'a str,
}

/// All items of a response. The place of an item here is its key in the turn.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// The model that was asked: what it writes is bound to this name.
    model: String,
    /// The tools that were declared.
    pub(super) declared: Vec<String>,
    slots: Vec<Slot>,
    /// The id of the newest reasoning item that is finished.
    reasoned: Option<String>,
    /// Something that was streamed is not what the provider says it was.
    differs: bool,
    /// The newest slot of each index; not asked where a slot has none.
    newest: HashMap<u64, usize>,
    some_lack_an_index: bool,
    /// A message has more parts than any.
    overfull: bool,
    /// How many keys were given to the calls inside of wrappers.
    inner_calls: u32,
}

impl Items {
    /// No items yet, of an answer of a model.
    pub(super) fn of(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }

    /// An item begins.
    pub(super) fn added(&mut self, location: Location<'_>, raw: &RawValue, turn: &mut TurnBuilder) {
        let mut room = String::new();
        let Some(item) = WireItem::read(raw, &mut room) else { return };
        let location = Location { id: item.id.or_empty(), ..location };
        // One that is there already was announced twice.
        if self.find(location, |slot| slot.may_be(&item)).is_none() {
            let at = self.open(location, Kind::of(&item));
            if let Kind::Call(call) = &mut self.slots[at].kind {
                call.begin(&item, &self.declared, key(at), turn);
            }
        }
    }

    /// A piece of the words of a message or of reasoning.
    pub(super) fn words(
        &mut self,
        location: Location<'_>,
        part: (TextKind, u64),
        piece: &str,
        turn: &mut TurnBuilder,
    ) {
        let at = self.speaking(location, part.0);
        if let Some(words) = self.slots[at].open_words() {
            words.delta(part, piece, key(at), turn);
            self.overfull |= words.is_overfull();
        }
    }

    /// The whole text of a part.
    pub(super) fn whole_words(
        &mut self,
        location: Location<'_>,
        part: (TextKind, u64),
        text: &str,
        turn: &mut TurnBuilder,
    ) {
        let at = self.speaking(location, part.0);
        if let Some(words) = self.slots[at].open_words() {
            let differs = words.whole(part, text, key(at), turn) == Agreement::Differs;
            // Thoughts are for reading; what goes back is the item as it is told at its end.
            self.differs |= differs && !part.0.is_thought();
            self.overfull |= words.is_overfull();
        }
    }

    /// A piece of a call's arguments; `None` if it is not text.
    pub(super) fn arguments(
        &mut self,
        location: Location<'_>,
        piece: Option<&str>,
        turn: &mut TurnBuilder,
    ) {
        if self.is_anybodys(location) {
            for slot in &mut self.slots {
                if let Kind::Call(call) = &mut slot.kind {
                    call.delta(None, 0, turn);
                }
            }
            return;
        }
        let at = self.calling(location);
        if let Kind::Call(call) = &mut self.slots[at].kind {
            call.delta(piece, key(at), turn);
        }
    }

    /// The whole of a call's arguments; `None` if it is not text.
    pub(super) fn whole_arguments(
        &mut self,
        location: Location<'_>,
        name: &str,
        told: Option<Cow<'_, str>>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        if self.is_anybodys(location) {
            return Err(protocol_error("the end of a tool call may be of one of several"));
        }
        let at = self.calling(location);
        if let Kind::Call(call) = &mut self.slots[at].kind {
            call.rename(name, &self.declared);
            let agreement = call.finish(told, false, key(at), turn)?;
            self.differs |= agreement == Agreement::Differs;
        }
        self.say_if_whole(at, turn);
        Ok(())
    }

    /// Says a whole call, or the calls that it wraps.
    fn say_call(&mut self, at: usize, turn: &mut TurnBuilder) {
        let Kind::Call(call) = &mut self.slots[at].kind else { return };
        let wraps = call.held && call.is_whole();
        let inner = wraps.then(|| expanded(&call.arguments, &self.declared)).flatten();
        let Some(inner) = inner else { return call.say(key(at), turn) };
        call.started = true;
        for (nth, one) in inner.iter().enumerate() {
            // Counted down, so that no item has the same.
            let key = u32::MAX - self.inner_calls;
            self.inner_calls += 1;
            let id = match call.id.as_str() {
                "" => String::new(),
                id => format!("{id}_{nth}"),
            };
            turn.start_tool_call(key, &id, one.name());
            turn.push_tool_call_args(key, one.parameters.get());
            turn.end_tool_call(key);
        }
    }

    fn say_if_whole(&mut self, at: usize, turn: &mut TurnBuilder) {
        if self.slots[at].kind.call().is_some_and(|call| call.is_whole() && !call.started) {
            self.say_call(at, turn);
        }
    }

    pub(super) fn has_any(&self) -> bool {
        !self.slots.is_empty()
    }

    /// An item is finished.
    pub(super) fn done(
        &mut self,
        location: Location<'_>,
        raw: &RawValue,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let mut room = String::new();
        let Some(item) = WireItem::read(raw, &mut room) else { return Ok(()) };
        let location = Location { id: item.id.or_empty(), ..location };
        let found = self.find_or_newest(location, |slot| slot.may_be(&item));
        let at = found.unwrap_or_else(|| self.open(location, Kind::of(&item)));
        // "mcp_list_tools" may come without its tools, which the terminal event has then.
        if item.r#type.or_empty() == "mcp_list_tools" && item.tools.is_none() {
            self.slots[at].data = json(raw);
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
            let location = Location { index: Some(index), id: item.id.or_empty() };
            let at =
                self.told(location, &item).unwrap_or_else(|| self.open(location, Kind::of(&item)));
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
        self.slots.iter().any(|slot| slot.kind.call().is_some())
    }

    /// Says the calls that were cut off before they could be said.
    pub(super) fn say_rest(&mut self, turn: &mut TurnBuilder) {
        for at in 0..self.slots.len() {
            if let Kind::Call(call) = &mut self.slots[at].kind
                && !call.started
            {
                call.say(key(at), turn);
            }
        }
    }

    /// Checks that every call was written to its end.
    pub(super) fn check_calls(&self) -> Result<(), Error> {
        let mut calls = self.slots.iter().filter_map(|slot| slot.kind.call());
        match calls.find(|call| !call.is_whole()).map(|call| call.name.as_str()) {
            None => Ok(()),
            Some("") => Err(protocol_error("a tool call has no name")),
            Some(_) => Err(protocol_error("a tool call was not written to its end")),
        }
    }

    /// Whether a piece of a call does not say which of several it is of.
    fn is_anybodys(&self, location: Location<'_>) -> bool {
        let is_call = |slot: &Slot| matches!(slot.kind, Kind::Call(_));
        let mut open = self.slots.iter().filter(|slot| is_call(slot) && !slot.done);
        location.index.is_none() && open.nth(1).is_some() && self.find(location, is_call).is_none()
    }

    /// There is more than any response has: nothing is taken any more.
    pub(super) fn is_overfull(&self) -> bool {
        self.slots.len() > MAX_ITEMS || self.overfull
    }

    fn open(&mut self, location: Location<'_>, kind: Kind) -> usize {
        match location.index {
            Some(index) => drop(self.newest.insert(index, self.slots.len())),
            None => self.some_lack_an_index = true,
        }
        let Location { index, id } = location;
        let slot = Slot { index, id: id.to_owned(), kind, done: false, data: None, matched: false };
        self.slots.push(slot);
        self.slots.len() - 1
    }

    /// The newest item that is wanted and stands at a location.
    fn find(&self, location: Location<'_>, wanted: impl Fn(&Slot) -> bool) -> Option<usize> {
        if let Some(index) = location.index
            && !self.some_lack_an_index
        {
            let newest = *self.newest.get(&index)?;
            if wanted(self.slots.get(newest)?) {
                return Some(newest);
            }
        }
        self.slots.iter().rposition(|slot| slot.stands_at(location) && wanted(slot))
    }

    /// The same; without a location, the newest one that is open.
    fn find_or_newest(
        &self,
        location: Location<'_>,
        wanted: impl Fn(&Slot) -> bool,
    ) -> Option<usize> {
        let newest = || self.slots.iter().rposition(|slot| !slot.done && wanted(slot));
        let found = self.find(location, &wanted);
        found.or_else(|| location.index.is_none().then(newest).flatten())
    }

    fn speaking(&mut self, location: Location<'_>, kind_of_text: TextKind) -> usize {
        let kind = Kind::speaking(kind_of_text);
        let found = self.find_or_newest(location, |slot| slot.kind.is_like(&kind));
        found.unwrap_or_else(|| self.open(location, kind))
    }

    /// The call at a place; one whose beginning was lost begins here.
    fn calling(&mut self, location: Location<'_>) -> usize {
        let is_call = |slot: &Slot| matches!(slot.kind, Kind::Call(_));
        let found = self.find_or_newest(location, is_call);
        found.unwrap_or_else(|| self.open(location, Kind::Call(Box::default())))
    }

    /// The item that the terminal event tells of: by the id of the call, by its own id, by its
    /// location, by its turn among those of its kind.
    fn told(&self, location: Location<'_>, item: &WireItem<'_>) -> Option<usize> {
        let kind = Kind::of(item);
        let call_id = item.call_id.or_empty();
        let is_this_call = |slot: &Slot| {
            let call = slot.kind.call();
            call.is_some_and(|call| !call_id.is_empty() && call.id == call_id)
        };
        let may_be = |slot: &Slot| match slot.kind.call() {
            Some(_) => slot.may_be(item),
            None => slot.kind.is_like(&kind),
        };
        let first = |wanted: &dyn Fn(&Slot) -> bool| {
            self.slots.iter().position(|slot| !slot.matched && wanted(slot))
        };
        first(&is_this_call)
            .or_else(|| first(&|slot| may_be(slot) && slot.has_id(location.id)))
            .or_else(|| first(&|slot| may_be(slot) && slot.index == location.index))
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
                let told = arguments(item.arguments);
                self.differs |= call.finish(told, cut_off, key, turn)? == Agreement::Differs;
                slot.data = slot.data.take().or_else(|| passthrough::call(raw, after));
            }
            _ if slot.done => return Ok(()),
            Kind::Message(words) => {
                let told = told_words(&item.content.0);
                self.differs |= words.all(&told, key, turn) == Agreement::Differs;
                self.overfull |= words.is_overfull();
                if item.phase.get() == Some("commentary") {
                    turn.mark_commentary(key);
                }
                slot.data = passthrough::message(raw, &item.content.0, after);
            }
            Kind::Reasoning(words) => {
                if words.is_empty() {
                    let _ = words.all(&told_thoughts(item), key, turn);
                    self.overfull |= words.is_overfull();
                }
                slot.data = json(raw);
                self.reasoned = Some(item.id.or_empty().to_owned());
            }
            Kind::Own(_) => slot.data = json(raw),
        }
        slot.done = true;
        self.say_if_whole(at, turn);
        self.attach(at, turn);
        Ok(())
    }

    /// Gives the turn what goes back verbatim.
    fn attach(&self, at: usize, turn: &mut TurnBuilder) {
        let Slot { kind, data: Some(value), .. } = &self.slots[at] else { return };
        let data = ProviderData::new(NAME, &self.model, value.clone());
        match kind {
            Kind::Message(_) => turn.set_text_data(key(at), data),
            Kind::Reasoning(_) => turn.set_reasoning_data(key(at), data),
            Kind::Call(_) => turn.set_tool_call_data(key(at), data),
            Kind::Own(_) => turn.push_provider_item(data),
        }
    }
}

#[derive(Debug)]
struct Slot {
    index: Option<u64>,
    id: String,
    kind: Kind,
    /// It was told as a whole.
    done: bool,
    /// What goes back verbatim.
    data: Option<Json>,
    /// The terminal event told of it.
    matched: bool,
}

#[derive(Debug)]
enum Kind {
    Message(Parts),
    Reasoning(Parts),
    Call(Box<Call>),
    /// The provider's own, with its type: kept as it is when it is done.
    Own(String),
}

impl Kind {
    fn of(item: &WireItem<'_>) -> Self {
        match item.r#type.or_empty() {
            "message" => Self::Message(Parts::default()),
            "reasoning" => Self::Reasoning(Parts::default()),
            "function_call" => Self::Call(Box::default()),
            own => Self::Own(own.to_owned()),
        }
    }

    fn speaking(kind_of_text: TextKind) -> Self {
        match kind_of_text.is_thought() {
            true => Self::Reasoning(Parts::default()),
            false => Self::Message(Parts::default()),
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(one), Self::Own(other)) => one == other,
            (one, other) => discriminant(one) == discriminant(other),
        }
    }

    fn call(&self) -> Option<&Call> {
        match self {
            Self::Call(call) => Some(call),
            Self::Message(_) | Self::Reasoning(_) | Self::Own(_) => None,
        }
    }
}

impl Slot {
    /// The words of a message or of reasoning that is not done.
    fn open_words(&mut self) -> Option<&mut Parts> {
        match &mut self.kind {
            Kind::Message(words) | Kind::Reasoning(words) if !self.done => Some(words),
            Kind::Message(_) | Kind::Reasoning(_) | Kind::Call(_) | Kind::Own(_) => None,
        }
    }

    /// Whether it stands there.
    fn stands_at(&self, location: Location<'_>) -> bool {
        match (self.index, location.index) {
            (Some(own), Some(index)) => own == index,
            (None, _) | (_, None) => self.has_id(location.id),
        }
    }

    fn has_id(&self, id: &str) -> bool {
        !id.is_empty() && self.id == id
    }

    /// Whether an item may be this one. Another one may stand at the place of one that is done.
    fn may_be(&self, item: &WireItem<'_>) -> bool {
        let fits = |own: &str, told: &str| own.is_empty() || told.is_empty() || own == told;
        let may_be = match self.kind.call() {
            Some(call) => {
                fits(&call.id, item.call_id.or_empty()) && fits(&call.name, item.name.or_empty())
            }
            None => !self.done || self.has_id(item.id.or_empty()),
        };
        may_be && self.kind.is_like(&Kind::of(item))
    }
}

fn told_words<'a>(content: &'a [Part<'_>]) -> Vec<(TextKind, u64, &'a str)> {
    let told = |(index, part): (u64, &'a Part<'_>)| match part.r#type.or_empty() {
        "output_text" | "text" => Some((TextKind::Text, index, part.text.or_empty())),
        "refusal" => Some((TextKind::Refusal, index, part.refusal.or_empty())),
        _ => None,
    };
    (0..).zip(content).filter_map(told).collect()
}

/// The thoughts of an item that streamed none. Those that stand there twice are told once.
fn told_thoughts<'a>(item: &'a WireItem<'_>) -> Vec<(TextKind, u64, &'a str)> {
    let parts = |kind_of_text, parts: &'a [Part<'_>]| {
        (0..).zip(parts).map(move |(index, part)| (kind_of_text, index, part.text.or_empty()))
    };
    let text =
        |parts: &[Part<'_>]| -> String { parts.iter().map(|part| part.text.or_empty()).collect() };
    let (summary, content) = (&item.summary.0, &item.content.0);
    let twice = text(summary) == text(content);
    let content = if twice { &[][..] } else { content };
    parts(TextKind::Summary, summary).chain(parts(TextKind::Trace, content)).collect()
}
