//! Runs the checks that validate an answer before a run completes.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, panic_to_error};
use crate::turn::Turn;

type Validator = dyn Fn(&Turn) -> Result<(), String> + Send + Sync;

/// The checks that an agent's answers must pass, in the order in which the checks run. This type is
/// cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Validators(Vec<Arc<Validator>>);

impl Validators {
    pub(super) fn push<E: Into<String>>(
        &mut self,
        check: impl Fn(&Turn) -> Result<(), E> + Send + Sync + 'static,
    ) {
        self.0.push(Arc::new(move |turn| check(turn).map_err(Into::into)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the error text from the first check that rejects the answer, or `None` if all checks
    /// accept the answer.
    pub(super) fn first_failure(&self, turn: &Turn) -> Result<Option<String>, Error> {
        let objection = || self.0.iter().find_map(|check| check(turn).err());
        panic_to_error(ErrorKind::Hook, "the validation", objection)
    }
}
