//! Every span ends when the stream of events is dropped, wherever it is dropped.

use std::panic::AssertUnwindSafe;

use futures::{FutureExt, StreamExt};
use turnstream::event::{Event, ToolEvent};
use turnstream_otel::TelemetryExt;

use crate::recorder::Recorder;
use crate::scenarios::{agent, answer, model, scenarios};
use crate::trees::{recorded_telemetry, start};

#[tokio::test(start_paused = true)]
async fn a_drop_after_any_event_ends_all_spans_with_an_error() {
    let mut drops = 0;
    for scenario in scenarios() {
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
    println!("{drops} drops of {} runs", scenarios().count());
    assert!(drops > 500, "{drops} drops");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_before_its_first_poll_has_no_spans() {
    for scenario in scenarios() {
        let (recorder, events) = start(scenario);
        drop(events);
        assert_eq!(recorder.spans().len(), 0, "{}", scenario.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_hand_written_loop_ends_all_spans() {
    let recorder = Recorder::default();
    let telemetry = recorded_telemetry(&recorder);
    let run = agent(model([answer("Hello.")])).run("Go.");
    let mut left = 4;
    let panicking = run.inspect(move |_| {
        left -= 1;
        assert!(left > 0, "the loop panics");
    });
    let reading = panicking.with_telemetry(&telemetry).for_each(|_| async {});
    let panicked = AssertUnwindSafe(reading).catch_unwind().await;
    assert!(panicked.is_err());
    assert_eq!(recorder.open_spans(), Vec::<String>::new());
    assert_eq!(recorder.trees(), "invoke_agent !cancelled\n  chat m !cancelled\n");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_starts_again_ends_its_earlier_span() {
    let recorder = Recorder::default();
    let (call_id, name) = ("c1".to_owned(), "look".to_owned());
    let started = ToolEvent::Started { call_id, name, arguments: String::new(), grant_id: None };
    let events = [started.clone(), started].map(|event| Ok(Event::from(event)));
    let events = futures::stream::iter(events).with_telemetry(&recorded_telemetry(&recorder));
    events.collect::<Vec<_>>().await;
    let tree = "invoke_agent\n  execute_tool look !cancelled\n  execute_tool look !cancelled\n";
    assert_eq!((recorder.trees().as_str(), recorder.open_spans().len()), (tree, 0));
}
