//! The byte-order mark that a body may begin with.

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Passes over a byte-order mark at the start of a body, however it is chunked.
#[derive(Default)]
pub(super) struct ByteOrderMark {
    /// How much of the mark has gone by.
    matched_bytes: usize,
    /// The mark has gone by, or there is none.
    is_done: bool,
}

impl ByteOrderMark {
    /// Whether the beginning of the body has gone by, with its mark or without.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Says how many bytes of the next chunk belong to the mark.
    ///
    /// When what earlier chunks, or this one, had of a mark turns out to be none, it is given back:
    /// the body begins with it.
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
