//! For any script, every form of the loop yields the same values as a loop over vectors.

use proptest::collection::vec;
use proptest::prelude::*;

#[path = "../../../../tests/streams/script.rs"]
#[allow(dead_code, reason = "the tests of `streams` use all of it")]
mod script;

use self::script::{BodyAction, Fail, Next, Stop, StopWith, Value, Wait, check_every_form};

fn any_action() -> impl Strategy<Value = BodyAction> {
    prop_oneof![
        6 => any::<u32>().prop_map(Value),
        3 => any::<u32>().prop_map(Next),
        2 => Just(Wait),
        1 => Just(Stop),
        1 => any::<u32>().prop_map(StopWith),
        1 => any::<u32>().prop_map(Fail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_loop_behaves_like_a_reference_model(script in vec(vec(any_action(), 0..6), 0..8)) {
        check_every_form(&script);
    }
}
