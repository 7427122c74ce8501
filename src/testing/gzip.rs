//! Packs bytes as gzip (RFC 1952), without making them any smaller.

use bytes::Bytes;

/// The header: magic bytes, method "deflate", nothing else said.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// How many bytes a stored block holds (RFC 1951, 3.2.4).
const BLOCK: usize = 0xffff;

/// A body that is packed while it is sent.
#[derive(Debug)]
pub(super) struct Gzip {
    crc: u32,
    length: u32,
    begun: bool,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self { crc: !0, length: 0, begun: false }
    }

    /// Packs a piece, so that a reader has all of it without waiting for the next.
    pub(super) fn pack(&mut self, bytes: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(bytes.len() + 32);
        self.begin(&mut out);
        for block in bytes.chunks(BLOCK) {
            push_block(&mut out, block, 0);
        }
        self.crc = bytes.iter().fold(self.crc, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
            })
        });
        // "the size of the original input data modulo 2^32"
        #[expect(clippy::cast_possible_truncation)]
        let length = bytes.len() as u32;
        self.length = self.length.wrapping_add(length);
        out.into()
    }

    /// The end of the packed body.
    pub(super) fn finish(mut self) -> Bytes {
        let mut out = Vec::new();
        self.begin(&mut out);
        push_block(&mut out, &[], 1);
        out.extend((!self.crc).to_le_bytes());
        out.extend(self.length.to_le_bytes());
        out.into()
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            out.extend(HEADER);
        }
    }
}

/// A stored block. `last` is 1 for the last of all.
fn push_block(out: &mut Vec<u8>, block: &[u8], last: u8) {
    let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
    out.push(last);
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_body_has_its_blocks_its_sum_and_its_length() {
        let mut gzip = Gzip::new();
        let packed = [gzip.pack(b"123456"), gzip.pack(b"789"), gzip.finish()].concat();
        let mut expected = HEADER.to_vec();
        expected.extend(b"\x00\x06\x00\xf9\xff123456");
        expected.extend(b"\x00\x03\x00\xfc\xff789");
        expected.extend(b"\x01\x00\x00\xff\xff");
        // 0xcbf43926 is the CRC of "123456789" that every description of CRC-32 gives.
        expected.extend(b"\x26\x39\xf4\xcb\x09\x00\x00\x00");
        assert_eq!(packed, expected);
    }
}
