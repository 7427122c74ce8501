//! A tool that an MCP test server offers.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::mcp::answer::McpAnswer;
use crate::mcp::call::McpCall;

type Handler = dyn Fn(Value, McpCall) -> BoxFuture<'static, McpAnswer> + Send + Sync;

/// A tool on an [`McpServer`](crate::mcp::McpServer). Cloning a tool is cheap, apart from
/// copying its schema.
///
/// ```
/// use serde_json::json;
/// use turnstream_testing::mcp::McpTool;
///
/// let schema = json!({ "type": "object", "properties": { "word": { "type": "string" } } });
/// let echo = McpTool::new("echo", "Repeats a word", schema, |args, _call| async move {
///     args["word"].as_str().unwrap_or("nothing").to_owned()
/// })
/// .with_annotations(json!({ "readOnlyHint": true }));
/// assert_eq!(echo.name(), "echo");
/// ```
#[derive(Clone)]
pub struct McpTool {
    /// The tool's entry in the tool list.
    pub(super) listed: Map<String, Value>,
    pub(super) handler: Arc<Handler>,
}

impl McpTool {
    /// Creates a tool. For each call, `handler` receives the call's arguments and an [`McpCall`].
    ///
    /// If `handler` panics, the client receives an internal error.
    pub fn new<F, R>(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
        handler: impl Fn(Value, McpCall) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: Into<McpAnswer> + 'static,
    {
        let mut listed = Map::new();
        listed.insert("name".into(), Value::String(name.into()));
        listed.insert("description".into(), Value::String(description.into()));
        listed.insert("inputSchema".into(), input_schema);
        let handler = move |arguments, call| handler(arguments, call).map(Into::into).boxed();
        Self { listed, handler: Arc::new(handler) }
    }

    /// Sets the title that is shown to users in place of the tool's name.
    pub fn with_title(self, title: impl Into<String>) -> Self {
        self.with_field("title", title.into())
    }

    /// Sets the tool's annotations, such as `readOnlyHint` and `destructiveHint`, which replace the
    /// earlier annotations.
    pub fn with_annotations(self, annotations: Value) -> Self {
        self.with_field("annotations", annotations)
    }

    /// Sets the schema for the tool's `structuredContent`. The server does not check results
    /// against it.
    pub fn with_output_schema(self, schema: Value) -> Self {
        self.with_field("outputSchema", schema)
    }

    /// Sets a field of the tool's entry in the tool list, even if the value makes the entry
    /// invalid.
    pub fn with_field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.listed.insert(name.to_owned(), value.into());
        self
    }

    /// Returns the tool's name, or an empty string if [`with_field`](Self::with_field) replaced the
    /// name with a value that is not a string.
    pub fn name(&self) -> &str {
        self.listed.get("name").and_then(Value::as_str).unwrap_or_default()
    }
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("McpTool").field(&self.listed).finish()
    }
}
