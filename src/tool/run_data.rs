//! What a program hands to the tools of one run.

use std::any::{Any, TypeId, type_name};
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
pub struct RunData(Arc<Vec<DataEntry>>);

/// How many sub-agents may run inside one another, from a run on that begins with this data.
#[derive(Clone, Copy)]
pub(crate) struct RemainingSubAgentDepth(pub(crate) u32);

#[derive(Clone)]
struct DataEntry {
    type_id: TypeId,
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
            other.0.iter().for_each(|entry| replace_entry(values, entry.clone()));
        } else {
            let (type_id, name) = (TypeId::of::<T>(), type_name::<T>());
            replace_entry(values, DataEntry { type_id, name, value: Arc::new(value) });
        }
        self
    }

    /// The value of this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let entry = self.0.iter().find(|entry| entry.type_id == TypeId::of::<T>())?;
        Arc::clone(&entry.value).downcast().ok()
    }
}

/// Adds an entry in the place of the one of its type.
fn replace_entry(entries: &mut Vec<DataEntry>, entry: DataEntry) {
    match entries.iter_mut().find(|other| other.type_id == entry.type_id) {
        Some(other) => *other = entry,
        None => entries.push(entry),
    }
}

/// The types alone: what is in them may be secret.
impl fmt::Debug for RunData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|entry| entry.name)).finish()
    }
}
