//! Data that a program passes to the tools in one run.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;

/// Holds values that belong to a run rather than to its agent, such as the current user, a
/// connection or an output directory. A `RunData` contains at most one value of each type and is
/// cheap to clone.
///
/// [`Run::with_data`](crate::Run::with_data) adds a value, and
/// [`ToolContext::data`](crate::tool::ToolContext::data) looks up a value by its type. A sub-agent
/// receives its parent's data. The data is not part of the history, so it must be passed again when
/// a run is resumed.
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

/// The number of levels of sub-agents that can still be nested below the run.
#[derive(Clone, Copy)]
pub(crate) struct RemainingSubAgentDepth(pub(crate) u32);

#[derive(Clone)]
struct DataEntry {
    type_id: TypeId,
    name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl RunData {
    /// Creates run data that contains no values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value, replacing any existing value of the same type. If `value` is itself a
    /// `RunData`, all values that it contains are added. A tool that starts a run can therefore
    /// pass its [own data](crate::tool::ToolContext::run_data) to that run. Such a tool must be
    /// marked as [`running_sub_agents`](crate::Tool::running_sub_agents).
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

    /// Returns the value of type `T`, if any. `T` must be exactly the type of the inserted value: a
    /// `String` is not found as a `&str`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let entry = self.0.iter().find(|entry| entry.type_id == TypeId::of::<T>())?;
        Arc::clone(&entry.value).downcast().ok()
    }
}

/// Adds an entry, replacing any existing entry of the same type.
fn replace_entry(entries: &mut Vec<DataEntry>, entry: DataEntry) {
    match entries.iter_mut().find(|other| other.type_id == entry.type_id) {
        Some(other) => *other = entry,
        None => entries.push(entry),
    }
}

/// Prints only the types of the values, because the values may contain secrets.
impl fmt::Debug for RunData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|entry| entry.name)).finish()
    }
}
