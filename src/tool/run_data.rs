//! What a program hands to the tools of one run.

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Values that belong to one run and not to its agent: who asks, a connection, a place to put files.
/// At most one of each type. Cheap to clone.
///
/// [`Run::with_data`](crate::Run::with_data) puts one in, [`ToolContext::data`](crate::tool::ToolContext::data) takes it out. A
/// sub-agent has what its parent has. It is not part of the history: a run that is resumed gets its
/// data again.
///
/// ```
/// use turnstream::tool::RunData;
///
/// struct User(&'static str);
///
/// let data = RunData::new().insert(User("ada"));
/// assert_eq!(data.get::<User>().unwrap().0, "ada");
/// assert!(data.get::<String>().is_none());
/// ```
#[derive(Clone, Default)]
pub struct RunData(Arc<BTreeMap<TypeId, DataEntry>>);

/// How many sub-agents may run inside one another, from a run on that begins with this data.
#[derive(Clone, Copy)]
pub(crate) struct RemainingSubAgentDepth(pub(crate) u32);

#[derive(Clone)]
struct DataEntry {
    name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl RunData {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value. One of the same type is replaced. Of another `RunData` all values are added:
    /// so a tool hands on what it [has](crate::tool::ToolContext::run_data) to a run that it begins.
    /// Mark such a tool as [`running_sub_agents`](crate::Tool::running_sub_agents).
    pub fn insert<T: Any + Send + Sync>(mut self, value: T) -> Self {
        let values = Arc::make_mut(&mut self.0);
        if let Some(other) = (&value as &dyn Any).downcast_ref::<Self>() {
            values.extend(other.0.iter().map(|(id, value)| (*id, value.clone())));
        } else {
            let value = DataEntry { name: type_name::<T>(), value: Arc::new(value) };
            values.insert(TypeId::of::<T>(), value);
        }
        self
    }

    /// The value of this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let value = self.0.get(&TypeId::of::<T>())?;
        Arc::clone(&value.value).downcast().ok()
    }
}

/// The types alone: what is in them may be secret.
impl fmt::Debug for RunData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.values().map(|value| value.name)).finish()
    }
}
