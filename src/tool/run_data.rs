//! Data that a program passes to the tools of one run.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;

/// Values that belong to a run and not to its agent: the current user, a connection, an output
/// directory. Has at most one value of each type, and is cheap to clone.
///
/// [`Run::with_data`](crate::Run::with_data) adds a value, and
/// [`ToolContext::data`](crate::tool::ToolContext::data) returns it. A sub-agent has the data of
/// its parent. The data is not part of the history and must be passed again when a run is resumed.
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

/// The number of levels by which sub-agents may still be nested below the run with this data.
#[derive(Clone, Copy)]
pub(crate) struct RemainingSubAgentDepth(pub(crate) u32);

#[derive(Clone)]
struct DataEntry {
    type_id: TypeId,
    name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl RunData {
    /// Creates an empty set of data.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value, and replaces a value of the same type. If the value is a `RunData` itself, all
    /// of its values are added. A tool can thus pass its [own
    /// data](crate::tool::ToolContext::run_data) to a run that the tool starts. Mark such a tool as
    /// [`running_sub_agents`](crate::Tool::running_sub_agents).
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

    /// Returns the value of type `T`, or `None` if there is no such value.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let entry = self.0.iter().find(|entry| entry.type_id == TypeId::of::<T>())?;
        Arc::clone(&entry.value).downcast().ok()
    }
}

/// Adds an entry, which replaces an existing entry of the same type.
fn replace_entry(entries: &mut Vec<DataEntry>, entry: DataEntry) {
    match entries.iter_mut().find(|other| other.type_id == entry.type_id) {
        Some(other) => *other = entry,
        None => entries.push(entry),
    }
}

/// Prints only the types of the values, because the values may be secret.
impl fmt::Debug for RunData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|entry| entry.name)).finish()
    }
}
