//! A model's turn as data: its events, the builder that assembles it, and the finished turn.
//!
//! A provider streams a turn as [`TurnEvent`]s: deltas of text, reasoning and calls, and finally
//! [`TurnComplete`](TurnEvent::TurnComplete), which contains the whole [`Turn`]. If a turn fails,
//! its error can carry what had arrived, as a [`PartialTurn`].
//!
//! | to | use |
//! |---|---|
//! | read a turn's text and its calls | [`Turn::text`], [`Turn::calls`] |
//! | know why the model stopped | [`Turn::stop_reason`] |
//! | deserialize the answer | [`Turn::parse`] |
//! | know how certain the model was | [`Turn::logprobs`] |
//! | assemble a turn in a custom provider | [`TurnBuilder`] |
//! | turn an event stream into a turn | [`TurnStreamExt`](crate::TurnStreamExt) |

mod answer_json;
mod builder;
mod event;
mod from_history;
mod logprobs;
mod parse_answer;
mod partial_turn;
mod tool_calls;
mod turn;

pub(crate) use answer_json::{AnswerStart, THINK_END_TAG, find_json_start};
pub(crate) use builder::MAX_ITEMS;
pub use builder::TurnBuilder;
pub use event::{ReasoningKind, TurnEvent};
pub use logprobs::{TokenLogprob, TopLogprob};
pub use parse_answer::ParseError;
pub use partial_turn::PartialTurn;
pub use tool_calls::{Calls, Veto};
pub use turn::Turn;

pub use crate::item::{StopReason, Text, TurnInfo};
