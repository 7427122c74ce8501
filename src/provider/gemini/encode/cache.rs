//! What the encoded contents depend on beside the items.

use crate::provider::context::Key;

/// The model, on which depends what goes back.
#[derive(Clone, PartialEq)]
pub(super) struct CacheKey(pub(super) String);

/// Where the model begins to speak, all before is closed, and nothing of it has to be known.
impl Key for CacheKey {
    type State = ();
}
