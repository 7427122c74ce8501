//! Writing one turn.

use serde_json::{Map, Value};

use crate::item::StopReason;
use crate::provider::content_delta::{ContentDelta, SignatureTarget};
use crate::provider::server::frame::ServerFrame;
use crate::usage::Usage;

/// What is known of a turn before it is written.
pub(crate) struct TurnStart<'a> {
    /// It tells this answer from others: all ids that the writer makes hold it.
    pub(crate) id: &'a str,
    /// When the answer was made, in seconds since 1970.
    pub(crate) created: u64,
    /// The model that answers.
    pub(crate) model: &'a str,
    /// The body of the request, for what the answer repeats of it and what it asks for.
    pub(crate) request: &'a Value,
    /// The usage of the whole turn, zero if it is not known yet.
    pub(crate) usage: Usage,
    /// The signatures that the turn is going to bring: the block's index, its kind, the signature.
    /// A wire that has to say early that something is signed says it of these only.
    pub(crate) signatures: &'a [(u32, SignatureTarget, String)],
    /// Makes a signature for words that the turn itself does not sign, where the vendor signs them.
    pub(crate) sign_fn: fn(&str) -> Option<String>,
}

/// Writes the frames of one turn.
pub(crate) trait TurnWriter {
    /// Writes a piece of the block with this index.
    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), UnsupportedContent>;

    /// Writes what was held back so far.
    fn flush(&mut self) {}

    /// Ends the turn.
    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), UnsupportedContent>;

    /// Where the writer writes to. The caller takes out of it what is there.
    fn output(&mut self) -> &mut WriterOutput;
}

/// What a writer has written.
#[derive(Debug, Default)]
pub(crate) struct WriterOutput {
    pub(crate) frames: Vec<ServerFrame>,
    pub(crate) issued: Vec<IssuedItem>,
}

impl WriterOutput {
    /// Notes a signature.
    pub(crate) fn record_signature(&mut self, signature: &str, over: &str) {
        let (signature, over) = (signature.to_owned(), over.to_owned());
        self.issued.push(IssuedItem::Signature { signature, signed_text: over });
    }
}

/// What the vendor wants back as it was given.
#[derive(Debug)]
pub(crate) enum IssuedItem {
    /// A signature and what it was given for.
    Signature { signature: String, signed_text: String },
    /// The id of an item that comes back only together with that of the reasoning before it.
    RequiresReasoning { item: String, reasoning: String },
}

/// What the wire has no form for.
pub(crate) type UnsupportedContent = &'static str;

/// The id of a call: its own, or one that is made of its position.
pub(crate) fn call_id_or_generated(prefix: &str, own: String, answer: &str, index: u32) -> String {
    match own.as_str() {
        "" => format!("{prefix}_{answer}_{index}"),
        _ => own,
    }
}

/// A call on a wire that sends it whole, with an object for its arguments.
#[derive(Debug, Default)]
pub(crate) struct BufferedCall {
    /// The call that is being written, and its arguments so far.
    open_call: Option<(Value, String)>,
}

impl BufferedCall {
    /// Begins a call, as it is without its arguments.
    pub(crate) fn start(&mut self, call: Value) {
        self.open_call = Some((call, String::new()));
    }

    /// Adds to its arguments.
    pub(crate) fn push(&mut self, piece: &str) {
        if let Some((_, arguments)) = &mut self.open_call {
            arguments.push_str(piece);
        }
    }

    /// The call and its arguments, if one was begun.
    pub(crate) fn end(&mut self) -> Result<Option<(Value, Value)>, UnsupportedContent> {
        let Some((call, arguments)) = self.open_call.take() else { return Ok(None) };
        let arguments: Option<Map<_, _>> = match arguments.trim() {
            "" => Some(Map::new()),
            written => serde_json::from_str(written).ok(),
        };
        Ok(Some((call, arguments.ok_or("arguments that are no JSON object")?.into())))
    }

    /// That no call is begun and not ended.
    pub(crate) fn check_ended(&self) -> Result<(), UnsupportedContent> {
        self.open_call.is_none().then_some(()).ok_or("a call that is cut off")
    }
}
