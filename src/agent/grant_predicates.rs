//! The predicates to which grants refer.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

/// A function that decides whether a grant covers a call with the given arguments.
type GrantPredicate = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// An agent's predicates for the arguments of calls, by name.
#[derive(Clone, Default)]
pub(super) struct GrantPredicates(HashMap<Arc<str>, GrantPredicate>);

impl GrantPredicates {
    pub(super) fn insert(
        &mut self,
        name: &str,
        predicate: impl Fn(&Value) -> bool + Send + Sync + 'static,
    ) {
        self.0.insert(name.into(), Arc::new(predicate));
    }

    /// Returns whether the predicate with this name exists and holds for arguments, which are a
    /// JSON string.
    pub(super) fn holds(&self, name: &str, arguments: &str) -> bool {
        let Some(predicate) = self.0.get(name) else { return false };
        let arguments = match arguments.trim() {
            "" => "{}",
            arguments => arguments,
        };
        serde_json::from_str(arguments).is_ok_and(|arguments| predicate(&arguments))
    }
}
