//! The keys of cached encoder output.

use std::any::Any;
use std::sync::Arc;

/// The settings that determine what an encoder writes. Two keys are equal if they have the same
/// type and are equal.
#[derive(Clone)]
pub(crate) struct EncodingKey(Arc<dyn Any + Send + Sync>);

impl EncodingKey {
    pub(crate) fn new(key: impl Any + Send + Sync) -> Self {
        Self(Arc::new(key))
    }

    pub(crate) fn is<K: PartialEq + Any>(&self, key: &K) -> bool {
        self.0.downcast_ref::<K>() == Some(key)
    }
}
