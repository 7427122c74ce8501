//! Where in the bytes of a body its frames are.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::ops::Range;

use bytes::Bytes;
use eventsource_stream::Event;
use memchr::memchr2;

use crate::sse::byte_order_mark::ByteOrderMark;
use crate::sse::frame::{Frame, FrameFields, FrameKind, FrameTooLarge, parse_with_library};

/// Cuts the chunks of a body into frames.
///
/// The work is linear in the bytes, however they are chunked: each is searched for line ends once,
/// and copied at most once, when its frame spans chunks. A frame that lies in one chunk and has
/// only one `data:` and at most one `event:` line beside comments is lent from that chunk; nothing is
/// allocated.
///
/// It follows the specification, which also has it that bytes that are not UTF-8 are replaced by
/// U+FFFD. But a frame larger than the cap is an error, so that a server cannot fill the memory,
/// and [`finish`](Self::finish) gives the frame that the end of the body cut off.
#[derive(Default)]
pub struct FrameReader {
    max_frame_bytes: SizeLimit,
    has_failed: bool,
    queued_chunks: VecDeque<Bytes>,
    chunk: Bytes,
    /// Where in `chunk` the pending frame begins, or goes on after `carry`.
    frame_start: usize,
    /// How far `chunk` has been searched: the end of the last whole line.
    scanned: usize,
    byte_order_mark: ByteOrderMark,
    /// The last chunk ended in a carriage return, so that a line feed now belongs to it.
    follows_cr: bool,
    /// What earlier chunks hold of the pending frame.
    carry: Vec<u8>,
    /// `carry` and `fields` are of a frame that was lent out, and no longer needed.
    is_lent: bool,
    /// Where in the pending frame its unfinished line begins.
    line_start: usize,
    fields: FrameFields,
    /// Texts that were repaired, while they are lent out.
    repaired_text: [String; 2],
    /// What `eventsource-stream` said, while it is lent out.
    parsed_frame: Event,
    #[cfg(test)]
    pub(super) work_counters: crate::sse::tests::Work,
}

/// So many bytes are looked through without being opened as a chunk.
const MAX_SMALL_CHUNK_BYTES: usize = 16;

struct SizeLimit(usize);

impl Default for SizeLimit {
    fn default() -> Self {
        Self(16 << 20)
    }
}

/// Where a frame lies that is about to be lent out.
#[derive(Clone, Copy)]
enum CutFrame {
    /// From here on in `chunk`.
    InChunk(usize),
    InCarry,
    Parsed,
}

impl FrameReader {
    /// Creates a reader that takes frames of up to 16 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a reader that takes frames of up to `max` bytes.
    ///
    /// What counts are the frame's lines and the line ends between them.
    #[must_use]
    pub fn limited_to_bytes(max: usize) -> Self {
        Self { max_frame_bytes: SizeLimit(max), ..Self::default() }
    }

    /// Hands over the next bytes of the body.
    ///
    /// Best called when [`next_frame`](Self::next_frame) gives `None`: chunks that come earlier
    /// wait in a queue that has no bound.
    pub fn feed(&mut self, chunk: Bytes) {
        if self.has_failed {
            // Nothing is read any more.
        } else if self.is_drained() {
            if !self.carry_small_chunk(&chunk) {
                self.open_chunk(chunk);
            }
        } else {
            self.queued_chunks.push_back(chunk);
        }
    }

    /// Cuts the next frame; `None` when it takes more bytes to go on.
    ///
    /// # Errors
    ///
    /// When the frame is larger than the cap. From then on there are no more frames.
    pub fn next_frame(&mut self) -> Option<Result<Frame<'_>, FrameTooLarge>> {
        if self.is_drained() {
            self.release_chunk();
            return None;
        }
        let cut = self.cut_frame()?;
        Some(cut.map(|cut| self.lend_frame(cut)))
    }

    /// Like [`next_frame`](Self::next_frame), but the body ends here: a frame that misses its
    /// blank line is given, too.
    ///
    /// The specification drops that frame. Here it may be the error of a server that is going
    /// down, and whether a turn is complete is not for the framing to say.
    ///
    /// # Errors
    ///
    /// When the frame is larger than the cap. From then on there are no more frames.
    pub fn finish(&mut self) -> Option<Result<Frame<'_>, FrameTooLarge>> {
        let cut = match self.cut_frame() {
            Some(cut) => cut,
            None => Ok(self.cut_last_frame()?),
        };
        Some(cut.map(|cut| self.lend_frame(cut)))
    }

    /// Whether there is nothing left to read. A frame may still be pending.
    fn is_drained(&self) -> bool {
        self.frame_start == self.chunk.len() && self.queued_chunks.is_empty()
    }

    fn cut_frame(&mut self) -> Option<Result<CutFrame, FrameTooLarge>> {
        if mem::take(&mut self.is_lent) {
            self.begin_frame();
        }
        loop {
            let Some(end) = self.find_line_end() else {
                if let Err(too_large) = self.carry_rest() {
                    return Some(Err(too_large));
                }
                self.release_chunk();
                let chunk = self.queued_chunks.pop_front()?;
                self.open_chunk(chunk);
                continue;
            };
            let next = match self.chunk[end..] {
                [b'\r', b'\n', ..] => end + 2,
                // The line ends here and now; a line feed may still come in the next chunk.
                [b'\r'] => {
                    self.follows_cr = true;
                    end + 1
                }
                _ => end + 1,
            };
            let size = self.carry.len() + end - self.frame_start;
            self.scanned = next;
            if size == self.line_start {
                let frame = mem::replace(&mut self.frame_start, next)..end;
                match self.finish_frame(frame) {
                    Some(cut) => return Some(Ok(cut)),
                    None => continue,
                }
            }
            if size > self.max_frame_bytes.0 {
                return Some(Err(self.fail()));
            }
            let line = if self.carry.is_empty() {
                &self.chunk[self.frame_start + self.line_start..end]
            } else {
                self.append_to_carry(next);
                &self.carry[self.line_start..size]
            };
            self.fields.scan_line(line, self.line_start);
            self.line_start = size + (next - end);
        }
    }

    /// Cuts the frame at the end of the body, when all chunks have been used up.
    fn cut_last_frame(&mut self) -> Option<CutFrame> {
        let line = &self.carry[self.line_start..];
        if !line.is_empty() {
            self.fields.scan_line(line, self.line_start);
        }
        self.finish_frame(0..0)
    }

    /// Closes the pending frame, which lies in `carry` or else in this part of `chunk`.
    fn finish_frame(&mut self, frame: Range<usize>) -> Option<CutFrame> {
        self.line_start = 0;
        let cut = match self.fields.frame_kind() {
            FrameKind::Empty => None,
            FrameKind::Simple if self.carry.is_empty() => Some(CutFrame::InChunk(frame.start)),
            FrameKind::Simple => Some(CutFrame::InCarry),
            FrameKind::NeedsParser => self.finish_with_parser(frame),
        };
        self.is_lent = cut.is_some();
        if !self.is_lent {
            self.begin_frame();
        }
        cut
    }

    #[cold]
    fn finish_with_parser(&mut self, frame: Range<usize>) -> Option<CutFrame> {
        let frame = if self.carry.is_empty() { &self.chunk[frame] } else { &self.carry[..] };
        #[cfg(test)]
        self.work_counters.ask();
        self.parsed_frame = parse_with_library(frame)?;
        Some(CutFrame::Parsed)
    }

    fn lend_frame(&mut self, cut: CutFrame) -> Frame<'_> {
        match cut {
            CutFrame::InChunk(at) => {
                Frame::from_fields(&self.chunk[at..], &self.fields, &mut self.repaired_text)
            }
            CutFrame::InCarry => {
                Frame::from_fields(&self.carry, &self.fields, &mut self.repaired_text)
            }
            CutFrame::Parsed => Frame::from(&self.parsed_frame),
        }
    }

    /// Finds the next line end in the chunk.
    ///
    /// Looks at no byte twice: what it passes is `scanned` next, and if it finds none, the chunk
    /// is done with.
    fn find_line_end(&mut self) -> Option<usize> {
        let rest = &self.chunk[self.scanned..];
        let found = match rest {
            // A blank line need not be searched, and every second line is one.
            [] | [b'\n' | b'\r', ..] => rest.first().map(|_| 0),
            [_, rest @ ..] => memchr2(b'\n', b'\r', rest).map(|len| len + 1),
        };
        #[cfg(test)]
        self.work_counters.search(found.map_or(rest.len(), |len| len + 1));
        Some(self.scanned + found?)
    }

    /// Puts the rest of a chunk by, until the next one.
    fn carry_rest(&mut self) -> Result<(), FrameTooLarge> {
        let size = self.carry.len() + self.chunk.len() - self.frame_start;
        // The end of a line does not count until another line follows.
        if size > self.line_start && size > self.max_frame_bytes.0 {
            return Err(self.fail());
        }
        self.scanned = self.chunk.len();
        self.append_to_carry(self.scanned);
        Ok(())
    }

    fn append_to_carry(&mut self, end: usize) {
        self.carry.extend_from_slice(&self.chunk[self.frame_start..end]);
        #[cfg(test)]
        self.work_counters.copy(end - self.frame_start);
        self.frame_start = end;
    }

    /// Puts a few bytes from the middle of a line by; a body may come byte by byte.
    fn carry_small_chunk(&mut self, chunk: &[u8]) -> bool {
        let fits = chunk.len() <= MAX_SMALL_CHUNK_BYTES
            && self.carry.len() + chunk.len() <= self.max_frame_bytes.0;
        let is_within = fits && self.byte_order_mark.is_done() && !self.follows_cr;
        if !is_within || chunk.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            return false;
        }
        if mem::take(&mut self.is_lent) {
            self.begin_frame();
        }
        self.carry.extend_from_slice(chunk);
        #[cfg(test)]
        {
            self.work_counters.search(chunk.len());
            self.work_counters.copy(chunk.len());
        }
        true
    }

    /// Opens a chunk, and passes over what belongs to no line at its beginning.
    fn open_chunk(&mut self, chunk: Bytes) {
        self.chunk = chunk;
        let (passed, back) = self.byte_order_mark.consume(&self.chunk);
        self.carry.extend_from_slice(back);
        self.frame_start = passed;
        self.scanned = passed;
        if let Some(first) = self.chunk.first()
            && mem::take(&mut self.follows_cr)
            && *first == b'\n'
        {
            self.scanned = 1;
            // Within a frame it counts, as it would had the chunk not been cut here.
            match self.line_start {
                0 => self.frame_start = 1,
                _ => self.line_start += 1,
            }
        }
    }

    /// Drops a chunk that was read, so that the connection can use its memory again.
    fn release_chunk(&mut self) {
        self.chunk = Bytes::new();
        self.frame_start = 0;
        self.scanned = 0;
    }

    fn begin_frame(&mut self) {
        self.carry.clear();
        self.fields = FrameFields::default();
    }

    #[cold]
    fn fail(&mut self) -> FrameTooLarge {
        let max = self.max_frame_bytes.0;
        *self = Self { has_failed: true, ..Self::limited_to_bytes(max) };
        FrameTooLarge { max }
    }
}

/// Shows how far the reader is, but not what it reads.
impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReader")
            .field("max", &self.max_frame_bytes.0)
            .field("failed", &self.has_failed)
            .field("carried", &self.carry.len())
            .field("unread", &(self.chunk.len() - self.frame_start))
            .field("waiting", &self.queued_chunks.len())
            .finish_non_exhaustive()
    }
}
