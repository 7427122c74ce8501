//! A tool, and what runs when it is called.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use futures::stream::BoxStream;

use crate::error::Error;
use crate::request::ToolSpec;
use crate::tool::settings::{Class, Settings};
use crate::tool::{ToolContext, Update};

/// A tool: what the model is told of it, and what runs when it is called. Cheap to clone.
///
/// A failure of any kind, a panic included, becomes a result that the model reads; it never ends
/// the run.
///
/// ```
/// use turnstream::tool::Tool;
///
/// # #[cfg(feature = "schemars")] {
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     /// The first number.
///     a: i64,
///     b: i64,
/// }
///
/// let add = Tool::new("add", "Adds two numbers", |args: Add, _cx| async move {
///     args.a.checked_add(args.b).ok_or("the sum is too large")
/// });
/// assert_eq!(add.spec().parameters["required"], serde_json::json!(["a", "b"]));
/// # }
/// ```
#[derive(Clone)]
pub struct Tool {
    pub(super) handler: Arc<dyn ToolHandler>,
    pub(super) settings: Settings,
    /// `Some` if it was made of an agent.
    pub(super) agent: Option<Arc<dyn Any + Send + Sync>>,
}

/// What a running tool streams. It is dropped after its first [`Update::Output`].
pub type Updates = BoxStream<'static, Update>;

/// What a tool is underneath, for those who cannot say it with a closure.
pub trait ToolHandler: Send + Sync {
    /// What the model is told.
    fn spec(&self) -> &ToolSpec;

    /// Reads the arguments without running anything: that they fit is known before anybody is
    /// asked to approve the call.
    ///
    /// `arguments` is a JSON object; empty ones are `{}`. Unless it is written, all are taken until
    /// [`call`](Self::call) reads them.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    fn check(&self, arguments: &str) -> Result<(), String> {
        let _ = arguments;
        Ok(())
    }

    /// Reads the arguments, and gives what runs.
    ///
    /// `arguments` is JSON; empty ones are `{}`. What it gives runs only while it is polled and is
    /// dropped when the run is: nothing may go on behind its back.
    ///
    /// # Errors
    ///
    /// Why the arguments do not fit, in words for the model and with the path. Then nothing runs.
    fn call(&self, arguments: &str, cx: ToolContext) -> Result<Updates, String>;
}

impl Tool {
    /// Makes a tool of a handler. Name and schema are the handler's own business; they are not
    /// checked here.
    pub fn from_handler(handler: impl ToolHandler + 'static) -> Self {
        Self { handler: Arc::new(handler), settings: Settings::default(), agent: None }
    }

    /// What the model is told of it.
    pub fn spec(&self) -> &ToolSpec {
        self.handler.spec()
    }

    /// The name that the model calls it by.
    pub fn name(&self) -> &str {
        &self.spec().name
    }

    pub(super) fn class(&self) -> Class {
        self.settings.class
    }

    pub(super) fn handler(&self) -> &dyn ToolHandler {
        &*self.handler
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// A spec whose schema was looked at: what is wrong with it is found before a model sees it.
pub(crate) fn checked_spec(spec: ToolSpec) -> Result<ToolSpec, Error> {
    use crate::error::ErrorKind::InvalidRequest;

    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if spec.name.is_empty() || spec.name.len() > 64 || !spec.name.chars().all(is_name) {
        let message = "a tool's name has 1 to 64 letters, digits, '_' and '-'";
        return Err(Error::new(InvalidRequest, message).with_parameter(spec.name));
    }
    if spec.parameters.get("type").and_then(serde_json::Value::as_str) != Some("object") {
        let message = format!("the schema of the tool `{}` is not of type `object`", spec.name);
        return Err(Error::new(InvalidRequest, message));
    }
    Ok(spec)
}
