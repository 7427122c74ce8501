//! The threshold at which a window is nearly full.

use turnstream::context::Window;
use turnstream::request::Options;
use turnstream::{Item, Request};

use turnstream_test_support::items::{as_tool_turn_end, history_of, token_usage};

#[track_caller]
fn assert_window(window: &Window, max_output_tokens: Option<u32>, expected: u64) {
    let options = Options { max_output_tokens, ..Options::default() };
    assert_eq!(window.threshold(&options), expected);
}

#[test]
fn the_threshold_is_80_percent_or_where_the_answer_no_longer_fits() {
    let window = Window::new(1_000);
    assert_window(&window, None, 800);
    assert_window(&window, Some(100), 800);
    assert_window(&window, Some(300), 700);
    assert_window(&window, Some(999), 1);
    // An output limit as large as the window is ignored.
    assert_window(&window, Some(1_000), 800);
    assert_window(&window, Some(u32::MAX), 800);
    assert_window(&window.clone().with_threshold_percent(50), Some(300), 500);
    assert_window(&window.clone().with_threshold_percent(900), None, 1_000);
    assert_window(&window.with_threshold_percent(0), None, 0);
    assert_window(&Window::new(u64::MAX).with_threshold_percent(100), None, u64::MAX);
    assert_window(&Window::new(0), Some(1), 0);
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
