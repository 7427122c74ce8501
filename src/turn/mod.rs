//! A model's turn as data: its events, the builder that assembles it, and the finished turn.

mod builder;
mod delta_text;
mod event;
mod from_history;
mod parse_answer;
mod partial_turn;
mod tool_calls;
mod turn;

pub(crate) use builder::MAX_ITEMS;
pub use builder::TurnBuilder;
pub use delta_text::Text;
pub use event::{ReasoningKind, TurnEvent};
pub use parse_answer::ParseError;
pub use partial_turn::PartialTurn;
pub use tool_calls::{Calls, Veto};
pub use turn::Turn;

pub use crate::item::{StopReason, TurnInfo};
