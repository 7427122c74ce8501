//! What is said, and the ledger it is written into.
//!
//! An [`Item`] is one flat entry: a user's message, a piece of the model's text or reasoning, a
//! tool call, its result. A [`History`] is the list of them. Providers group items into the
//! messages of their wire at their own boundary; nothing above knows those messages.

mod clip;
mod content;
mod entry;
mod history;
pub(crate) mod json;
mod known_ids;
mod number_set;
mod open_calls;
mod pending_call;
mod report;
mod settle;
mod tombstone;
mod tool_item;
mod turn_info;

pub(crate) use clip::clipped;
pub use content::{Content, Media, MediaSource, Part};
pub use entry::{Item, ItemKind, Mark, ProviderData};
pub(crate) use history::Piece;
pub use history::{History, Items};
pub use json::Json;
pub(crate) use json::depth;
pub(crate) use number_set::NumberSet;
pub(crate) use open_calls::OpenCalls;
pub use pending_call::PendingCall;
pub use report::{Evidence, Report, SideEffect};
pub(crate) use settle::free_id;
pub use settle::{
    INTERRUPTED_BEFORE_START, INTERRUPTED_MID_EXECUTION, TIME_UP_BEFORE_START,
    TIME_UP_MID_EXECUTION,
};
pub use tombstone::Tombstones;
pub(crate) use tombstone::no_item;
pub(crate) use tool_item::check_json;
pub use tool_item::{ResultKind, ToolCall, ToolResult};
pub use turn_info::{StopReason, TurnInfo};
