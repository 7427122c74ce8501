//! Counts the effects between two events.

use crate::world::{EffectKey, EffectKind};

/// Counts how often each effect, identified by its kind and name, has been requested since the last
/// event.
#[derive(Default)]
pub(super) struct EffectCounter(Vec<(EffectKind, String, u32)>);

impl EffectCounter {
    /// Counts an effect, and returns its number among the effects of the same kind and name,
    /// starting at 1.
    pub(super) fn count(&mut self, key: &EffectKey) -> u32 {
        let known = |(kind, name, _): &&mut (EffectKind, String, u32)| {
            *kind == key.kind && **name == *key.name
        };
        match self.0.iter_mut().find(known) {
            Some((.., nth)) => {
                *nth = nth.saturating_add(1);
                *nth
            }
            None => {
                self.0.push((key.kind, key.name.to_string(), 1));
                1
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
