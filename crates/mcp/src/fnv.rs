//! The FNV-1a hash function. The hash of the same bytes is the same on every machine and in every
//! version of this crate. The names of tools rely on this property.

/// Returns the 64-bit FNV-1a hash of the bytes.
pub(crate) fn fnv1a_64(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the 128-bit FNV-1a hash of the bytes.
pub(crate) fn fnv1a_128(bytes: impl Iterator<Item = u8>) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.fold(OFFSET_BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_are_those_of_the_published_test_vectors() {
        assert_eq!(fnv1a_64("foobar".bytes()), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_128("a".bytes()), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
