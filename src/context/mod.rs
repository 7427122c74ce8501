//! What a model is sent of a long history: how many tokens that is, and how it gets less.
//!
//! | | |
//! |---|---|
//! | [`estimate_tokens`], [`estimate_request_tokens`] | how many tokens there are: the last usage, and a guess for what came since |
//! | [`Window`] | how many the model takes, and when that is near |
//! | [`Compactor`] | says what to replace in the ledger: [`Truncator`] by rule, [`Summarizer`] by a model |
//! | [`Ageing`] | shortens old thoughts and inputs as a conversation goes on, whatever room is left |
//! | [`ContextInjector`] | chooses what one request is told besides, up to a cap, and says why; the ledger stays |
//!
//! An agent uses them: see [the guide](crate::guide::agent). They do no I/O of their own, and nothing is
//! spawned.

mod ageing;
mod compaction;
mod compaction_failure;
mod compaction_note;
mod compaction_record;
mod compactor;
mod context_injector;
mod count_tokens;
mod estimate;
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
pub use compactor::{Compactor, CompactorFn, OrElse, compactor_fn};
pub use context_injector::{
    ContextCandidate, ContextInjector, ContextSelection, InjectedContext, RejectedCandidate,
    SelectedCandidate,
};
pub use count_tokens::{BytesDiv4, CountTokens};
pub(crate) use estimate::count_request_tokens;
pub use estimate::{count_tokens, estimate_request_tokens, estimate_tokens};
pub use summarizer::Summarizer;
pub use truncator::Truncator;
pub use window::Window;
