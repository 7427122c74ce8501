//! What a tool gives back.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::{Content, Json, Part};

/// What a running tool streams: any number of `Progress`, then one `Output`.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// How far it is, for whoever watches. The model does not see it.
    Progress(Json),
    /// An event of a sub-agent that runs inside the tool, for whoever watches.
    Nested(Box<Event>),
    /// The result. What would come after it never runs.
    Output(ToolOutput),
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
}

impl Update {
    /// How far it is. A value that is no JSON is shown as `null`.
    pub fn progress<T: serde::Serialize + ?Sized>(value: &T) -> Self {
        Self::Progress(Json::new(value).unwrap_or_else(|_| serde_json::Value::Null.into()))
    }

    /// The result.
    pub fn output(output: impl IntoToolOutput) -> Self {
        Self::Output(output.into_tool_output())
    }
}

/// What a tool's closure may return: text, numbers, JSON, parts, or a `Result` of these.
pub trait IntoToolOutput {
    /// Makes the output of it.
    fn into_tool_output(self) -> ToolOutput;
}

impl IntoToolOutput for ToolOutput {
    fn into_tool_output(self) -> ToolOutput {
        self
    }
}

impl<T: IntoToolOutput, E: fmt::Display> IntoToolOutput for Result<T, E> {
    fn into_tool_output(self) -> ToolOutput {
        match self {
            Ok(value) => value.into_tool_output(),
            Err(error) => ToolOutput::error(format!("Error: {error}")),
        }
    }
}

impl IntoToolOutput for () {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::ok("Done.")
    }
}

macro_rules! content {
    ($($type:ty),*) => {$(
        impl IntoToolOutput for $type {
            fn into_tool_output(self) -> ToolOutput {
                ToolOutput::ok(self)
            }
        }
    )*};
}

macro_rules! shown {
    ($($type:ty),*) => {$(
        impl IntoToolOutput for $type {
            fn into_tool_output(self) -> ToolOutput {
                ToolOutput::ok(self.to_string())
            }
        }
    )*};
}

content!(String, &str, Content, Vec<Part>);
shown!(bool, char, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f32, f64);
shown!(serde_json::Value, Json);
