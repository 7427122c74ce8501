//! "Termination strategies": a limit ends the loop, and its history can be sent.

use super::the_state_struct_pattern::{cut_off, run_state_loop};
use turnstream_test_support::runs::reply_calling_t;

#[tokio::test]
async fn a_hand_written_loop_stops_at_its_limits_with_a_history_that_can_be_sent() {
    let calls = ["a", "b", "c", "d"].map(reply_calling_t);
    let (iterations, last) = run_state_loop(calls.into()).await;
    assert_eq!((iterations.len(), last.turn_count), (3, 3));
    assert!(last.history.is_settled() && last.history.last().unwrap().as_tool_result().is_some());

    let (iterations, last) = run_state_loop((0..5).map(|_| cut_off()).collect()).await;
    assert_eq!((iterations.len(), last.recovery_count), (4, 3));
    assert!(last.history.is_settled());
}
