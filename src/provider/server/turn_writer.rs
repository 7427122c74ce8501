//! Writes the frames of a single turn.

use serde_json::{Map, Value};

use crate::item::StopReason;
use crate::provider::content_delta::{ContentDelta, SignatureTarget};
use crate::provider::server::frame::ServerFrame;
use crate::usage::Usage;

/// The creation time of every response, in seconds since 1970. A constant time ensures that the
/// same script always produces the same bytes.
pub(in crate::provider) const CREATED_AT: u64 = 1_700_000_000;

/// [`CREATED_AT`] as an RFC 3339 date.
pub(in crate::provider) const CREATED_AT_DATE: &str = "2023-11-14T22:13:20Z";

/// The information about a turn that is available before the turn is written.
pub(crate) struct TurnStart<'a> {
    /// A unique id for the response. All ids that the writer generates contain this id.
    pub(crate) id: &'a str,
    /// The name of the model, as stated in the response.
    pub(crate) model: &'a str,
    /// The body of the request. The response may depend on the body, and may repeat parts of it.
    pub(crate) request: &'a Value,
    /// The token usage of the whole turn, or zero if the usage is not known yet.
    pub(crate) usage: Usage,
    /// The signatures that will follow, each as the block's index, the block's kind, and the
    /// signature. If a wire format requires an early announcement that a block is signed, only
    /// these signatures are announced.
    pub(crate) signatures: &'a [(u32, SignatureTarget, String)],
    /// Returns a signature for text that is not signed in the script, if the vendor signs such
    /// text.
    pub(crate) sign_fn: fn(&str) -> Option<String>,
}

/// Writes the frames of a single turn.
pub(crate) trait TurnWriter {
    /// Writes a piece of the content block with this index.
    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), UnsupportedContent>;

    /// Writes any buffered content.
    fn flush(&mut self) {}

    /// Ends the turn with its stop reason and usage.
    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), UnsupportedContent>;

    /// Returns the writer's output, from which the caller removes the frames.
    fn output(&mut self) -> &mut WriterOutput;
}

/// The output of a turn writer.
#[derive(Debug, Default)]
pub(crate) struct WriterOutput {
    pub(crate) frames: Vec<ServerFrame>,
    pub(crate) issued: Vec<IssuedItem>,
}

impl WriterOutput {
    /// Records a signature and the text that it signs.
    pub(crate) fn record_signature(&mut self, signature: &str, over: &str) {
        let (signature, over) = (signature.to_owned(), over.to_owned());
        self.issued.push(IssuedItem::Signature { signature, signed_text: over });
    }
}

/// A value that the client must send back unchanged.
#[derive(Debug)]
pub(crate) enum IssuedItem {
    /// A signature and the text that it signs.
    Signature { signature: String, signed_text: String },
    /// The id of an item that must be sent back together with the reasoning item before it.
    RequiresReasoning { item: String, reasoning: String },
}

/// A description of content that the wire format cannot represent.
pub(crate) type UnsupportedContent = &'static str;

/// Returns a call's id: either the call's own id, or an id generated from the call's index.
pub(crate) fn call_id_or_generated(prefix: &str, own: String, answer: &str, index: u32) -> String {
    match own.as_str() {
        "" => format!("{prefix}_{answer}_{index}"),
        _ => own,
    }
}

/// Buffers a tool call for a wire format in which the whole call is sent at once, with its
/// arguments as an object.
#[derive(Debug, Default)]
pub(crate) struct BufferedCall {
    /// The call that is being written, and its arguments so far.
    open_call: Option<(Value, String)>,
}

impl BufferedCall {
    /// Starts a call. `call` does not contain arguments yet.
    pub(crate) fn start(&mut self, call: Value) {
        self.open_call = Some((call, String::new()));
    }

    /// Appends a piece to the arguments of the open call.
    pub(crate) fn push(&mut self, piece: &str) {
        if let Some((_, arguments)) = &mut self.open_call {
            arguments.push_str(piece);
        }
    }

    /// Ends the open call, if any, and returns the call and its arguments.
    pub(crate) fn end(&mut self) -> Result<Option<(Value, Value)>, UnsupportedContent> {
        let Some((call, arguments)) = self.open_call.take() else { return Ok(None) };
        let arguments: Option<Map<_, _>> = match arguments.trim() {
            "" => Some(Map::new()),
            written => serde_json::from_str(written).ok(),
        };
        Ok(Some((call, arguments.ok_or("arguments that are not a JSON object")?.into())))
    }

    /// Returns an error if a call was started but not ended.
    pub(crate) fn check_ended(&self) -> Result<(), UnsupportedContent> {
        self.open_call.is_none().then_some(()).ok_or("a call that is cut off")
    }
}
