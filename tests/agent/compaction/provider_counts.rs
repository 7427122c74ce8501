//! An agent that asks its provider to count the tokens of a request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, pending, ready};
use serde_json::json;
use turnstream::context::{Compaction, Window, compactor_fn};
use turnstream::item::{ItemFlag, Part, ProviderData, RawJson, TurnInfo};
use turnstream::provider::{Provider, Scripted};
use turnstream::replay::{Recorder, Recording};
use turnstream::stream::TurnStream;
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, History, Item, Request, Usage};

use super::{compaction_order, failure_log_hook, run_to_end};
use turnstream_test_support::buffer::SharedBuffer;

/// A scripted provider that counts tokens.
#[derive(Clone)]
struct Counting {
    model: Scripted,
    counts: Arc<AtomicUsize>,
    answer: Arc<dyn Fn(usize) -> BoxFuture<'static, Result<u64, Error>> + Send + Sync>,
}

impl Counting {
    fn new(
        answer: impl Fn(usize) -> BoxFuture<'static, Result<u64, Error>> + Send + Sync + 'static,
    ) -> Self {
        let model = Scripted::new(["Fine."]);
        Self { model, counts: Arc::default(), answer: Arc::new(answer) }
    }

    fn count(&self) -> usize {
        self.counts.load(Ordering::Relaxed)
    }
}

impl Provider for Counting {
    fn stream_turn(&self, request: Request) -> TurnStream {
        self.model.stream_turn(request)
    }

    fn model(&self) -> &str {
        self.model.model()
    }

    fn count_tokens(&self, _request: &Request) -> Option<BoxFuture<'static, Result<u64, Error>>> {
        Some((self.answer)(self.counts.fetch_add(1, Ordering::Relaxed)))
    }
}

/// A history of about 5,000 tokens.
fn long_history() -> History {
    let turn = |n: usize| {
        let call = Item::reasoning("x".repeat(2_000));
        [Item::user(format!("Question {n}")), call, Item::text("So.")]
    };
    History::from_items("h", (0..10).flat_map(turn))
}

/// An agent that forgets the first half of a long history.
fn agent(model: &Counting, window: Window) -> Agent {
    let forget = compactor_fn(|history: &History| {
        Ok((history.len() > 20)
            .then(|| Compaction::new(0, 15, vec![Item::user("There was more.")])))
    });
    Agent::new(model.clone()).with_window(window.with_provider_counts()).with_compactor(forget)
}

#[tokio::test]
async fn the_count_of_the_provider_decides_whether_the_history_is_compacted() {
    // The estimate is below the threshold of 8,000 tokens.
    let model = Counting::new(|n| ready(Ok(if n == 0 { 9_000 } else { 100 })).boxed());
    let (events, outcome) =
        run_to_end(agent(&model, Window::new(10_000)).run_from(long_history(), "Go")).await;
    assert_eq!(compaction_order(&events), "ct");
    assert_eq!((model.count(), outcome.error), (2, None), "and once after the compaction");

    // The estimate is above the threshold, and the count is below.
    let model = Counting::new(|_| ready(Ok(100)).boxed());
    let (events, _) =
        run_to_end(agent(&model, Window::new(5_000)).run_from(long_history(), "Go")).await;
    assert_eq!((compaction_order(&events).as_str(), model.count()), ("t", 1));
}

#[tokio::test]
async fn a_request_far_below_the_threshold_is_not_counted() {
    let model = Counting::new(|_| ready(Ok(1)).boxed());
    run_to_end(agent(&model, Window::new(100_000)).run("Hi")).await;
    assert_eq!(model.count(), 0);
    let model = Counting::new(|_| ready(Ok(1)).boxed());
    let unasked = Agent::new(model.clone()).with_window(Window::new(5_000));
    run_to_end(unasked.run_from(long_history(), "Go")).await;
    assert_eq!(model.count(), 0, "the estimate is the default");
}

#[tokio::test]
async fn a_request_with_media_that_no_usage_covers_is_counted_however_short_it_seems() {
    let picture = || Item::user(vec![Part::image("image/png", b"png")]);
    let turn = |input_tokens: u64| {
        let usage = Usage { input_tokens, ..Usage::default() };
        let stop_reason = StopReason::Stop;
        let (model, response_id) = (None, None);
        Item::text("So.").with_turn_info(TurnInfo { usage, model, response_id, stop_reason })
    };
    // The usage of the first turn is older than the compaction, whatever happened to later turns.
    let record = json!({ "compaction": "summary", "stale_turns": 1 });
    let (provider, model, value) = ("turnstream".to_owned(), String::new(), RawJson::from(record));
    let data = ProviderData { provider, model, value };
    let note = Item { provider_data: Some(data.into()), ..Item::user("Note") };
    let note = note.with_flag(ItemFlag::Compacted);
    for (items, expected) in [
        (vec![note, picture(), turn(9), turn(9).with_flag(ItemFlag::Tombstone)], 1),
        (vec![picture()], 1),
        (vec![picture(), turn(0)], 1),
        (vec![picture(), turn(9)], 0),
        (vec![picture(), turn(9), picture()], 1),
        (vec![picture().with_flag(ItemFlag::Tombstone)], 0),
        (vec![Item::user("Hello"), turn(0)], 0),
    ] {
        let model = Counting::new(|_| ready(Ok(1)).boxed());
        let history = History::from_items("h", items.clone());
        run_to_end(agent(&model, Window::new(100_000)).run_from(history, "Go")).await;
        assert_eq!(model.count(), expected, "{items:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_count_the_estimate_is_used_and_a_failure_is_reported() {
    let failed = |_| ready(Err(Error::new(ErrorKind::Server, "down"))).boxed();
    let hangs = |_| pending().boxed();
    let panics = |_| -> BoxFuture<'static, Result<u64, Error>> { panic!("no count") };
    for (model, kind) in [
        (Counting::new(failed), ErrorKind::Server),
        (Counting::new(hangs), ErrorKind::Timeout),
        (Counting::new(panics), ErrorKind::Panic),
    ] {
        let (seen, hook) = failure_log_hook();
        let agent = agent(&model, Window::new(5_000)).with_hook(hook);
        let (events, outcome) = run_to_end(agent.run_from(long_history(), "Go")).await;
        assert!(compaction_order(&events).starts_with('c'), "{kind:?}");
        assert_eq!(outcome.error, None);
        assert_eq!(seen.lock().unwrap().first(), Some(&kind));
        assert_eq!(model.count(), 1, "a provider that has failed is not asked again");
    }
}

#[tokio::test]
async fn a_recorded_count_is_replayed_without_a_request() {
    let model = Counting::new(|n| ready(Ok(if n == 0 { 9_000 } else { 100 })).boxed());
    let agent = agent(&model, Window::new(10_000));
    let page = SharedBuffer::new();
    let recorded = agent.clone().with_recorder(&Recorder::to_writer(page.clone()));
    let (events, _) = run_to_end(recorded.run_from(long_history(), "Go")).await;
    let text = page.text();
    assert!(
        text.contains(r#""kind":"token_count""#) && text.contains(r#""tokens":9000"#),
        "{text}"
    );
    let asked = model.count();
    let recording = Recording::from_text(&text).unwrap();
    let replayed: Vec<_> = futures::StreamExt::collect(futures::StreamExt::map(
        recording.replay(&agent),
        Result::unwrap,
    ))
    .await;
    assert_eq!(replayed, events);
    assert_eq!(model.count(), asked, "the replay counts nothing");
}

#[tokio::test]
async fn dropping_the_run_drops_the_count() {
    struct Flag(Arc<Mutex<bool>>);
    impl Drop for Flag {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = true;
        }
    }
    let dropped = Arc::new(Mutex::new(false));
    let flag = dropped.clone();
    let model = Counting::new(move |_| {
        let flag = Flag(flag.clone());
        async move {
            let _flag = flag;
            pending().await
        }
        .boxed()
    });
    let mut run = agent(&model, Window::new(5_000)).run_from(long_history(), "Go");
    while model.count() == 0 {
        assert!(run.next().now_or_never().is_none_or(|event| event.is_some_and(|it| it.is_ok())));
    }
    assert!(!*dropped.lock().unwrap());
    drop(run);
    assert!(*dropped.lock().unwrap());
}
