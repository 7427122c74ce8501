//! The FNV-1a hash function. The hash of the same bytes is the same on every machine and in every
//! version of this crate. The names of notification channels rely on this property.

/// Returns the 64-bit FNV-1a hash of the bytes.
pub(crate) fn fnv1a_64(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_published_test_vector() {
        assert_eq!(fnv1a_64("foobar".bytes()), 0x8594_4171_f739_67e8);
    }
}
