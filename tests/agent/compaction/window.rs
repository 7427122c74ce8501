//! When a window is nearly full.

use turnstream::context::Window;
use turnstream::request::Options;
use turnstream::{Item, Request};

use crate::support::items::{as_tool_turn_end, history_of, token_usage};

#[track_caller]
fn check(window: &Window, max_output_tokens: Option<u32>, expected: u64) {
    let options = Options { max_output_tokens, ..Options::default() };
    assert_eq!(window.threshold(&options), expected);
}

#[test]
fn the_threshold_is_80_percent_or_where_the_answer_no_longer_fits() {
    let window = Window::new(1_000);
    check(&window, None, 800);
    check(&window, Some(100), 800);
    check(&window, Some(300), 700);
    check(&window, Some(999), 1);
    // An answer as long as the window is no plan.
    check(&window, Some(1_000), 800);
    check(&window, Some(u32::MAX), 800);
    check(&window.clone().with_threshold_percent(50), Some(300), 500);
    check(&window.clone().with_threshold_percent(900), None, 1_000);
    check(&window.with_threshold_percent(0), None, 0);
    check(&Window::new(u64::MAX).with_threshold_percent(100), None, u64::MAX);
    check(&Window::new(0), Some(1), 0);
}

#[test]
fn a_window_uses_its_own_token_counter() {
    let window = Window::new(1_000).with_counter(|text: &str| text.len() as u64);
    let mut request = Request::new(history_of([Item::user("12345")])).with_system("123");
    assert_eq!(
        (window.estimate_request_tokens(&request), window.count_request_tokens(&request)),
        (12, 12)
    );
    request.context =
        history_of([Item::user("12345"), as_tool_turn_end(Item::text("a"), token_usage(70, 5))]);
    assert_eq!(
        (window.estimate_request_tokens(&request), window.count_request_tokens(&request)),
        (75, 17)
    );
    assert_eq!(window.tokens(), 1_000);
    assert!(format!("{window:?}").contains("1000"));
}
