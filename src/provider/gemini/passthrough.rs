//! The name under which provider data of this wire is kept, to go back to the model that wrote it.

pub(super) const NAME: &str = "gemini";
