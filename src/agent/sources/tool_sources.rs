//! Defines an agent's tool sources.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use crate::agent::sources::tool_listing::name_error;
use crate::agent::timed_call::call_with_timeout;
use crate::env::TimeLimit;
use crate::error::Error;
use crate::tool::{ListTools, Tool, ToolList, ToolRecord, ToolSource};

/// The default timeout for listing the tools of a source.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// An agent's tool sources, in order.
#[derive(Clone, Default)]
pub(in crate::agent) struct ToolSources {
    sources: Vec<Arc<dyn ToolSource>>,
    /// The names of the sources, in the same order as the sources.
    names: Vec<Arc<str>>,
    /// The timeout for listing the tools of a source. If `None`, the default timeout applies.
    timeout: Option<Duration>,
}

impl ToolSources {
    pub(in crate::agent) fn push(&mut self, source: Arc<dyn ToolSource>) {
        self.names.push(source.name().into());
        self.sources.push(source);
    }

    pub(in crate::agent) fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    pub(in crate::agent) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub(in crate::agent) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Lists the tools from a source.
    pub(in crate::agent) fn list(
        &self,
        index: usize,
    ) -> impl Future<Output = Result<ToolList, Error>> + Send + use<> {
        let source = Arc::clone(&self.sources[index]);
        let limit = TimeLimit::explicit_or(self.timeout, DEFAULT_TIMEOUT);
        async move { call_with_timeout("the listing", limit, || source.list_tools()).await? }
    }

    /// Creates a tool from a record in a recorded tool list. When the created tool is called, it
    /// looks up the actual tool.
    pub(in crate::agent) fn late_bound_tool(
        self: &Arc<Self>,
        index: usize,
        record: ToolRecord,
    ) -> Tool {
        let sources = Arc::clone(self);
        let list: Arc<ListTools> = Arc::new(move || {
            let sources = Arc::clone(&sources);
            async move {
                let listed = sources.list(index).await;
                Ok(listed.map_err(|error| name_error(&sources.names[index], error))?.tools)
            }
            .boxed()
        });
        record.into_late_bound_tool(list)
    }
}
