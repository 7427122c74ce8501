//! The byte-order mark at the start of a body.

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Skips a byte-order mark at the start of a body, however it is chunked.
#[derive(Default)]
pub(super) struct ByteOrderMark {
    /// The number of bytes of the mark that have matched.
    matched_bytes: usize,
    /// Whether the mark was skipped or is known to be absent.
    is_done: bool,
}

impl ByteOrderMark {
    /// Whether the start of the body has been processed, with or without a mark.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns how many bytes of the next chunk belong to the mark.
    ///
    /// If the bytes of this and earlier chunks turn out not to be a mark, also returns the bytes to
    /// put back: the body starts with them.
    pub(super) fn consume(&mut self, chunk: &[u8]) -> (usize, &'static [u8]) {
        if self.is_done {
            return (0, &[]);
        }
        let rest = &BYTE_ORDER_MARK[self.matched_bytes..];
        let same = chunk.iter().zip(rest).take_while(|(byte, mark)| byte == mark).count();
        self.matched_bytes += same;
        if same == rest.len() {
            self.is_done = true;
        } else if same < chunk.len() {
            self.is_done = true;
            return (same, &BYTE_ORDER_MARK[..self.matched_bytes]);
        }
        (same, &[])
    }
}
