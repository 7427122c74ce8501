//! Tracks the tools from a run's sources, and any changes to the tool lists.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::tool::{Tool, ToolList, ToolRecord, Toolkit};

/// The tools that one source provides to a run.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceTools {
    /// The tools in the source's last list, except those that are left out.
    pub(super) tools: Vec<Tool>,
    /// The names of the tools that are left out, and the reasons for leaving them out.
    pub(super) notes: Vec<String>,
    /// The error from the last listing, if it failed. After a failed listing, `tools` still
    /// contains the tools from the previous list.
    pub(super) failure: Option<Error>,
}

/// The result of listing the tools of all sources, including the sources whose tools have changed.
/// Only descriptions of the tools are serialized, so a deserialized result does not contain the
/// tools themselves.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ToolListing {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) changed: Vec<SourceListing>,
    /// The tools from all sources, in order; `None` in a deserialized result.
    #[serde(skip)]
    pub(super) live: Option<Vec<SourceTools>>,
}

/// A source whose tools have changed.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SourceListing {
    /// The index of the source in the agent's list of sources.
    pub(super) source: usize,
    /// All tools from the source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<ToolRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// The error, if the source could not be listed. After an error, the source's tools do not
    /// change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Error>,
}

impl ToolListing {
    /// Creates the result of a new listing. `before` is `None` for the first listing of a run.
    ///
    /// # Errors
    ///
    /// For the first listing, returns an error if a source could not be listed or if two tools have
    /// the same name.
    pub(super) fn new(
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
    pub(super) fn apply_to(
        self,
        before: &[SourceTools],
        late_bound: impl Fn(usize, ToolRecord) -> Tool,
    ) -> Vec<SourceTools> {
        if let Some(live) = self.live {
            return live;
        }
        let mut sources = before.to_vec();
        for SourceListing { source, tools, notes, failure } in self.changed {
            let Some(changed) = sources.get_mut(source) else { continue };
            match failure {
                Some(_) => changed.failure = failure,
                None => {
                    let tools = tools.into_iter().map(|record| late_bound(source, record));
                    *changed = SourceTools { tools: tools.collect(), notes, failure: None };
                }
            }
        }
        sources
    }
}

impl SourceTools {
    /// Returns whether two states of a source count as equal: both listings succeeded or both
    /// failed, the same tools are left out, and the tools have the same descriptions.
    fn is_recorded_like(&self, other: &Self) -> bool {
        self.failure.is_some() == other.failure.is_some()
            && self.notes == other.notes
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
                failure: None,
            },
        }
    }
}

/// Adds the name of a source to an error from that source.
pub(super) fn name_error(source: &str, error: Error) -> Error {
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
        let ToolList { tools, notes } = listed?;
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
        sources.push(SourceTools { tools, notes, failure: None });
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
    let ToolList { tools: listed, mut notes } = list;
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
    SourceTools { tools, notes, failure: None }
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
