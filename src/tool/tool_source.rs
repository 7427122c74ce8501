//! Sources of tools that may change while an agent runs.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::tool::Tool;

/// A source of tools that may change while an agent runs, such as an MCP server or a plugin system.
///
/// Pass a source to [`Agent::with_tool_source`](crate::Agent::with_tool_source), whose
/// documentation describes how a run reacts when the tool list changes.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use futures::future::{self, BoxFuture, FutureExt};
/// use serde_json::json;
/// use turnstream::provider::{Reply, Scripted};
/// use turnstream::tool::{Tool, ToolList, ToolSource, ToolSpec};
/// use turnstream::{Agent, Error};
///
/// /// Tools that the program adds and removes.
/// #[derive(Clone, Default)]
/// struct Plugins(Arc<Mutex<Vec<Tool>>>);
///
/// impl ToolSource for Plugins {
///     fn name(&self) -> &str {
///         "plugins"
///     }
///
///     fn list_tools(&self) -> BoxFuture<'static, Result<ToolList, Error>> {
///         let tools = self.0.lock().unwrap().clone();
///         future::ready(Ok(ToolList::new(tools))).boxed()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let spec = ToolSpec::new("roll", "Rolls a die", json!({ "type": "object", "properties": {} }));
/// let plugins = Plugins::default();
/// plugins.0.lock().unwrap().push(Tool::raw(spec, |_args, _cx| async { 6 })?);
///
/// let model = Scripted::new([
///     Reply::new().call("roll", json!({})),
///     Reply::text("It is a six."),
/// ]);
/// let agent = Agent::new(model).with_tool_source(plugins);
/// assert_eq!(agent.run("Roll a die").outcome().await.text, "It is a six.");
/// # Ok(())
/// # }
/// ```
pub trait ToolSource: Send + Sync {
    /// Returns the source's name, for example the name of a server. The name appears in errors and
    /// in messages to the model. The name is read only once, when the source is passed to an agent.
    fn name(&self) -> &str;

    /// Lists the current tools. The order of the tools must stay the same as long as the tools do
    /// not change.
    ///
    /// A run calls `list_tools` before each of its requests, so the method should be cheap when
    /// nothing has changed. The returned future does nothing until it is polled, and dropping it
    /// cancels the listing.
    ///
    /// # Errors
    ///
    /// Returns an error if the tools cannot be listed. A source should not return an empty list in
    /// place of an error, since a run that receives an empty list continues without the source's
    /// tools.
    fn list_tools(&self) -> BoxFuture<'static, Result<ToolList, Error>>;
}

impl<S: ToolSource + ?Sized> ToolSource for Arc<S> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn list_tools(&self) -> BoxFuture<'static, Result<ToolList, Error>> {
        (**self).list_tools()
    }
}

/// A list of tools from a [`ToolSource`].
#[derive(Clone, Debug, Default)]
pub struct ToolList {
    /// The tools, in the order in which the model sees them.
    pub tools: Vec<Tool>,
    /// Messages that tell the model why tools were omitted, with one message for each omitted tool.
    /// As long as a message stays in the list, the model receives it only once.
    pub notes: Vec<String>,
    /// The names and descriptions of things that the tools work with, such as documents that a tool
    /// loads by name.
    ///
    /// The model receives the catalog in a message at the end of the conversation, and later
    /// changes in further messages, so a changed catalog does not change the beginning of the next
    /// request. A catalog of more than 100 entries or 32 KiB is not listed: the message tells the
    /// model to search. [`Agent::with_tool_source`](crate::Agent::with_tool_source) has the
    /// details.
    pub catalog: Vec<CatalogEntry>,
}

impl ToolList {
    /// Creates a tool list without notes and without a catalog, for a source that has not omitted
    /// any tools.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Self {
        Self { tools: tools.into_iter().collect(), ..Self::default() }
    }
}

/// An entry of a tool list's [catalog](ToolList::catalog): something that the tools work with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogEntry {
    /// The name by which the model refers to the entry. Each name in a catalog must be unique.
    pub name: String,
    /// A description from which the model can tell when it needs the entry. The model receives the
    /// description on one line.
    pub description: String,
}

impl From<Vec<Tool>> for ToolList {
    fn from(tools: Vec<Tool>) -> Self {
        Self::new(tools)
    }
}
