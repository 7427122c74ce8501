//! Every span ends when the stream of events is dropped, wherever it is dropped.

use futures::{FutureExt, StreamExt};

use crate::scenarios::SCENARIOS;
use crate::trees::start;

#[tokio::test(start_paused = true)]
async fn a_drop_after_any_event_ends_all_spans_with_an_error() {
    let mut drops = 0;
    for scenario in SCENARIOS {
        let (_, events) = start(scenario);
        let length = events.count().await;
        for pulled in 0..=length {
            // The stream is dropped right after an event, and while it waits for the next one.
            for polls_again in [false, true] {
                let (recorder, mut events) = start(scenario);
                for _ in 0..pulled {
                    events.next().await.unwrap().ok();
                }
                if polls_again {
                    let _ = events.next().now_or_never();
                }
                let open = recorder.open_spans();
                drop(events);
                let place = format!("{}, dropped after {pulled} of {length} events", scenario.name);
                assert_eq!(recorder.open_spans(), Vec::<String>::new(), "{place}");
                for name in open {
                    let spans = recorder.spans();
                    let mut ended = spans.iter().filter(|it| it.name == name);
                    let is_marked = ended.any(|it| it.text("error.type").is_some());
                    assert!(is_marked, "{place}: `{name}`");
                }
                drops += 1;
            }
        }
    }
    println!("{drops} drops of {} runs", SCENARIOS.len());
    assert!(drops > 500, "{drops} drops");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_before_its_first_poll_has_no_spans() {
    for scenario in SCENARIOS {
        let (recorder, events) = start(scenario);
        drop(events);
        assert_eq!(recorder.spans().len(), 0, "{}", scenario.name);
    }
}
