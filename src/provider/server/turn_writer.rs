//! Writes the frames of a turn, on any wire.

use std::fmt;
use std::mem;

use crate::error::{Error, ErrorKind};
use crate::item::StopReason;
use crate::provider::codec::content_delta::ContentDelta;
use crate::provider::server::frame::{Frame, FrameFormat};
use crate::provider::server::wire::Wire;
use crate::provider::server::wire_writer::{TurnStart, UnsupportedContent, WireWriter};
use crate::usage::Usage;

/// Writes a turn as the frames that the vendor's server sends, piece by piece.
///
/// For an example, see the [module](crate::provider::server).
pub struct TurnWriter {
    wire: Wire,
    writer: Box<dyn WireWriter>,
}

impl TurnWriter {
    /// Starts a turn. The first call to [`write`](Self::write) or [`stop`](Self::stop) also returns
    /// the frames with which the wire starts a response.
    pub fn new(wire: Wire, start: TurnStart<'_>) -> Self {
        Self { wire, writer: (wire.description().new_writer)(start) }
    }

    /// Writes pieces of content blocks, each with the index of its block, and returns their frames.
    ///
    /// The pieces of a block follow each other: a piece with another index ends the block before
    /// it. A call consists of [`CallStart`](ContentDelta::CallStart), any number of
    /// [`CallArgs`](ContentDelta::CallArgs) and [`CallEnd`](ContentDelta::CallEnd). On wires that
    /// send a call at once, its frame is returned when it ends. Calls that end in the same `write`
    /// are sent together if the vendor does so.
    ///
    /// # Errors
    ///
    /// Returns an [`Unsupported`](ErrorKind::Unsupported) error if the wire cannot express one of
    /// the pieces. The frames of the pieces before it are lost, so that the turn cannot continue.
    pub fn write(
        &mut self,
        deltas: impl IntoIterator<Item = (u32, ContentDelta)>,
    ) -> Result<Vec<Frame>, Error> {
        for (index, delta) in deltas {
            self.writer.write(index, delta).map_err(|what| unsupported(self.wire, what))?;
        }
        self.writer.flush();
        Ok(mem::take(&mut self.writer.output().frames))
    }

    /// Appends a piece of text to a body, if [`write`](Self::write) would return only a frame that
    /// differs from the last frame with text in its text and its number. Returns whether it did;
    /// otherwise, the piece must be written.
    ///
    /// The bytes are those of that frame, [encoded] in the body's format. They need a fraction of
    /// the instructions, because only the text is encoded.
    ///
    /// The frames that the writer has returned must already be in the body: this one is written as
    /// a later frame, after a comma in a JSON array. A piece that has been appended is a frame, and
    /// the caller must count it in the number of frames that it passes to [`encode`][encoded],
    /// [`error_frame`](Wire::error_frame) and [`keep_alive`](Wire::keep_alive).
    ///
    /// [encoded]: FrameFormat::encode
    #[must_use = "a piece that was not appended must be written"]
    pub fn continue_text(
        &mut self,
        index: u32,
        text: &str,
        format: &FrameFormat,
        body: &mut Vec<u8>,
    ) -> bool {
        let number = self.writer.continue_text(index, text);
        if let Some(number) = number {
            self.writer.output().write_text(text, number, format, body);
        }
        number.is_some()
    }

    /// Ends the turn, and returns its last frames.
    ///
    /// # Errors
    ///
    /// Returns an [`Unsupported`](ErrorKind::Unsupported) error if the wire has no such stop
    /// reason, or cannot express a call that has not ended.
    pub fn stop(mut self, reason: &StopReason, usage: Usage) -> Result<Vec<Frame>, Error> {
        self.writer.stop(reason, usage).map_err(|what| unsupported(self.wire, what))?;
        Ok(mem::take(&mut self.writer.output().frames))
    }
}

impl fmt::Debug for TurnWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnWriter").field("wire", &self.wire).finish_non_exhaustive()
    }
}

fn unsupported(wire: Wire, what: UnsupportedContent) -> Error {
    let message = format!("content that the {wire} wire cannot express: {what}");
    Error::new(ErrorKind::Unsupported, message)
}
