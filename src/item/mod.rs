//! Items, and the history that contains them.
//!
//! An [`Item`] is a single flat entry: a user message, a piece of the model's text or reasoning, a
//! tool call, or a tool result. A [`History`] is a list of items. Each provider module groups items
//! into the messages of its own wire format. The rest of the crate works only with items.

mod content;
mod effect_report;
mod encoding_key;
mod grant;
mod history;
mod item;
pub(crate) mod json;
mod json_values;
pub(crate) mod model_json;
mod normalized_json;
mod number_set;
mod open_calls;
mod pending_call;
mod settle;
mod text;
mod tombstone;
mod tool_item;
mod truncate;
mod turn_info;
mod used_id_filter;

pub use content::{Content, Detail, Media, MediaSource, Part};
pub use effect_report::{EffectReport, Evidence, SideEffect};
pub(crate) use encoding_key::EncodingKey;
pub(crate) use grant::is_same_json;
pub use grant::{Grant, GrantDuration, GrantScope, GrantTerms};
pub(crate) use history::EncodedChunk;
pub use history::{History, Items};
pub use item::{Item, ItemFlag, ItemKind, ProviderData};
pub use json::RawJson;
pub(crate) use json::nesting_depth;
pub use json_values::count_json_values;
pub(crate) use json_values::{
    MAX_JSON_VALUES, from_bounded_json, has_more_values_than, has_too_many_values,
    too_many_values_message,
};
pub(crate) use normalized_json::plain_text_len;
pub(crate) use number_set::NumberSet;
pub(crate) use open_calls::OpenCalls;
pub use pending_call::PendingCall;
pub(crate) use pending_call::escape_call_id;
pub(crate) use pending_call::join_call_id;
pub use settle::{INTERRUPTED_BEFORE_START, INTERRUPTED_MID_EXECUTION};
pub(crate) use settle::{
    TIMED_OUT_BEFORE_START, TIMED_OUT_MID_EXECUTION, interrupted_text, unused_call_id,
};
pub use text::Text;
pub use tombstone::TombstoneEdit;
pub(crate) use tombstone::position_out_of_range_error;
pub(crate) use tool_item::{MAX_PORTABLE_CALL_ID_BYTES, is_portable_call_id, validate_json};
pub use tool_item::{ResultKind, ToolCall, ToolResult};
pub(crate) use truncate::truncate_middle;
pub use turn_info::{StopReason, TurnInfo};
