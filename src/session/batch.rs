//! The calls of a history that wait for their results, and the results that came for them.

use crate::item::{Item, ItemKind};

/// The calls that wait for their results, with the results since the last entry that was none.
/// Those stand in a history in call order, and in a store in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    /// How many calls were ever counted: what the next one's place is.
    next: usize,
    /// The calls of a turn whose end was not read yet.
    turn: Vec<String>,
    open: Vec<(usize, String)>,
    held: Vec<(usize, Item)>,
}

impl Batch {
    /// Waits for these calls as well.
    pub(super) fn await_all(&mut self, calls: impl IntoIterator<Item = String>) {
        for call_id in calls {
            if self.place(&call_id).is_none() {
                self.open(call_id);
            }
        }
    }

    /// Takes note of an item that is written as it comes.
    pub(super) fn read(&mut self, item: &Item) {
        if item.tombstone {
            return;
        }
        match &item.kind {
            ItemKind::ToolCall(call) if !item.interrupted => self.turn.push(call.call_id.clone()),
            ItemKind::User { .. } | ItemKind::System { .. } | ItemKind::ToolResult(_) => {
                self.turn.clear();
            }
            ItemKind::ToolCall(_)
            | ItemKind::Text { .. }
            | ItemKind::Reasoning { .. }
            | ItemKind::Other => {}
        }
        if item.turn.is_some() {
            for call_id in std::mem::take(&mut self.turn) {
                self.open(call_id);
            }
        }
    }

    fn open(&mut self, call_id: String) {
        self.open.push((self.next, call_id));
        self.next += 1;
    }

    /// The place of the call that a result of this id would answer.
    pub(super) fn place(&self, call_id: &str) -> Option<usize> {
        self.open.iter().find(|(_, open)| open == call_id).map(|(place, _)| *place)
    }

    /// Holds a result among the others. Gives it back if no call waits for it.
    pub(super) fn hold(&mut self, item: Item) -> Option<Item> {
        let call_id =
            item.as_tool_result().map(|result| &result.call_id).filter(|_| !item.tombstone);
        let found = self.open.iter().position(|(_, open)| Some(open) == call_id);
        let Some((place, _)) = found.map(|at| self.open.remove(at)) else { return Some(item) };
        let at = self.held.partition_point(|(other, _)| *other < place);
        self.held.insert(at, (place, item));
        None
    }

    /// The place of the last call, in call order, whose result is held.
    pub(super) fn last_held(&self) -> Option<usize> {
        self.held.last().map(|(place, _)| *place)
    }

    /// The results that are held, in call order.
    pub(super) fn held(&self) -> impl Iterator<Item = &Item> {
        self.held.iter().map(|(_, item)| item)
    }

    /// Takes the results that are held, in call order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Item> + use<> {
        std::mem::take(&mut self.held).into_iter().map(|(_, item)| item)
    }

    /// Whether no call waits.
    pub(super) fn is_answered(&self) -> bool {
        self.open.is_empty()
    }

    /// Forgets the calls that are not to be kept, and the turn that was being read.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.open.retain(|(_, call_id)| keep(call_id));
        self.turn.clear();
    }
}
