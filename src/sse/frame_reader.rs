//! Finds the frames in the bytes of a response body.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

use bytes::Bytes;
use eventsource_stream::Event;
use memchr::memchr2;

use crate::sse::byte_order_mark::ByteOrderMark;
use crate::sse::frame::{Frame, FrameFields, FrameKind, FrameTooLarge, parse_with_library};

/// Splits a response body, which arrives in chunks, into frames.
///
/// The running time is linear in the number of bytes, regardless of the size of the chunks. Each
/// byte is scanned for line endings only once. A byte is copied at most once, and only if its frame
/// spans several chunks. A frame is borrowed from its chunk without an allocation if the frame lies
/// within that chunk and, comments aside, has one `data:` line and at most one `event:` line.
///
/// The reader follows the specification,
/// <https://html.spec.whatwg.org/multipage/server-sent-events.html>; for example, invalid UTF-8 is
/// replaced with U+FFFD. The reader deviates from the specification in two cases: a frame that
/// exceeds the size limit causes an error, so that a server cannot exhaust memory, and
/// [`finish`](Self::finish) returns a frame that was cut off by the end of the body.
///
/// The fields that a frame within one chunk uses come first, so that they share cache lines.
#[derive(Default)]
#[repr(C)]
pub struct FrameReader {
    has_failed: bool,
    /// Whether the last chunk ended in a carriage return, so that a line feed at the start of the
    /// next chunk belongs to the same line ending.
    follows_cr: bool,
    /// Whether `carry` and `fields` belong to a frame that has already been returned and can
    /// therefore be cleared.
    is_lent: bool,
    byte_order_mark: ByteOrderMark,
    /// The position in `chunk` at which the pending frame starts, or at which it continues if its
    /// start is in `carry`.
    frame_start: usize,
    /// The position up to which `chunk` has been scanned: the end of the last complete line.
    scanned: usize,
    /// The offset within the pending frame at which the unfinished line starts.
    line_start: usize,
    chunk: Bytes,
    queued_chunks: VecDeque<Bytes>,
    /// The bytes of the pending frame from earlier chunks.
    carry: Vec<u8>,
    fields: FrameFields,
    max_frame_bytes: SizeLimit,
    /// The repaired strings from which the returned frame borrows.
    repaired_text: [String; 2],
    /// The event from `eventsource-stream` from which the returned frame borrows.
    parsed_frame: Event,
    #[cfg(test)]
    pub(super) work_counters: crate::sse::tests::Work,
}

/// The maximum size of a chunk that is appended directly to `carry` if it contains no line ending.
const MAX_SMALL_CHUNK_BYTES: usize = 16;

struct SizeLimit(usize);

impl Default for SizeLimit {
    fn default() -> Self {
        Self(16 << 20)
    }
}

/// The location of a complete frame that is about to be returned.
#[derive(Clone, Copy)]
enum CutFrame {
    /// The frame is in `chunk`, starting at this position.
    InChunk(usize),
    InCarry,
    Parsed,
}

impl FrameReader {
    /// Creates a reader for frames of up to 16 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a reader for frames of up to `max` bytes.
    ///
    /// The size of a frame is the total size of its lines and of the line endings between them.
    #[must_use]
    pub fn limited_to_bytes(max: usize) -> Self {
        Self { max_frame_bytes: SizeLimit(max), ..Self::default() }
    }

    /// Feeds the reader the next chunk of the body.
    ///
    /// Call this method when [`next_frame`](Self::next_frame) returns `None`. Chunks that are fed
    /// earlier are stored in an unbounded queue.
    pub fn feed(&mut self, chunk: Bytes) {
        if self.has_failed {
            // No bytes are read after an error.
        } else if self.is_drained() {
            if !self.carry_small_chunk(&chunk) {
                self.open_chunk(chunk);
            }
        } else {
            self.queued_chunks.push_back(chunk);
        }
    }

    /// Returns the next frame, or `None` if the reader needs more bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the frame is larger than the limit. No frames are returned after this
    /// error.
    pub fn next_frame(&mut self) -> Option<Result<Frame<'_>, FrameTooLarge>> {
        if self.is_drained() {
            self.release_chunk();
            return None;
        }
        let cut = self.cut_frame()?;
        Some(cut.map(|cut| self.lend_frame(cut)))
    }

    /// Returns the next of the frames that remain once the body has ended. Call it until it returns
    /// `None`. The last frame is returned even if it has no closing blank line. In all other
    /// respects, `finish` behaves like [`next_frame`](Self::next_frame).
    ///
    /// The specification requires that a last frame without a closing blank line be discarded. This
    /// reader returns such a frame, because the frame may report an error from a server that is
    /// shutting down. Whether a turn is complete is not determined by its frames.
    ///
    /// # Errors
    ///
    /// Returns an error if the frame is larger than the limit. No frames are returned after this
    /// error.
    pub fn finish(&mut self) -> Option<Result<Frame<'_>, FrameTooLarge>> {
        let cut = match self.cut_frame() {
            Some(cut) => cut,
            None => Ok(self.cut_last_frame()?),
        };
        Some(cut.map(|cut| self.lend_frame(cut)))
    }

    /// Returns whether all chunks have been read. A frame may still be pending.
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
                // The line ends at this carriage return, although a line feed may still follow in
                // the next chunk.
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

    /// Returns the frame at the end of the body, after all chunks have been read.
    fn cut_last_frame(&mut self) -> Option<CutFrame> {
        let line = &self.carry[self.line_start..];
        if !line.is_empty() {
            self.fields.scan_line(line, self.line_start);
        }
        self.finish_frame(0..0)
    }

    /// Finishes the pending frame. The frame is in `carry`, or in the range `frame` of `chunk` if
    /// `carry` is empty.
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

    /// Finds the next line ending in the chunk.
    ///
    /// No byte is scanned twice, because the caller sets `scanned` to the position after the line
    /// ending. If there is no line ending, the caller moves the rest of the chunk to `carry`.
    fn find_line_end(&mut self) -> Option<usize> {
        let rest = &self.chunk[self.scanned..];
        let found = match rest {
            // Finding a blank line requires no search, and every second line of a body is blank.
            [] | [b'\n' | b'\r', ..] => rest.first().map(|_| 0),
            [_, rest @ ..] => memchr2(b'\n', b'\r', rest).map(|len| len + 1),
        };
        #[cfg(test)]
        self.work_counters.search(found.map_or(rest.len(), |len| len + 1));
        Some(self.scanned + found?)
    }

    /// Moves the rest of a chunk to `carry`, where it is kept until the next chunk arrives.
    fn carry_rest(&mut self) -> Result<(), FrameTooLarge> {
        let size = self.carry.len() + self.chunk.len() - self.frame_start;
        // A line ending does not count towards the size until another line follows.
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

    /// Appends a chunk to `carry` if the chunk is small and lies within a line, and returns whether
    /// it was appended. This is an optimization for bodies that arrive byte by byte.
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

    /// Makes `chunk` the current chunk, and skips leading bytes that do not belong to a line.
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
            // Within a frame, the line feed counts towards the size, as if the chunk had not been
            // split here.
            match self.line_start {
                0 => self.frame_start = 1,
                _ => self.line_start += 1,
            }
        }
    }

    /// Drops a chunk that has been read, so that the connection can reuse its memory.
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

// Shows the state of the reader, but not the contents of its buffers.
impl_debug!(
    FrameReader(it),
    max_frame_bytes = it.max_frame_bytes.0,
    has_failed = it.has_failed,
    carried = it.carry.len(),
    unread = (it.chunk.len() - it.frame_start),
    queued_chunks = it.queued_chunks.len(),
);
