//! CRC-32 checksums.

use std::fmt;

/// A CRC-32 checksum (as in zlib and PNG), displayed as eight hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Crc32(u32);

impl Crc32 {
    pub(super) fn compute(bytes: &[u8]) -> Self {
        Self::default().update(bytes)
    }

    /// Extends the checksum. Returns the checksum of the previous bytes followed by `bytes`.
    pub(super) fn update(self, bytes: &[u8]) -> Self {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(bytes);
        Self(hasher.finalize())
    }

    /// Parses a checksum from its hexadecimal digits.
    pub(super) fn parse_hex(digits: &[u8]) -> Option<Self> {
        u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok().map(Self)
    }

    /// Returns whether the given hexadecimal digits represent the checksum.
    pub(super) fn matches_hex(self, digits: &[u8]) -> bool {
        self.to_string().as_bytes() == digits
    }
}

impl fmt::Display for Crc32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_crc_32_of_zlib() {
        // The expected value is the check value from the catalogue of CRC algorithms.
        assert_eq!(Crc32::compute(b"123456789").to_string(), "cbf43926");
        assert_eq!(Crc32::compute(b"1234").update(b"56789"), Crc32::compute(b"123456789"));
        assert!(Crc32::default().matches_hex(b"00000000"));
        assert_eq!(Crc32::parse_hex(b"cbf43926"), Some(Crc32::compute(b"123456789")));
    }
}
