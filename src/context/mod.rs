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
mod compactor;
mod count;
mod estimate;
mod failure;
mod narrow;
mod note;
mod record;
mod shorten;
mod summarize;
mod transcript;
mod turns;
mod window;

pub use ageing::Ageing;
pub use compaction::Compaction;
pub use compactor::{Compactor, CompactorFn, OrElse, compactor_fn};
pub use count::{BytesDiv4, CountTokens};
pub(crate) use estimate::count_request_tokens;
pub use estimate::{count_tokens, estimate_request_tokens, estimate_tokens};
pub use failure::CompactionFailure;
pub use narrow::{
    ContextCandidate, ContextInjector, ContextSelection, InjectedContext, RejectedCandidate,
    SelectedCandidate,
};
pub(crate) use note::preserve_reactive_note;
pub use note::{mark_reactive_compaction, record_stale_usage};
pub use record::was_reactively_compacted;
pub use shorten::Truncator;
pub use summarize::Summarizer;
pub use window::Window;
