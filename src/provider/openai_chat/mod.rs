//! OpenAI's Chat Completions, and every server that speaks them,
//! <https://platform.openai.com/docs/api-reference/chat-streaming>.
//!
//! Servers differ: a [`Dialect`] says how, as data.

mod dialect;
mod presets;

mod calls;
mod content;
mod decode;
mod delta;
mod notes;
mod reasoning;
mod shaped;
mod tags;
mod wire;

mod encode;
mod ids;
mod message;
mod messages;
mod written;

#[cfg(feature = "http")]
mod http;

pub use decode::Decoder;
pub use dialect::{
    Dialect, EffortWords, EmptyContent, IdRule, LimitField, MediaForms, OutputForms, ReasoningEcho,
    ReasoningSetting, SeedField, SystemPlace, SystemRole, ThinkTags, ToolChoices, TurnEnd,
    UserField,
};
pub use encode::encode;
#[cfg(feature = "http")]
pub use http::{ChatCompletions, OpenAiChat};
