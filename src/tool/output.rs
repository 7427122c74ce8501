//! What a tool gives back.

use std::error::Error as StdError;

use crate::error::{Error, ErrorKind, format_source_chain};
use crate::event::Event;
use crate::item::{self, Content, Part, ResultKind, ToolCall, ToolResult};
use crate::tool::Suspension;

/// What a running tool streams: any number of `Progress` and `Nested`, then one `Output`, or one
/// `Suspended` if it is a sub-agent that waits.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ToolUpdate {
    /// How far it is, for whoever watches. The model does not see it.
    Progress(item::RawJson),
    /// An event of a sub-agent that runs inside the tool, for whoever watches.
    NestedEvent(Box<Event>),
    /// The result. What would come after it never runs.
    Output(ToolOutput),
    /// The end without a result: calls of the sub-agent wait for a verdict, and its own call stays open
    /// until the run is resumed. What would come after it never runs.
    Suspended(Box<Suspension>),
}

/// The result of a tool: what the model reads, and whether it failed.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    /// What the model reads.
    pub content: Content,
    /// Whether the model is told that the call failed.
    pub failed: bool,
}

impl ToolOutput {
    /// A result.
    pub fn ok(content: impl Into<Content>) -> Self {
        Self { content: content.into(), failed: false }
    }

    /// A failure. The text says what to do about it.
    pub fn error(content: impl Into<Content>) -> Self {
        Self { content: content.into(), failed: true }
    }

    /// A result as JSON text.
    ///
    /// # Errors
    ///
    /// When the value does not serialise to JSON, for example a map whose keys are not strings.
    pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        let text = serde_json::to_string(value).map_err(|error| {
            Error::new(ErrorKind::Other, "the result is not JSON").with_source(error)
        })?;
        Ok(Self::ok(text))
    }

    pub(super) fn into_kind_and_content(self) -> (ResultKind, Content) {
        let kind = if self.failed { ResultKind::Error } else { ResultKind::Ok };
        (kind, self.content)
    }

    pub(crate) fn into_result_for(self, call: &ToolCall) -> ToolResult {
        let (kind, content) = self.into_kind_and_content();
        ToolResult::for_call(call, kind, content)
    }
}

impl ToolUpdate {
    /// How far it is. A value that is no JSON is shown as `null`.
    pub fn progress<T: serde::Serialize + ?Sized>(value: &T) -> Self {
        let null = |_| serde_json::Value::Null.into();
        Self::Progress(item::RawJson::new(value).unwrap_or_else(null))
    }

    /// The result.
    pub fn output(output: impl IntoToolOutput) -> Self {
        Self::Output(output.into_tool_output())
    }
}

/// What a tool's closure may return: text, numbers, JSON, parts, or a `Result` of these. Any other
/// type that serialises is returned in a [`Json`].
///
/// The error of a `Result` is what the model reads, with the messages of all its sources:
/// [`IntoToolError`] has the types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of a tool",
    label = "a tool's closure returns this",
    note = "return text, a number, a `serde_json::Value` or a `ToolOutput`, or a `Result` of these",
    note = "any other type that implements `serde::Serialize` is returned as `turnstream::tool::Json(value)`"
)]
pub trait IntoToolOutput {
    /// Makes the output of it.
    fn into_tool_output(self) -> ToolOutput;
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

/// The error of a tool: anything that `?` makes a `Box<dyn Error + Send + Sync>` of, such as an error
/// type, a text, or an `anyhow::Error`. Of an error that is only `Display`, or a `Box<dyn Error>` that
/// may hold what is not `Send`, make a text: `.map_err(|error| error.to_string())`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool",
    label = "a tool's closure returns this error",
    note = "implement `std::error::Error + Send + Sync` for it, or make a text of it: `.map_err(|error| error.to_string())`"
)]
pub trait IntoToolError {
    /// Boxes the error.
    fn into_tool_error(self) -> Box<dyn StdError + Send + Sync>;
}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn StdError + Send + Sync>>> IntoToolError for E {
    fn into_tool_error(self) -> Box<dyn StdError + Send + Sync> {
        self.into()
    }
}

/// A value as JSON text, the output of a tool.
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

/// A value that does not serialise to JSON, for example a map whose keys are not strings, is an
/// error that the model reads.
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

impl_into_tool_output_for_content!(String, &str, Content, Vec<Part>);
impl_into_tool_output_by_display!(
    bool, char, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f32, f64
);
impl_into_tool_output_by_display!(serde_json::Value, item::RawJson);
