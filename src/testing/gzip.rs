//! Packs bytes as gzip (RFC 1952), without making them any smaller.

use bytes::Bytes;

/// The header: magic bytes, method "deflate", nothing else said.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

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
        let mut bits = Bits { out: &mut out, held: 0, count: 0 };
        // Not the last block, with the codes that the format itself knows (RFC 1951, 3.2.6).
        bits.push(0b010, 3);
        for byte in bytes {
            match u16::from(*byte) {
                byte @ 0..144 => bits.push_code(0b0011_0000 + byte, 8),
                byte => bits.push_code(0b1_1001_0000 + byte - 144, 9),
            }
        }
        bits.push_code(0, 7);
        // An empty stored block goes to the next whole byte.
        bits.push(0, 3);
        bits.fill();
        out.extend([0, 0, 0xff, 0xff]);
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
        // The last block, empty and stored.
        out.extend([1, 0, 0, 0xff, 0xff]);
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

/// Bits, the lowest of a byte first.
struct Bits<'a> {
    out: &'a mut Vec<u8>,
    held: u32,
    count: u32,
}

impl Bits<'_> {
    /// A number, its lowest bit first.
    fn push(&mut self, bits: u16, count: u32) {
        self.held |= u32::from(bits) << self.count;
        self.count += count;
        while self.count >= 8 {
            self.out.push(self.held.to_le_bytes()[0]);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    /// A code, its highest bit first.
    fn push_code(&mut self, code: u16, count: u32) {
        self.push(code.reverse_bits() >> (16 - count), count);
    }

    /// Goes to the next whole byte.
    fn fill(&mut self) {
        if self.count > 0 {
            self.push(0, 8 - self.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_body_is_what_any_reader_of_gzip_reads() {
        let mut gzip = Gzip::new();
        let packed = [gzip.pack(b"Hi"), gzip.pack("ß".as_bytes()), gzip.finish()];
        // As zlib unpacks it to "Hiß".
        let body = b"\xf2\xc8\x04\0\0\0\xff\xff\x3a\x3c\x1f\0\0\0\xff\xff";
        let end = b"\x01\0\0\xff\xff\x39\x55\x85\xb8\x04\0\0\0";
        assert_eq!(packed.concat(), [&HEADER[..], body, end].concat());
    }
}
