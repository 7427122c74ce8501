//! The answers that tools return.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// An answer from a tool on an [`McpServer`](crate::mcp::McpServer): either a result or a
/// JSON-RPC error.
///
/// A string converts into an answer, and so does a `Result` whose error is an answer and whose
/// success value converts into an answer.
///
/// ```
/// use turnstream_testing::mcp::McpAnswer;
///
/// let picture = McpAnswer::text("A dot:").with_image("image/png", b"not really a picture");
/// let failed = McpAnswer::error("the disk is full");
/// # let _ = (picture, failed);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct McpAnswer(pub(super) Outcome);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Result(Map<String, Value>),
    RpcError {
        code: i64,
        message: String,
        data: Option<Value>,
    },
    /// A question, which the client must answer by repeating the request. A question is sent as an
    /// answer only in the protocol's modern era.
    InputRequired {
        key: String,
        request: Value,
        /// The client's answers to the call's earlier questions.
        answered: Map<String, Value>,
    },
}

impl McpAnswer {
    /// Creates a result with no content, to which the `with_*` methods add blocks and fields.
    pub fn empty() -> Self {
        let mut result = Map::new();
        result.insert("content".into(), json!([]));
        Self(Outcome::Result(result))
    }

    /// Creates a result with one text block, as most tools return it.
    pub fn text(text: impl Into<String>) -> Self {
        Self::empty().with_text(text)
    }

    /// Creates a result that reports a tool failure (`isError`).
    pub fn error(text: impl Into<String>) -> Self {
        Self::text(text).with_field("isError", true)
    }

    /// Creates an answer that is a JSON-RPC error instead of a result, for example with the code
    /// -32603 for an internal error.
    pub fn rpc_error(code: i64, message: impl Into<String>) -> Self {
        Self(Outcome::RpcError { code, message: message.into(), data: None })
    }

    /// Adds a text block to the content. Has no effect on a JSON-RPC error.
    pub fn with_text(self, text: impl Into<String>) -> Self {
        self.with_block(json!({ "type": "text", "text": text.into() }))
    }

    /// Adds an image block to the content, with the bytes as base64.
    pub fn with_image(self, mime_type: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.with_data("image", mime_type, bytes.as_ref())
    }

    /// Adds an audio block to the content, with the bytes as base64.
    pub fn with_audio(self, mime_type: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.with_data("audio", mime_type, bytes.as_ref())
    }

    /// Adds an embedded text resource to the result's content.
    pub fn with_resource(self, uri: &str, mime_type: &str, text: &str) -> Self {
        let resource = json!({ "uri": uri, "mimeType": mime_type, "text": text });
        self.with_block(json!({ "type": "resource", "resource": resource }))
    }

    /// Adds a content block unchanged, even if it is invalid. If the answer is a JSON-RPC error,
    /// this method has no effect.
    pub fn with_block(mut self, block: Value) -> Self {
        if let Outcome::Result(result) = &mut self.0
            && let Some(Value::Array(content)) = result.get_mut("content")
        {
            content.push(block);
        }
        self
    }

    /// Sets the result's `structuredContent`, which should match the tool's [output
    /// schema](crate::mcp::McpTool::with_output_schema).
    pub fn with_structured(self, content: impl Into<Value>) -> Self {
        self.with_field("structuredContent", content)
    }

    /// Sets a field of the result. If the answer is a JSON-RPC error, sets the error's `data`
    /// instead. Use this method for fields that have no other method, such as `_meta`, or to create
    /// invalid content.
    pub fn with_field(mut self, name: &str, value: impl Into<Value>) -> Self {
        match &mut self.0 {
            Outcome::Result(result) => drop(result.insert(name.to_owned(), value.into())),
            Outcome::RpcError { data, .. } => *data = Some(value.into()),
            Outcome::InputRequired { .. } => {}
        }
        self
    }

    fn with_data(self, kind: &str, mime_type: &str, bytes: &[u8]) -> Self {
        let data = STANDARD.encode(bytes);
        self.with_block(json!({ "type": kind, "data": data, "mimeType": mime_type }))
    }
}

impl From<&str> for McpAnswer {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for McpAnswer {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl<A: Into<McpAnswer>> From<Result<A, McpAnswer>> for McpAnswer {
    /// Converts either variant of the `Result` into an answer, so that a handler can use `?` on
    /// [`McpCall::ask`](crate::mcp::McpCall::ask).
    fn from(result: Result<A, McpAnswer>) -> Self {
        result.map_or_else(|answer| answer, Into::into)
    }
}
