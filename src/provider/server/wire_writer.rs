//! The parts that the writers of all wires share.

use serde_json::{Map, Value};

use crate::item::StopReason;
use crate::provider::codec::content_delta::{ContentDelta, SignatureTarget};
use crate::provider::server::frame::{Frame, FrameFormat, Issued};
use crate::provider::server::text_template::TextTemplate;
use crate::usage::Usage;

/// The information about a turn that is available before the turn is written.
pub struct TurnStart<'a> {
    /// A unique id for the response. All ids that the writer generates contain this id.
    pub id: &'a str,
    /// The name of the model, as stated in the response.
    pub model: &'a str,
    /// When the response was created, in seconds since 1970.
    pub created_at: u64,
    /// The body of the request. The response may depend on the body, and may repeat parts of it.
    pub request: &'a Value,
    /// The token usage of the whole turn, or zero if the usage is not known yet.
    pub usage: Usage,
    /// The signatures that will follow, if they are known: the block's index, the block's kind, and
    /// the signature. Only the Chat Completions wire needs them in advance: it sends a call's
    /// signature with the start of the call, and signed reasoning in a format of its own.
    pub signatures: &'a [(u32, SignatureTarget, String)],
    /// Returns a signature for text that has no signature of its own, if the vendor signs such
    /// text. Returns `None` if the text is sent without a signature.
    pub sign: SignFn,
}

/// Returns a signature for a text.
pub(in crate::provider) type SignFn = Box<dyn Fn(&str) -> Option<String> + Send>;

/// Writes the frames of a single turn on one wire. The caller writes each content block's pieces
/// without interruption.
pub(in crate::provider) trait WireWriter: Send {
    /// Writes a piece of the content block with this index.
    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), UnsupportedContent>;

    /// Counts a piece of text as written, and returns its number, if the wire would write it as a
    /// frame of the current template and nothing else. Returns `None` if it must be
    /// [written](Self::write).
    fn continue_text(&mut self, index: u32, text: &str) -> Option<usize>;

    /// Writes any buffered content.
    fn flush(&mut self) {}

    /// Ends the turn with its stop reason and usage.
    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), UnsupportedContent>;

    /// Returns the writer's output, from which the caller removes the frames.
    fn output(&mut self) -> &mut WriterOutput;
}

/// The output of a writer.
#[derive(Debug, Default)]
pub(in crate::provider) struct WriterOutput {
    pub(in crate::provider) frames: Vec<Frame>,
    /// The values to issue with the next frame.
    issued: Vec<Issued>,
    /// The template of the last frame with text, and the kind and the block of that frame.
    template: Option<(TextFrame, TextTemplate)>,
}

/// Identifies the frames of a template: the name of the field with the text, and the index of the
/// content block, on wires whose frames contain it.
pub(in crate::provider) type TextFrame = (&'static str, u32);

impl WriterOutput {
    /// Takes the template for these frames, if the last frame with text was one of them.
    pub(in crate::provider) fn take_template(&mut self, of: TextFrame) -> Option<TextTemplate> {
        self.template.take_if(|(last, _)| *last == of).map(|(_, template)| template)
    }

    /// Returns whether the last frame with text was one of these, so that the next one would only
    /// contain another text and number.
    pub(in crate::provider) fn continues(&self, of: TextFrame) -> bool {
        matches!(&self.template, Some((last, _)) if *last == of)
    }

    /// Writes a frame of the current template to a body.
    pub(super) fn write_text(
        &mut self,
        text: &str,
        number: usize,
        format: &FrameFormat,
        body: &mut Vec<u8>,
    ) {
        if let Some((_, template)) = &mut self.template {
            template.write(text, number, format, body);
        }
    }

    /// Adds a frame with this text and number, and keeps the template for the next ones.
    pub(in crate::provider) fn push_text(
        &mut self,
        of: TextFrame,
        template: TextTemplate,
        text: &str,
        number: usize,
    ) {
        self.push(template.frame(text, number));
        self.template = Some((of, template));
    }

    /// Adds a frame, which issues the values recorded since the previous frame.
    pub(in crate::provider) fn push(&mut self, frame: Frame) {
        self.frames.push(Frame { issued: std::mem::take(&mut self.issued), ..frame });
    }

    /// Records a signature in the next frame, and the text that it signs.
    pub(in crate::provider) fn record_signature(&mut self, signature: &str, over: &str) {
        let (signature, over) = (signature.to_owned(), over.to_owned());
        self.issued.push(Issued::Signature { signature, signed_text: over });
    }

    /// Records an item in the next frame, and the reasoning item that it requires.
    pub(in crate::provider) fn record_required_reasoning(&mut self, item: &str, reasoning: String) {
        self.issued.push(Issued::RequiresReasoning { item: item.to_owned(), reasoning });
    }
}

/// A description of content that the wire cannot represent.
pub(in crate::provider) type UnsupportedContent = &'static str;

/// The description of a refusal whose text was not written.
pub(in crate::provider) const REFUSAL_WITHOUT_TEXT: UnsupportedContent = "a refusal without text";

/// Returns a call's id: either the call's own id, or an id generated from the call's index.
pub(in crate::provider) fn call_id_or_generated(
    prefix: &str,
    own: String,
    answer: &str,
    index: u32,
) -> String {
    match own.as_str() {
        "" => format!("{prefix}_{answer}_{index}"),
        _ => own,
    }
}

/// Buffers a tool call for a wire on which the whole call is sent at once, with its arguments as an
/// object.
#[derive(Debug, Default)]
pub(in crate::provider) struct BufferedCall {
    /// The call that is being written, and its arguments so far.
    open_call: Option<(Value, String)>,
}

impl BufferedCall {
    /// Starts a call. `call` does not contain arguments yet.
    pub(in crate::provider) fn start(&mut self, call: Value) {
        self.open_call = Some((call, String::new()));
    }

    /// Appends a piece to the arguments of the open call.
    pub(in crate::provider) fn push(&mut self, piece: &str) {
        if let Some((_, arguments)) = &mut self.open_call {
            arguments.push_str(piece);
        }
    }

    /// Ends the open call, if any, and returns the call and its arguments.
    pub(in crate::provider) fn end(
        &mut self,
    ) -> Result<Option<(Value, Value)>, UnsupportedContent> {
        let Some((call, arguments)) = self.open_call.take() else { return Ok(None) };
        let arguments: Option<Map<_, _>> = match arguments.trim() {
            "" => Some(Map::new()),
            written => serde_json::from_str(written).ok(),
        };
        Ok(Some((call, arguments.ok_or("arguments that are not a JSON object")?.into())))
    }

    /// Returns an error if a call was started but not ended.
    pub(in crate::provider) fn check_ended(&self) -> Result<(), UnsupportedContent> {
        self.open_call.is_none().then_some(()).ok_or("a call that is cut off")
    }
}
