//! What a tool is underneath: it makes a call that is ready to begin of arguments.

use std::fmt;

use futures::stream::BoxStream;

use crate::error::catch_panic;
use crate::request::ToolSpec;
use crate::tool::{ToolContext, ToolUpdate};

/// What a running tool streams. It is dropped after its first [`ToolUpdate::Output`].
pub type UpdateStream = BoxStream<'static, ToolUpdate>;

/// What a tool is underneath, for those who cannot say it with a closure.
///
/// ```
/// use futures::StreamExt;
/// use futures::stream;
/// use turnstream::tool::{PreparedCall, Tool, ToolHandler, ToolSpec, ToolUpdate};
///
/// struct Shout(ToolSpec);
///
/// impl ToolHandler for Shout {
///     fn spec(&self) -> &ToolSpec {
///         &self.0
///     }
///
///     fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
///         let args: serde_json::Value =
///             serde_json::from_str(arguments).map_err(|error| error.to_string())?;
///         let text = args["text"].as_str().ok_or("missing `text`")?.to_uppercase();
///         Ok(PreparedCall::new(|_cx| stream::iter([ToolUpdate::output(text)]).boxed()))
///     }
/// }
///
/// let spec = ToolSpec::new(
///     "shout",
///     "Says it louder",
///     serde_json::json!({ "type": "object", "required": ["text"] }),
/// );
/// assert_eq!(Tool::from_handler(Shout(spec)).name(), "shout");
/// ```
pub trait ToolHandler: Send + Sync {
    /// What the model is told.
    fn spec(&self) -> &ToolSpec;

    /// Reads the arguments once, and gives the call that begins with them, without running anything:
    /// that they fit is known before anybody is asked to approve the call. A call that may not run is
    /// dropped.
    ///
    /// `arguments` is a JSON object; empty ones are `{}`. Other arguments for the same call, of a
    /// [repair](crate::tool::ToolPolicy::repair_arguments) or a [rule](crate::tool::Permission::arguments), are prepared
    /// anew.
    ///
    /// # Errors
    ///
    /// Why the arguments do not fit, in words for the model and with the path. Then nothing runs.
    fn prepare(&self, arguments: &str) -> Result<PreparedCall, String>;
}

/// A call whose arguments were read, and which has not begun. Dropping it runs nothing.
pub struct PreparedCall(Option<StartCall>);

type StartCall = Box<dyn FnOnce(ToolContext) -> UpdateStream + Send>;

impl PreparedCall {
    /// Makes a call that gives what runs when it begins. That runs only while it is polled and is
    /// dropped when the run is: nothing may go on after it.
    pub fn new(begin: impl FnOnce(ToolContext) -> UpdateStream + Send + 'static) -> Self {
        Self(Some(Box::new(begin)))
    }

    /// Begins it. The error is the text of a panic.
    pub(super) fn start(mut self, cx: ToolContext) -> Result<UpdateStream, String> {
        let begin = self.0.take().expect("a call begins once, by value");
        catch_panic(|| begin(cx))
    }
}

/// A panic in the `Drop` of arguments stays inside.
impl Drop for PreparedCall {
    fn drop(&mut self) {
        let begin = self.0.take();
        let _ = catch_panic(|| drop(begin));
    }
}

impl fmt::Debug for PreparedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedCall").finish_non_exhaustive()
    }
}

/// A handler made of its spec and of a function that prepares its calls.
pub(super) struct FnHandler<F> {
    pub(super) spec: ToolSpec,
    pub(super) prepare_fn: F,
}

impl<F> ToolHandler for FnHandler<F>
where
    F: Fn(&ToolSpec, &str) -> Result<PreparedCall, String> + Send + Sync,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
        (self.prepare_fn)(&self.spec, arguments)
    }
}
