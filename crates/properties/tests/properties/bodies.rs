//! A body decodes to the same turn on every wire, however it is framed and split.

use proptest::prelude::*;
use turnstream::provider::Reply;
use turnstream_testing::Wire;

use turnstream_test_support::items::token_usage;
use turnstream_test_support::wires::{decode_events, framing_variants};

/// A reply whose text has multi-byte characters and characters that resemble line ends, and a call.
fn multibyte_reply() -> Reply {
    let odd = "\u{e9}\u{1f44d}\u{2028} \u{feff}data:\n\n";
    Reply::new().say(odd).call_raw("c", "t", "{\"s\":\"\u{e9}\u{2028}\"}").usage(token_usage(3, 2))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_body_decodes_to_the_same_turn_for_any_split(
        wire in 0..Wire::ALL.len(),
        body in any::<proptest::sample::Index>(),
        lengths in prop::collection::vec(1..40_usize, 1..8),
    ) {
        let wire = Wire::ALL[wire];
        let bodies = framing_variants(wire, &multibyte_reply());
        let expected = decode_events(wire, [bodies[0].clone()]);
        let mut rest = body.get(&bodies).as_slice();
        let mut chunks = Vec::new();
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at((*length).min(rest.len()));
            chunks.push(chunk.to_vec());
            rest = after;
        }
        prop_assert!(decode_events(wire, chunks) == expected);
    }
}
