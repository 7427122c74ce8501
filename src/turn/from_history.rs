//! Restores a turn from a history that contains its items.

use crate::item::{History, Item, ItemKind};
use crate::turn::Turn;

impl Turn {
    /// Returns the completed turn at the end of a history. The turn may be followed by the results
    /// of its calls. Items marked as tombstones are left out. If the history does not end with an
    /// unchanged turn, the `Err` contains the reason.
    ///
    /// The turn's calls may run if its stop reason allows this, since only completed turns leave a
    /// `TurnInfo` in a history. The provider's raw stop reason is not restored, because the history
    /// does not contain it.
    pub(crate) fn from_history(history: &History) -> Result<Self, &'static str> {
        let mut items: Vec<&Item> = history.iter().filter(|item| !item.tombstone).collect();
        while items.pop_if(|item| item.as_tool_result().is_some()).is_some() {}
        let (last, before) = items.split_last().ok_or("the history is empty")?;
        if last.interrupted {
            return Err("the open calls are not at the end of the history: a turn that broke off \
                 follows theirs");
        }
        if !is_item_of_turn(last) {
            return Err("the open calls are not at the end of the history: something other than \
            results follows their turn");
        }
        let info = last.turn.as_deref().ok_or(
            "the last item of the turn of the open calls has no `TurnInfo`, which says that the turn \
             is complete and why the model stopped: add it with `Item::with_turn_info`",
        )?;
        let begins = |item: &&Item| !is_item_of_turn(item) || item.turn.is_some();
        let from = before.iter().rposition(begins).map_or(0, |at| at + 1);
        let mut items: Vec<Item> = items[from..].iter().map(|item| (*item).clone()).collect();
        // A call that was later shortened differs from the call that the model wrote.
        if items.iter().any(|item| item.compacted && item.as_tool_call().is_some()) {
            return Err("an open call was shortened by a compaction");
        }
        if let Some(last) = items.last_mut() {
            last.turn = None;
        }
        Ok(Self {
            items,
            stop_reason: info.stop_reason.clone(),
            raw_stop_reason: None,
            usage: info.usage,
            model: info.model.clone(),
            response_id: info.response_id.clone(),
            billing: None,
            logprobs: Vec::new(),
            built: true,
        })
    }
}

/// Returns whether an item can be part of a completed turn.
fn is_item_of_turn(item: &Item) -> bool {
    let said_by_model = match item.kind {
        ItemKind::Text { .. }
        | ItemKind::Reasoning { .. }
        | ItemKind::ToolCall(_)
        | ItemKind::Other => true,
        ItemKind::System { .. } | ItemKind::User { .. } | ItemKind::ToolResult(_) => false,
    };
    said_by_model && !item.interrupted
}
