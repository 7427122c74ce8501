//! The trait that underlies every tool. A handler turns arguments into a call that is ready to
//! start.

use crate::error::catch_panic;
use crate::request::ToolSpec;
use crate::tool::{ToolContext, UpdateStream};

/// A trait for implementing a [`Tool`](crate::Tool) that cannot be written as a closure. Every
/// `Tool` is based on a `ToolHandler`, which provides its name and schema and prepares its calls.
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
/// let schema = serde_json::json!({
///     "type": "object",
///     "properties": { "text": { "type": "string" } },
///     "required": ["text"],
/// });
/// let spec = ToolSpec::new("shout", "Says it louder", schema);
/// assert_eq!(Tool::from_handler(Shout(spec)).name(), "shout");
/// ```
pub trait ToolHandler: Send + Sync {
    /// Returns the tool's name, description and schema, as shown to the model.
    fn spec(&self) -> &ToolSpec;

    /// Parses the arguments and returns a call that is ready to start, without running anything.
    /// Errors in the arguments are therefore found before an approval is requested. If the returned
    /// call is not allowed to run, it is dropped.
    ///
    /// `arguments` contains a JSON object, which is `{}` if the model wrote no arguments. Where the
    /// [spec](Self::spec) accepts only integers, a whole number such as `5.0` is passed as `5`, and
    /// `null` for an optional property that is not nullable is left out. If a
    /// [repair](crate::tool::ToolPolicy::repair_arguments) or a
    /// [policy](crate::tool::Permission::arguments) replaces the arguments, `prepare` is called
    /// again.
    ///
    /// # Errors
    ///
    /// Returns an error if the arguments are invalid, in which case the call does not run. The
    /// error is a message to the model and should contain the path to the invalid value and the
    /// reason.
    fn prepare(&self, arguments: &str) -> Result<PreparedCall, String>;
}

/// A call that has not started yet, but whose arguments have been parsed. Dropping a prepared call
/// discards the call without running it.
pub struct PreparedCall(Option<StartCall>);

type StartCall = Box<dyn FnOnce(ToolContext) -> UpdateStream + Send>;

impl PreparedCall {
    /// Creates a prepared call from `begin`, a function that starts the call and returns a stream
    /// of its updates. The stream advances only while it is polled, and is dropped together with
    /// the run. After the stream has been dropped, no work for the call may continue.
    pub fn new(begin: impl FnOnce(ToolContext) -> UpdateStream + Send + 'static) -> Self {
        Self(Some(Box::new(begin)))
    }

    /// Starts the call, for example as a part of a call to another tool whose context is `cx`.
    ///
    /// The call advances only while the returned stream is polled, and dropping the stream drops
    /// the call's work.
    ///
    /// # Errors
    ///
    /// Returns the panic message if starting the call panics.
    #[expect(clippy::missing_panics_doc, reason = "the function is there until the call starts")]
    pub fn start(mut self, cx: ToolContext) -> Result<UpdateStream, String> {
        // Invariant: only this method, which consumes the call, and `drop` take the function.
        let begin = self.0.take().expect("a call starts once, by value");
        catch_panic(|| begin(cx))
    }
}

/// Drops the arguments and catches any panic in their `Drop` implementation.
impl Drop for PreparedCall {
    fn drop(&mut self) {
        let begin = self.0.take();
        let _ = catch_panic(|| drop(begin));
    }
}

impl_debug!(PreparedCall);

/// A handler that consists of a spec and a function that prepares calls.
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
