//! A tool's updates and output.

use std::error::Error as StdError;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};

use crate::error::{Error, ErrorKind, format_source_chain};
use crate::event::Event;
use crate::item::{self, Content, Part, ResultKind, ToolCall, ToolResult};
use crate::tool::Suspension;

/// An update from a running tool. A stream of updates consists of any number of `Progress` and
/// `NestedEvent` updates, followed by a single `Output`. If the tool is a sub-agent that is waiting
/// for a verdict, the stream ends with a single `Suspended` instead of an `Output`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ToolUpdate {
    /// A progress report, which is visible to observers of the run but not to the model.
    Progress(item::RawJson),
    /// An event from a sub-agent that runs inside the tool. The event is intended for observers of
    /// the run.
    NestedEvent(Box<Event>),
    /// The call's result. The stream of updates is not polled after this update.
    Output(ToolOutput),
    /// The end of the stream without a result, because the sub-agent's own calls are waiting for a
    /// verdict. The call that runs the sub-agent stays open until the run is resumed. The stream of
    /// updates is not polled after this update.
    Suspended(Box<Suspension>),
}

/// The output of a tool call: the content that the model reads, and how the call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    /// The content that the model reads.
    pub content: Content,
    /// How the call ended.
    pub status: OutputStatus,
}

/// Specifies how a call ended, according to its tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputStatus {
    /// The call succeeded.
    Ok,
    /// The call changed nothing, because what it should create or change was there already. This is
    /// not a failure: an earlier call, whose result is unknown, may have made the change.
    AlreadyExists,
    /// The call failed, and its result is reported to the model as an error.
    Failed,
}

impl ToolOutput {
    /// Creates the output of a successful call.
    pub fn ok(content: impl Into<Content>) -> Self {
        Self { content: content.into(), status: OutputStatus::Ok }
    }

    /// Creates the output of a call that changed nothing, because what it should create or change
    /// was there already. The result has the kind
    /// [`AlreadyExists`](ResultKind::AlreadyExists), which is not an error.
    ///
    /// ```
    /// use std::collections::HashSet;
    /// use std::sync::Mutex;
    ///
    /// use turnstream::tool::ToolOutput;
    ///
    /// fn create_user(users: &Mutex<HashSet<String>>, name: &str) -> ToolOutput {
    ///     match users.lock().unwrap().insert(name.to_owned()) {
    ///         true => ToolOutput::ok(format!("created {name}")),
    ///         false => ToolOutput::already_exists(format!("{name} exists already")),
    ///     }
    /// }
    /// # let users = Mutex::default();
    /// # create_user(&users, "ada");
    /// # assert_eq!(create_user(&users, "ada").content.text(), "ada exists already");
    /// ```
    pub fn already_exists(content: impl Into<Content>) -> Self {
        Self { content: content.into(), status: OutputStatus::AlreadyExists }
    }

    /// Creates the output of a failed call. The content should tell the model how to react.
    pub fn error(content: impl Into<Content>) -> Self {
        Self { content: content.into(), status: OutputStatus::Failed }
    }

    /// Creates the output of a successful call by serializing a value to JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the value cannot be serialized to JSON, for example because it is a map
    /// whose keys are not strings.
    pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        let text = serde_json::to_string(value).map_err(|error| {
            Error::new(ErrorKind::Other, "the result is not JSON").with_source(error)
        })?;
        Ok(Self::ok(text))
    }

    pub(super) fn into_kind_and_content(self) -> (ResultKind, Content) {
        let kind = match self.status {
            OutputStatus::Ok => ResultKind::Ok,
            OutputStatus::AlreadyExists => ResultKind::AlreadyExists,
            OutputStatus::Failed => ResultKind::Error,
        };
        (kind, self.content)
    }

    pub(crate) fn into_result_for(self, call: &ToolCall) -> ToolResult {
        let (kind, content) = self.into_kind_and_content();
        ToolResult::for_call(call, kind, content)
    }
}

impl ToolUpdate {
    /// Creates a progress update from a value. A value that cannot be serialized to JSON becomes
    /// `null`.
    pub fn progress<T: serde::Serialize + ?Sized>(value: &T) -> Self {
        let null = |_| serde_json::Value::Null.into();
        Self::Progress(item::RawJson::new(value).unwrap_or_else(null))
    }

    /// Creates the final update of a call from its output.
    pub fn output(output: impl IntoToolOutput) -> Self {
        Self::Output(output.into_tool_output())
    }
}

/// A trait for values that a tool's closure can return: a string, a number, JSON, content parts, or
/// a `Result` that contains one of these types. Wrap any other type that implements `Serialize` in
/// [`Json`].
///
/// If a `Result` is an `Err`, the model reads the messages of the error and of all its sources.
/// [`IntoToolError`] describes the supported error types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of a tool",
    label = "a tool's closure returns this",
    note = "return text, a number, a `serde_json::Value`, a `Part` or a `ToolOutput`, or a `Result` of these",
    note = "any other type that implements `serde::Serialize` is returned as `turnstream::tool::Json(value)`"
)]
pub trait IntoToolOutput {
    /// Converts the value into a tool's output. An `Err` becomes the output of a failed call.
    fn into_tool_output(self) -> ToolOutput;
}

/// The stream of updates from a running tool. The stream is dropped after its first
/// [`ToolUpdate::Output`].
pub type UpdateStream = BoxStream<'static, ToolUpdate>;

/// A trait for values that the future of a tool's closure can return: an
/// [output](IntoToolOutput), which becomes the call's result, or an [`UpdateStream`], which reports
/// progress before the result.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of a tool",
    label = "a tool's closure returns this",
    note = "return text, a number, a `serde_json::Value`, a `Part` or a `ToolOutput`, or a `Result` of these",
    note = "any other type that implements `serde::Serialize` is returned as `turnstream::tool::Json(value)`",
    note = "a stream of `ToolUpdate`s is returned as an `UpdateStream`: `stream.boxed()`"
)]
pub trait IntoToolUpdates {
    /// Converts the value into the updates of a call. An output becomes a single update.
    fn into_tool_updates(self) -> UpdateStream;
}

impl<T: IntoToolOutput> IntoToolUpdates for T {
    fn into_tool_updates(self) -> UpdateStream {
        stream::iter([ToolUpdate::output(self)]).boxed()
    }
}

impl IntoToolUpdates for UpdateStream {
    fn into_tool_updates(self) -> UpdateStream {
        self
    }
}

impl IntoToolOutput for ToolOutput {
    fn into_tool_output(self) -> ToolOutput {
        self
    }
}

impl<T: IntoToolOutput, E: IntoToolError> IntoToolOutput for Result<T, E> {
    fn into_tool_output(self) -> ToolOutput {
        match self {
            Ok(value) => value.into_tool_output(),
            Err(error) => ToolOutput::error(format!(
                "Error: {}",
                format_source_chain(&*error.into_tool_error())
            )),
        }
    }
}

/// A trait for errors that a tool can return. The trait is implemented for every type that `?` can
/// convert into a `Box<dyn Error + Send + Sync>`, such as an error type, a string, or an
/// `anyhow::Error`. An error that only implements `Display`, or a `Box<dyn Error>` that is not
/// `Send`, must first be converted to a string: `.map_err(|error| error.to_string())`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool",
    label = "a tool's closure returns this error",
    note = "implement `std::error::Error + Send + Sync` for it, or convert it to text: \
    `.map_err(|error| error.to_string())`"
)]
pub trait IntoToolError {
    /// Converts the error into a boxed error, whose message and sources the model reads.
    fn into_tool_error(self) -> Box<dyn StdError + Send + Sync>;
}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn StdError + Send + Sync>>> IntoToolError for E {
    fn into_tool_error(self) -> Box<dyn StdError + Send + Sync> {
        self.into()
    }
}

/// Wraps a value so that a tool can return it as JSON.
///
/// ```
/// use turnstream::tool::{Json, Tool};
///
/// #[derive(serde::Serialize)]
/// struct Weather {
///     degrees: i32,
///     rain: bool,
/// }
///
/// # #[cfg(feature = "schemars")] {
/// let weather = Tool::new("weather", "The weather in Oslo", |(), _cx| async {
///     Json(Weather { degrees: 4, rain: true })
/// });
/// # drop(weather);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

/// If the value cannot be serialized to JSON, for example because it is a map whose keys are not
/// strings, the model receives an error.
impl<T: serde::Serialize> IntoToolOutput for Json<T> {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::json(&self.0).into_tool_output()
    }
}

impl IntoToolOutput for () {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::ok("Done.")
    }
}

macro_rules! impl_into_tool_output_for_content {
    ($($type:ty),*) => {$(
        impl IntoToolOutput for $type {
            fn into_tool_output(self) -> ToolOutput {
                ToolOutput::ok(self)
            }
        }
    )*};
}

macro_rules! impl_into_tool_output_by_display {
    ($($type:ty),*) => {$(
        impl IntoToolOutput for $type {
            fn into_tool_output(self) -> ToolOutput {
                ToolOutput::ok(self.to_string())
            }
        }
    )*};
}

impl_into_tool_output_for_content!(String, &str, Content, Part, Vec<Part>);
impl_into_tool_output_by_display!(
    bool, char, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f32, f64
);
impl_into_tool_output_by_display!(serde_json::Value, item::RawJson);
