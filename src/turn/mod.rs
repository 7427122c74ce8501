//! One turn of a model, as data: its events, the builder that makes them, the finished turn.

mod builder;
mod calls;
mod event;
mod parse;
mod partial;
mod resumed;
mod text;
mod turn;

pub(crate) use builder::MOST_ITEMS;
pub use builder::TurnBuilder;
pub use calls::{Calls, Veto};
pub use event::{ReasoningKind, TurnEvent};
pub use parse::ParseError;
pub use partial::PartialTurn;
pub use text::Text;
pub use turn::Turn;

pub use crate::item::{StopReason, TurnInfo};
