//! The Chat Completions API, as served by OpenAI and by compatible servers,
//! <https://platform.openai.com/docs/api-reference/chat-streaming>.
//!
//! Servers differ in the details of the API. A [`Dialect`] describes these differences as data.

mod decode;
mod dialect;
mod encode;
mod passthrough;
mod presets;
pub(crate) mod server;
#[cfg(feature = "http")]
mod wire;

pub use crate::provider::codec::effort_names::EffortNames;
pub use decode::Decoder;
pub use dialect::{
    CallIdRule, Dialect, EmptyContent, MediaForms, OutputForms, ReasoningEcho, ReasoningSetting,
    SystemPosition, ThinkTags, ToolChoices, TurnEnd,
};
pub use encode::encode;
#[cfg(feature = "http")]
pub use wire::{ChatCompletions, OpenAiChat};
