//! Bytes in several chunks, so that long parts are shared instead of copied.

use bytes::Bytes;

/// A sequence of bytes, some of which are in chunks that other values share.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkedBytes {
    /// The chunks before `tail`, none of which is empty.
    chunks: Vec<Bytes>,
    /// The total length of `chunks`.
    chunks_len: usize,
    /// The bytes that can still be appended to.
    tail: Vec<u8>,
}

impl ChunkedBytes {
    pub(crate) fn len(&self) -> usize {
        self.chunks_len + self.tail.len()
    }

    /// Reserves capacity for bytes that will be copied.
    pub(crate) fn reserve(&mut self, additional: usize) {
        self.tail.reserve(additional);
    }

    /// Appends a copy of `bytes`.
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// Appends a chunk without copying it.
    pub(crate) fn push_shared(&mut self, chunk: Bytes) {
        let tail = std::mem::take(&mut self.tail);
        for chunk in [tail.into(), chunk] {
            if !chunk.is_empty() {
                self.chunks_len += chunk.len();
                self.chunks.push(chunk);
            }
        }
    }

    /// Inserts a copy of `bytes` at the offset `at`, or at the end if `at` is larger than the
    /// length.
    pub(crate) fn insert(&mut self, at: usize, bytes: &[u8]) {
        if let Some(at) = at.checked_sub(self.chunks_len) {
            let at = at.min(self.tail.len());
            self.tail.splice(at..at, bytes.iter().copied());
            return;
        }
        let mut offset = at;
        for (index, chunk) in self.chunks.iter_mut().enumerate() {
            if offset >= chunk.len() {
                offset -= chunk.len();
                continue;
            }
            let before = chunk.split_to(offset);
            let inserted = Bytes::copy_from_slice(bytes);
            let pieces = [before, inserted].into_iter().filter(|piece| !piece.is_empty());
            self.chunks.splice(index..index, pieces);
            self.chunks_len += bytes.len();
            return;
        }
    }

    /// Removes the last byte if it is `byte`.
    pub(crate) fn pop_if(&mut self, byte: u8) {
        if !self.tail.is_empty() {
            self.tail.pop_if(|last| *last == byte);
        } else if let Some(chunk) = self.chunks.last_mut()
            && chunk.last() == Some(&byte)
        {
            chunk.truncate(chunk.len() - 1);
            self.chunks_len -= 1;
            self.chunks.pop_if(|chunk| chunk.is_empty());
        }
    }

    /// Returns all bytes in a single vector. Copies them if there is more than one chunk.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        if self.chunks.is_empty() {
            return self.tail;
        }
        let mut all = Vec::with_capacity(self.len());
        for chunk in self.into_chunks() {
            all.extend_from_slice(&chunk);
        }
        all
    }

    /// Returns the chunks in order.
    pub(crate) fn into_chunks(mut self) -> Vec<Bytes> {
        self.push_shared(Bytes::new());
        self.chunks
    }
}

impl From<Vec<u8>> for ChunkedBytes {
    fn from(tail: Vec<u8>) -> Self {
        Self { tail, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> ChunkedBytes {
        let mut bytes = ChunkedBytes::from(b"ab".to_vec());
        bytes.push_shared(Bytes::from_static(b"cdef"));
        bytes.push_shared(Bytes::from_static(b"g"));
        bytes
    }

    #[test]
    fn chunks_are_in_order_and_none_is_empty() {
        let mut bytes = bytes();
        bytes.push_shared(Bytes::new());
        bytes.extend_from_slice(b"hi");
        assert_eq!(bytes.len(), 9);
        let chunks = bytes.clone().into_chunks();
        assert_eq!(chunks, [&b"ab"[..], b"cdef", b"g", b"hi"]);
        assert_eq!(bytes.into_vec(), b"abcdefghi");
    }

    #[test]
    fn bytes_are_inserted_at_any_offset() {
        for at in 0..12 {
            for tail in [&b""[..], b"hi"] {
                let mut chunked = bytes();
                chunked.extend_from_slice(tail);
                let mut plain = chunked.clone().into_vec();
                chunked.insert(at, b"XY");
                let at = at.min(plain.len());
                plain.splice(at..at, *b"XY");
                assert_eq!(chunked.len(), plain.len());
                let chunks = chunked.into_chunks();
                assert!(chunks.iter().all(|chunk| !chunk.is_empty()), "{at}: {chunks:?}");
                assert_eq!(chunks.concat(), plain);
            }
        }
    }

    #[test]
    fn the_last_byte_is_removed_if_it_is_the_given_one() {
        let mut shared = bytes();
        shared.pop_if(b'x');
        assert_eq!(shared.len(), 7);
        shared.pop_if(b'g');
        assert_eq!(shared.clone().into_vec(), b"abcdef");
        assert_eq!(shared.len(), 6);
        assert_eq!(shared.clone().into_chunks(), [&b"ab"[..], b"cdef"]);
        shared.extend_from_slice(b"h,");
        shared.pop_if(b',');
        assert_eq!(shared.into_vec(), b"abcdefh");
    }
}
