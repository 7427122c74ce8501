//! Handles the byte-order mark at the start of a body.

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Skips a byte-order mark at the start of a body, even if it is split across chunks.
#[derive(Default)]
pub(super) struct ByteOrderMark {
    /// The number of bytes of the byte-order mark that have been matched.
    matched_bytes: usize,
    /// Whether the byte-order mark has been skipped or is known to be absent.
    is_done: bool,
}

impl ByteOrderMark {
    /// Returns whether the start of the body has been processed, with or without a byte-order mark.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the number of bytes at the start of the next chunk that belong to the byte-order
    /// mark.
    ///
    /// If the body turns out to have no byte-order mark, the second returned value contains the
    /// bytes to put back at the start of the body.
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
