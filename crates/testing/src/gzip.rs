//! Compresses a response's body with gzip.

use std::io::Write;
use std::mem;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// The panic message for a write error, which cannot occur because writing to memory never fails.
const WRITE_INVARIANT: &str = "a vector takes all that is written to it";

/// Compresses a body while it is being sent.
#[derive(Debug)]
pub(super) struct Gzip(GzEncoder<Vec<u8>>);

impl Gzip {
    pub(super) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Compresses and flushes a chunk, so that the client can read all of it before the next chunk
    /// is sent.
    pub(super) fn compress_chunk(&mut self, bytes: &[u8]) -> Bytes {
        let packed = self.0.write_all(bytes).and_then(|()| self.0.flush());
        packed.expect(WRITE_INVARIANT);
        mem::take(self.0.get_mut()).into()
    }

    /// Finishes the compression and returns the last bytes of the compressed body.
    pub(super) fn finish(self) -> Bytes {
        self.0.finish().expect(WRITE_INVARIANT).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::GzDecoder;

    #[test]
    fn each_compressed_piece_can_be_read_before_the_next_is_sent() {
        let (mut gzip, mut reader) = (Gzip::new(), GzDecoder::new(Vec::new()));
        for (piece, read) in [("Hi", "Hi"), ("", "Hi"), ("ß", "Hiß")] {
            reader.write_all(&gzip.compress_chunk(piece.as_bytes())).unwrap();
            reader.flush().unwrap();
            assert_eq!(reader.get_ref(), read.as_bytes());
        }
        reader.write_all(&gzip.finish()).unwrap();
        assert_eq!(reader.finish().unwrap(), "Hiß".as_bytes());
    }

    #[test]
    fn an_empty_body_is_compressed_as_well() {
        let mut reader = GzDecoder::new(Vec::new());
        reader.write_all(&Gzip::new().finish()).unwrap();
        assert_eq!(reader.finish().unwrap(), b"");
    }
}
