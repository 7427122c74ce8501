//! The tools that a run's sources list: the result of each listing, and the tools that are listed
//! now.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, catch_panic};
use crate::lock::lock_ignoring_poison;
use crate::tool::{CatalogEntry, Tool, ToolList, ToolRecord, Toolkit};

/// The tools and the catalog that one source provides to a run.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct SourceTools {
    /// The tools in the source's last list, except those that are left out.
    pub(in crate::agent) tools: Vec<Tool>,
    /// The names of the tools that are left out, and the reasons for leaving them out.
    pub(in crate::agent) notes: Vec<String>,
    /// The catalog in the source's last list.
    pub(in crate::agent) catalog: Vec<CatalogEntry>,
    /// The error from the last listing, if it failed. After a failed listing, `tools` still
    /// contains the tools from the previous list.
    pub(in crate::agent) failure: Option<Error>,
}

/// The result of listing the tools of all sources, including the sources whose tools have changed.
/// Only descriptions of the tools are serialized, so a deserialized result does not contain the
/// tools themselves.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::agent) struct ToolListing {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::agent) changed: Vec<SourceListing>,
    /// The tools from all sources, in order; `None` in a deserialized result.
    #[serde(skip)]
    pub(in crate::agent) live: Option<Vec<SourceTools>>,
}

/// A source whose tools have changed.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::agent) struct SourceListing {
    /// The index of the source in the agent's list of sources.
    pub(in crate::agent) source: usize,
    /// All tools from the source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::agent) tools: Vec<ToolRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::agent) notes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::agent) catalog: Vec<CatalogEntry>,
    /// The error, if the source could not be listed. After an error, the source's tools do not
    /// change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::agent) failure: Option<Error>,
}

impl ToolListing {
    /// Creates the result of a new listing. `before` is `None` for the first listing of a run.
    ///
    /// # Errors
    ///
    /// For the first listing, returns an error if a source could not be listed or if two tools have
    /// the same name.
    pub(in crate::agent) fn new(
        own: &Toolkit,
        names: &[Arc<str>],
        before: Option<&[SourceTools]>,
        listed: Vec<Result<ToolList, Error>>,
    ) -> Result<Self, Error> {
        let live = match before {
            None => first_lists(own, names, listed)?,
            Some(before) => next_lists(own, names, before, listed),
        };
        let changes = live.iter().enumerate().filter_map(|(source, now)| {
            let is_same = before
                .and_then(|before| before.get(source))
                .is_some_and(|before| now.is_recorded_like(before));
            (!is_same).then(|| now.to_listing(source))
        });
        Ok(Self { changed: changes.collect(), live: Some(live) })
    }

    /// Returns the tools that each source provides after the listing. `late_bound` creates a tool,
    /// given its record and the index of its source.
    pub(in crate::agent) fn apply_to(
        self,
        before: &[SourceTools],
        late_bound: impl Fn(usize, ToolRecord) -> Tool,
    ) -> Vec<SourceTools> {
        if let Some(live) = self.live {
            return live;
        }
        let mut sources = before.to_vec();
        for SourceListing { source, tools, notes, catalog, failure } in self.changed {
            let Some(changed) = sources.get_mut(source) else { continue };
            match failure {
                Some(_) => changed.failure = failure,
                None => {
                    let tools = tools.into_iter().map(|record| late_bound(source, record));
                    let tools = tools.collect();
                    *changed = SourceTools { tools, notes, catalog, failure: None };
                }
            }
        }
        sources
    }
}

impl SourceTools {
    /// Returns whether two states of a source count as equal: both listings succeeded or both
    /// failed, the same tools are left out, the tools have the same descriptions, and the catalogs
    /// are equal.
    fn is_recorded_like(&self, other: &Self) -> bool {
        self.failure.is_some() == other.failure.is_some()
            && self.notes == other.notes
            && self.catalog == other.catalog
            && self.tools.len() == other.tools.len()
            && self.tools.iter().zip(&other.tools).all(|(a, b)| a.is_described_like(b))
    }

    fn to_listing(&self, source: usize) -> SourceListing {
        match &self.failure {
            Some(failure) => {
                let failure = Some(failure.clone());
                SourceListing { source, failure, ..SourceListing::default() }
            }
            None => SourceListing {
                source,
                tools: self.tools.iter().map(ToolRecord::from).collect(),
                notes: self.notes.clone(),
                catalog: self.catalog.clone(),
                failure: None,
            },
        }
    }
}

/// Adds the name of a source to an error from that source.
pub(in crate::agent) fn name_error(source: &str, error: Error) -> Error {
    error.with_context(&format!("the tool source `{source}`"))
}

/// Returns the tools from a run's first listing.
fn first_lists(
    own: &Toolkit,
    names: &[Arc<str>],
    listed: Vec<Result<ToolList, Error>>,
) -> Result<Vec<SourceTools>, Error> {
    let mut owners = Owners::default();
    let mut sources = Vec::with_capacity(listed.len());
    for (source, listed) in listed.into_iter().enumerate() {
        let listed = listed.map_err(|error| name_error(&names[source], error));
        let ToolList { tools, notes, catalog } = listed?;
        for tool in &tools {
            if let Some(owner) = owners.claim(own, tool.name(), source) {
                let message = format!(
                    "two tools have the name `{}`: one of {}, the other one of {}",
                    tool.name(),
                    owner.describe(names),
                    Owner::Source(source).describe(names),
                );
                let error = Error::new(ErrorKind::InvalidRequest, message);
                return Err(error.with_parameter("tools"));
            }
        }
        sources.push(SourceTools { tools, notes, catalog, failure: None });
    }
    Ok(sources)
}

/// Returns the tools from a later listing. If a source could not be listed, its tools do not
/// change. If the name of a new tool is already taken, the tool is left out.
fn next_lists(
    own: &Toolkit,
    names: &[Arc<str>],
    before: &[SourceTools],
    listed: Vec<Result<ToolList, Error>>,
) -> Vec<SourceTools> {
    let mut owners = Owners::default();
    // Tools that are listed again keep their names, regardless of the order of the sources.
    for (source, (before, listed)) in before.iter().zip(&listed).enumerate() {
        let stays = |name: &str| match listed {
            Ok(list) => list.tools.iter().any(|tool| tool.name() == name),
            Err(_) => true,
        };
        for tool in before.tools.iter().filter(|tool| stays(tool.name())) {
            owners.claim(own, tool.name(), source);
        }
    }
    let mut sources = Vec::with_capacity(listed.len());
    for (source, (before, listed)) in before.iter().zip(listed).enumerate() {
        sources.push(match listed {
            Err(error) => SourceTools { failure: Some(error), ..before.clone() },
            Ok(list) => admit_tools(own, names, &mut owners, source, list),
        });
    }
    sources
}

/// Returns the tools in a list, except those whose names are already taken by other tools.
fn admit_tools(
    own: &Toolkit,
    names: &[Arc<str>],
    owners: &mut Owners,
    source: usize,
    list: ToolList,
) -> SourceTools {
    let ToolList { tools: listed, mut notes, catalog } = list;
    let mut tools: Vec<Tool> = Vec::with_capacity(listed.len());
    for tool in listed {
        let name = tool.name();
        let is_listed_twice = tools.iter().any(|other| other.name() == name);
        let owner = match owners.claim(own, name, source) {
            Some(owner) if owner != Owner::Source(source) || is_listed_twice => owner,
            Some(_) | None => {
                tools.push(tool);
                continue;
            }
        };
        notes.push(format!("`{name}`: another tool of {} has this name", owner.describe(names)));
    }
    SourceTools { tools, notes, catalog, failure: None }
}

/// The owner of a tool name.
#[derive(Clone, Copy, PartialEq)]
enum Owner {
    Agent,
    Source(usize),
}

impl Owner {
    fn describe(self, names: &[Arc<str>]) -> String {
        match self {
            Self::Agent => "the agent".to_owned(),
            Self::Source(at) => format!("the tool source `{}`", names[at]),
        }
    }
}

/// The source that owns each tool name.
#[derive(Default)]
struct Owners(HashMap<String, usize>);

impl Owners {
    /// Claims a name for a source if the name is free. Otherwise, returns the owner of the name.
    fn claim(&mut self, own: &Toolkit, name: &str, source: usize) -> Option<Owner> {
        if own.get(name).is_some() {
            return Some(Owner::Agent);
        }
        match self.0.get(name) {
            Some(owner) => Some(Owner::Source(*owner)),
            None => {
                self.0.insert(name.to_owned(), source);
                None
            }
        }
    }
}

/// Stores the tools that a run's tool sources listed most recently. The lock is never held across
/// an `.await`.
#[derive(Default)]
pub(in crate::agent) struct ListedTools(Mutex<ListedState>);

#[derive(Default)]
struct ListedState {
    /// The tools from the last listing; `None` until the first listing.
    current: Option<Arc<CurrentTools>>,
    /// The iteration in which the tools were last listed.
    iteration: u32,
    /// The iteration in which messages that a compaction had removed were last added again. Without
    /// this limit, the messages and compactions could alternate forever.
    restored_in: Option<u32>,
    /// Messages that the model must receive before the next request.
    notices: Vec<String>,
}

/// The tools from all sources, and a toolkit that contains these tools and the agent's own tools.
pub(in crate::agent) struct CurrentTools {
    pub(in crate::agent) sources: Vec<SourceTools>,
    toolkit: Toolkit,
}

impl ListedTools {
    /// Returns the tools from all sources, or `None` before the first listing.
    pub(in crate::agent) fn current(&self) -> Option<Arc<CurrentTools>> {
        lock_ignoring_poison(&self.0).current.clone()
    }

    /// Returns the agent's own tools and the tools from its sources, or `None` before the first
    /// listing.
    pub(in crate::agent) fn toolkit(&self) -> Option<Toolkit> {
        let listed = lock_ignoring_poison(&self.0);
        listed.current.as_ref().map(|current| current.toolkit.clone())
    }

    /// Returns the iteration in which the tools were last listed, or `None` before the first
    /// listing.
    pub(in crate::agent) fn last_iteration(&self) -> Option<u32> {
        let listed = lock_ignoring_poison(&self.0);
        listed.current.as_ref().map(|_| listed.iteration)
    }

    /// Adds messages about catalogs that a compaction has removed. Does nothing if such messages
    /// were already added in the same iteration.
    pub(in crate::agent) fn restore_catalogs(&self, notices: Vec<String>, iteration: u32) {
        let mut listed = lock_ignoring_poison(&self.0);
        if listed.restored_in != Some(iteration) && !notices.is_empty() {
            listed.restored_in = Some(iteration);
            listed.notices.extend(notices);
        }
    }

    /// Returns the messages that the model must receive before the next request.
    pub(in crate::agent) fn pending_notices(&self) -> Vec<String> {
        lock_ignoring_poison(&self.0).notices.clone()
    }

    /// Removes and returns the messages that the model must receive before the next request.
    pub(in crate::agent) fn take_notice(&self) -> Option<String> {
        let notices = std::mem::take(&mut lock_ignoring_poison(&self.0).notices);
        (!notices.is_empty()).then(|| notices.join("\n"))
    }

    /// Stores the tools that a listing returned. The toolkit is rebuilt only if the tools have
    /// changed.
    pub(in crate::agent) fn replace(
        &self,
        own: &Toolkit,
        sources: Vec<SourceTools>,
        iteration: u32,
        notices: Vec<String>,
    ) {
        let unchanged = self.current().filter(|current| is_run_alike(&current.sources, &sources));
        let toolkit = match unchanged {
            Some(current) => current.toolkit.clone(),
            None => own.merged_with(sources.iter().flat_map(|source| source.tools.iter().cloned())),
        };
        let mut listed = lock_ignoring_poison(&self.0);
        listed.notices.extend(notices);
        listed.iteration = iteration;
        let replaced = listed.current.replace(Arc::new(CurrentTools { sources, toolkit }));
        drop(listed);
        // Tools are user code, which may panic when dropped.
        let _ = catch_panic(|| drop(replaced));
    }
}

/// Returns whether two listings contain the same tools with the same descriptions.
fn is_run_alike(before: &[SourceTools], now: &[SourceTools]) -> bool {
    let is_same =
        |(before, now): (&Tool, &Tool)| before.is_run_like(now) && before.is_described_like(now);
    let is_alike = |(before, now): (&SourceTools, &SourceTools)| {
        before.tools.len() == now.tools.len() && before.tools.iter().zip(&now.tools).all(is_same)
    };
    before.iter().zip(now).all(is_alike)
}
