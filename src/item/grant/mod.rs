//! Standing permissions for tool calls.

mod exact_json;
mod grant;
mod terms;

pub(crate) use exact_json::is_same_json;
pub use grant::Grant;
pub use terms::{GrantDuration, GrantScope, GrantTerms};
