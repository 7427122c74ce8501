//! Context management: estimating the number of tokens in a request, and shortening long histories.
//!
//! | | |
//! |---|---|
//! | [`estimate_tokens`], [`estimate_request_tokens`] | estimate tokens from the last usage and the newer items |
//! | [`Window`] | the size of a model's context window, and when it is nearly full |
//! | [`ContextWindows`] | knows the size of the context window of each model |
//! | [`Compactor`] | decides which items to replace: [`Truncator`] by rules, [`Summarizer`] with a model |
//! | [`Ageing`] | shortens old reasoning and arguments as a conversation grows, even in a large window |
//! | [`ContextInjector`] | adds selected context to one request, up to a cap, and records the reasons |
//! | [`Memory`] | notes that outlive a session: [`FileMemory`] keeps them in a folder, [`memory_tools`] offers them to the model, [`Recall`] adds them to requests |
//!
//! Agents use the types in this module; see [the guide](crate::guide::compaction). The types spawn
//! no tasks, and only a [`FileMemory`] performs I/O of its own.
//!
//! # Limits
//!
//! These are the limits without a setter, and those of the two compactors, with their setters. [The
//! guide](crate::guide::defaults) lists the others.
//!
//! | limit | value | when it is reached |
//! |---|---|---|
//! | newest turns that [`Truncator`] keeps whole | 4 | `Truncator::keep_turns` |
//! | bytes of a call's arguments in old turns | 1,024 | `Truncator::max_arguments_bytes` |
//! | bytes of reasoning in old turns | 200 | `Truncator::max_reasoning_bytes` |
//! | bytes of a result in old turns | no limit | `Truncator::max_result_bytes` |
//! | bytes of a result in the newest turns that [`Truncator`] keeps | 8 times the limit for old turns | `Truncator::max_result_bytes` |
//! | newest turns that [`Summarizer`] keeps whole | 4, of 16,000 tokens together | `Summarizer::with_keep_turns`, `Summarizer::with_keep_tokens` |
//! | bytes of a result in the summarizer's input | 2,048 | `Summarizer::with_max_result_bytes` |
//! | bytes of the summarizer's input | 400,000 | `Summarizer::with_max_transcript_bytes` |
//! | compactions after a request did not fit | 1 for a history | the run ends with `context_window` |
//! | bytes of an old result after a request did not fit, without a configured compactor | 1,024 | the rest is left out |
//! | longest retry delay that a server may request for a summary | 5 s | the summary fails |

mod ageing;
mod compaction;
mod compaction_failure;
mod compaction_note;
mod compaction_record;
mod compactor;
mod context_injector;
mod context_windows;
mod count_tokens;
mod estimate;
mod memory;
mod summarizer;
mod transcript;
mod truncator;
mod turn_starts;
mod window;

pub use ageing::Ageing;
pub use compaction::Compaction;
pub use compaction_failure::CompactionFailure;
pub(crate) use compaction_note::preserve_reactive_note;
pub use compaction_note::{mark_reactive_compaction, record_stale_usage};
pub use compaction_record::was_reactively_compacted;
pub use compactor::{Compactor, compactor_fn};
pub use context_injector::{
    ContextCandidate, ContextInjector, ContextSelection, InjectedContext, RejectedCandidate,
    SelectedCandidate,
};
pub use context_windows::ContextWindows;
pub use count_tokens::{BytesDiv4, CountTokens};
pub(crate) use estimate::{count_request_tokens, has_uncounted_media};
pub use estimate::{count_tokens, estimate_request_tokens, estimate_tokens};
pub use memory::{FileMemory, Memory, MemoryNote, Recall, memory_tools};
pub use summarizer::Summarizer;
pub use truncator::Truncator;
pub use window::Window;
