//! Writing one turn.

use serde_json::{Map, Value};

use crate::item::StopReason;
use crate::provider::content_delta::{ContentDelta, Signed};
use crate::provider::server::frame::Frame;
use crate::usage::Usage;

/// What is known of a turn before it is written.
pub(crate) struct Opening<'a> {
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
    pub(crate) signatures: &'a [(u32, Signed, String)],
    /// Makes a signature for words that the turn itself does not sign, where the vendor signs them.
    pub(crate) sign: fn(&str) -> Option<String>,
}

/// Writes the frames of one turn.
pub(crate) trait TurnWriter {
    /// Writes a piece of the block with this index.
    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), Unsupported>;

    /// Writes what was held back so far.
    fn flush(&mut self) {}

    /// Ends the turn.
    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), Unsupported>;

    /// Where the writer writes to. The caller takes out of it what is there.
    fn output(&mut self) -> &mut Output;
}

/// What a writer has written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) frames: Vec<Frame>,
    pub(crate) issued: Vec<Issued>,
}

impl Output {
    /// Notes a signature.
    pub(crate) fn sign(&mut self, signature: &str, over: &str) {
        let (signature, over) = (signature.to_owned(), over.to_owned());
        self.issued.push(Issued::Signature { signature, over });
    }
}

/// What the vendor wants back as it was given.
#[derive(Debug)]
pub(crate) enum Issued {
    /// A signature and what it was given for.
    Signature { signature: String, over: String },
    /// The id of an item that comes back only together with that of the reasoning before it.
    Follows { item: String, reasoning: String },
}

/// What the wire has no form for.
pub(crate) type Unsupported = &'static str;

/// The id of a call: its own, or one that is made of its position.
pub(crate) fn call_id(prefix: &str, own: String, answer: &str, index: u32) -> String {
    match own.as_str() {
        "" => format!("{prefix}_{answer}_{index}"),
        _ => own,
    }
}

/// A call on a wire that sends it whole, with an object for its arguments.
#[derive(Debug, Default)]
pub(crate) struct WholeCall {
    /// The call that is being written, and its arguments so far.
    open: Option<(Value, String)>,
}

impl WholeCall {
    /// Begins a call, as it is without its arguments.
    pub(crate) fn start(&mut self, call: Value) {
        self.open = Some((call, String::new()));
    }

    /// Adds to its arguments.
    pub(crate) fn push(&mut self, piece: &str) {
        if let Some((_, arguments)) = &mut self.open {
            arguments.push_str(piece);
        }
    }

    /// The call and its arguments, if one was begun.
    pub(crate) fn end(&mut self) -> Result<Option<(Value, Value)>, Unsupported> {
        let Some((call, arguments)) = self.open.take() else { return Ok(None) };
        let arguments: Option<Map<_, _>> = match arguments.trim() {
            "" => Some(Map::new()),
            written => serde_json::from_str(written).ok(),
        };
        Ok(Some((call, arguments.ok_or("arguments that are no JSON object")?.into())))
    }

    /// That no call is begun and not ended.
    pub(crate) fn check_ended(&self) -> Result<(), Unsupported> {
        self.open.is_none().then_some(()).ok_or("a call that is cut off")
    }
}
