//! What a model is sent of a long history: how many tokens that is, and how it gets less.
//!
//! | | |
//! |---|---|
//! | [`estimate`], [`estimate_request`] | how many tokens there are: the last usage, and a guess for what came since |
//! | [`Window`] | how many the model takes, and when that is near |
//! | [`Compactor`] | says what to replace in the ledger: [`Shorten`] by rule, [`Summarize`] by a model |
//! | [`Ageing`] | shortens old thoughts and inputs as a conversation goes on, whatever room is left |
//! | [`Narrow`] | chooses what one request is told besides, up to a cap, and says why; the ledger stays |
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
pub use compactor::{CompactWith, Compactor, Or, compact_with};
pub use count::{CountTokens, QuarterOfBytes};
pub use estimate::{estimate, estimate_request, guess, guess_request};
pub use failure::CompactionFailure;
pub use narrow::{Candidate, Chosen, LeftOut, Narrow, Narrowed, Selection};
pub(crate) use note::keeping_note;
pub use note::{reactive, recorded};
pub use record::was_compacted;
pub use shorten::Shorten;
pub use summarize::Summarize;
pub use window::Window;
