//! A stream in a task of its own: how far it runs ahead, the effects of a pause and of a drop, and
//! its end.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;

use futures::executor::block_on;
use futures::stream::{FusedStream, poll_fn};
use futures::{FutureExt, Stream, StreamExt, stream};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use turnstream::event::{EndReason, ToolEvent};
use turnstream::provider::{Reply, Scripted};
use turnstream::task::{InTask, InTaskExt};
use turnstream::tool::Tool;
use turnstream::{Agent, Error, ErrorKind, Event};

use turnstream_test_support::tools::spec;

type Item = Result<usize, Error>;

fn non_zero(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

/// Counts from 0 without end, and counts its polls.
fn counting_stream(read: &Arc<AtomicUsize>) -> impl Stream<Item = Item> + Send + 'static {
    let read = Arc::clone(read);
    stream::repeat_with(move || Ok(read.fetch_add(1, Ordering::Relaxed)))
}

/// Sends a text when it is dropped.
struct DropNotifier(mpsc::Sender<&'static str>);

impl Drop for DropNotifier {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

/// Adds a guard to a stream, which sends a text on drop.
fn notify_on_drop<T>(
    stream: impl Stream<Item = T> + Send + 'static,
) -> (impl Stream<Item = T> + Send + 'static, mpsc::Receiver<&'static str>) {
    let (sender, dropped) = mpsc::channel();
    let guard = DropNotifier(sender);
    let stream = stream.map(move |item| {
        let _ = &guard;
        item
    });
    (stream, dropped)
}

fn two_thread_runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// Lets the task run for as long as it wants to.
async fn yield_repeatedly() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

async fn collect_rest(stream: InTask<usize>) -> Vec<Result<usize, ErrorKind>> {
    stream.map(|item| item.map_err(|error| error.kind())).collect().await
}

#[tokio::test]
async fn the_stream_is_at_most_n_items_ahead() {
    for n in [1, 2, 7, 100] {
        let read = Arc::new(AtomicUsize::new(0));
        let mut items = counting_stream(&read).in_task(non_zero(n));
        yield_repeatedly().await;
        assert_eq!(read.load(Ordering::Relaxed), 0, "nothing happens before the first poll");
        for pulled in 1..=20 {
            assert_eq!(items.next().await, Some(Ok(pulled - 1)));
            assert!(read.load(Ordering::Relaxed) <= pulled + n);
            yield_repeatedly().await;
            assert_eq!(read.load(Ordering::Relaxed), pulled + n);
            assert_eq!(items.size_hint(), (n, None));
        }
    }
}

#[tokio::test]
async fn an_always_ready_stream_does_not_starve_other_tasks() {
    let read = Arc::new(AtomicUsize::new(0));
    let mut items = counting_stream(&read).in_task(NonZeroUsize::MAX);
    assert_eq!(items.next().await, Some(Ok(0)));
    tokio::task::yield_now().await;
    assert!(read.load(Ordering::Relaxed) < 10_000);
}

#[test]
fn item_order_is_preserved_across_threads() {
    let runtime = two_thread_runtime();
    for n in [1, 3, 64] {
        let items = stream::iter((0..5_000).map(Ok)).in_task(non_zero(n));
        // On the test's own thread, so that the two ends wait for each other.
        let _inside = runtime.enter();
        let items: Vec<Item> = block_on(items.collect());
        assert!(items.into_iter().map(Result::unwrap).eq(0..5_000));
    }
}

#[tokio::test]
async fn an_error_is_an_item_like_any_other() {
    let broken = || Err(Error::new(ErrorKind::Server, "broken"));
    let items = stream::iter([Ok(1), broken(), Ok(2)]).in_task(non_zero(1));
    assert_eq!(collect_rest(items).await, [Ok(1), Err(ErrorKind::Server), Ok(2)]);
}

#[tokio::test]
async fn the_stream_is_dropped_before_none_and_none_repeats() {
    let (items, dropped) = notify_on_drop(stream::iter([Ok(1)]));
    let mut items = items.in_task(non_zero(4));
    assert_eq!(items.next().await, Some(Ok(1)));
    assert!(!items.is_terminated());
    assert_eq!(items.next().await, None);
    assert_eq!(dropped.try_recv(), Ok("dropped"));
    assert!(items.is_terminated());
    assert_eq!(items.next().await, None);
}

#[tokio::test]
async fn a_drop_synchronously_drops_the_stream_and_buffered_items() {
    let item = Arc::new(());
    let copy = Arc::clone(&item);
    let (items, dropped) = notify_on_drop(stream::repeat_with(move || Ok(Arc::clone(&copy))));
    let mut items = items.in_task(non_zero(3));
    items.next().await.unwrap().unwrap();
    yield_repeatedly().await;
    assert_eq!(Arc::strong_count(&item), 2 + 3);
    drop(items);
    assert_eq!(dropped.try_recv(), Ok("dropped"));
    assert_eq!(Arc::strong_count(&item), 1);
}

#[tokio::test]
async fn a_drop_before_the_first_poll_drops_the_stream() {
    let (items, dropped) = notify_on_drop(stream::pending::<Item>());
    drop(items.in_task(non_zero(1)));
    assert_eq!(dropped.try_recv(), Ok("dropped"));
}

#[tokio::test]
async fn a_drop_ends_the_task() {
    let mut items = stream::pending::<Item>().in_task(non_zero(1));
    assert!(items.next().now_or_never().is_none());
    yield_repeatedly().await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(alive(), 1);
    drop(items);
    yield_repeatedly().await;
    assert_eq!(alive(), 0);
}

#[test]
fn a_drop_during_a_poll_makes_it_the_last_poll() {
    let runtime = two_thread_runtime();
    let (inside, outside) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (entered, left) = (Arc::clone(&inside), Arc::clone(&outside));
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    let (items, dropped) = notify_on_drop(stream::repeat_with(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        entered.wait();
        left.wait();
        Ok(0)
    }));
    let mut items = items.in_task(non_zero(9));
    let _inside = runtime.enter();
    assert!(items.next().now_or_never().is_none());
    inside.wait();
    drop(items);
    assert!(dropped.try_recv().is_err(), "it is in use");
    outside.wait();
    assert_eq!(dropped.recv(), Ok("dropped"));
    assert_eq!(polls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_stream_may_drop_its_own_consumer() {
    let place: Arc<Mutex<Option<InTask<usize>>>> = Arc::default();
    let inside = Arc::clone(&place);
    let (items, dropped) = notify_on_drop(poll_fn(move |_| {
        let consumer = inside.lock().unwrap().take();
        drop(consumer);
        Poll::Ready(Some(Ok(1)))
    }));
    let mut items = items.in_task(non_zero(1));
    assert!(items.next().now_or_never().is_none());
    *place.lock().unwrap() = Some(items);
    yield_repeatedly().await;
    assert_eq!(dropped.try_recv(), Ok("dropped"));
}

#[tokio::test]
async fn a_panic_is_the_last_item_after_buffered_ones() {
    let (items, dropped) = notify_on_drop(stream::iter(0..9).map(|n| match n {
        2 => resume_unwind(Box::new("boom")),
        n => Ok(n),
    }));
    let mut items = items.in_task(non_zero(5));
    assert_eq!(items.next().await, Some(Ok(0)));
    assert_eq!(items.next().await, Some(Ok(1)));
    let error = items.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panic);
    assert_eq!(error.to_string(), "the stream panicked: boom");
    assert_eq!(dropped.try_recv(), Ok("dropped"));
    assert_eq!(items.next().await, None);
}

/// Panics when it is dropped.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        resume_unwind(Box::new("boom"));
    }
}

#[tokio::test]
async fn a_panic_in_the_drop_of_a_finished_stream_loses_no_item() {
    let bomb = PanicOnDrop;
    let items = stream::iter([Ok(1), Ok(2)]).map(move |item| {
        let _ = &bomb;
        item
    });
    assert_eq!(collect_rest(items.in_task(non_zero(1))).await, [Ok(1), Ok(2)]);
}

#[test]
fn outside_a_runtime_the_first_poll_panics_and_loses_nothing() {
    let mut items = stream::iter([Ok(1)]).in_task(non_zero(1));
    assert!(catch_unwind(AssertUnwindSafe(|| items.next().now_or_never())).is_err());
    let runtime = Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(collect_rest(items)), [Ok(1)]);
}

#[test]
fn the_shutdown_of_the_runtime_is_reported_as_an_error() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let (items, dropped) = notify_on_drop(stream::iter([Ok(1)]).chain(stream::pending()));
    let mut items = items.in_task(non_zero(2));
    assert_eq!(runtime.block_on(items.next()), Some(Ok(1)));
    drop(runtime);
    assert_eq!(dropped.try_recv(), Ok("dropped"));
    assert_eq!(block_on(collect_rest(items)), [Err(ErrorKind::Other)]);
}

/// An agent with a model that calls a tool, and the tool, which takes a second and then increments
/// a counter.
fn slow_tool_agent(done: &Arc<AtomicUsize>) -> Agent {
    let done = Arc::clone(done);
    let tool = Tool::raw(spec("t"), move |_, _| {
        let done = Arc::clone(&done);
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            done.fetch_add(1, Ordering::Relaxed);
            "fine"
        }
    });
    let replies = [Reply::new().call("t", json!({})), "done".into()];
    Agent::new(Scripted::new(replies)).with_tools([tool.unwrap()])
}

/// Pulls until a tool runs, then pauses for a minute.
async fn pause_at_tool_start(events: &mut (impl Stream<Item = Result<Event, Error>> + Unpin)) {
    while let Some(event) = events.next().await {
        if let Event::Tool(ToolEvent::Started { .. }) = event.unwrap() {
            break;
        }
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
}

#[tokio::test(start_paused = true)]
async fn tools_continue_while_the_consumer_pauses() {
    let done = Arc::new(AtomicUsize::new(0));
    let mut run = slow_tool_agent(&done).run("go");
    pause_at_tool_start(&mut run).await;
    assert_eq!(done.load(Ordering::Relaxed), 0, "without a task they pause");

    let run = slow_tool_agent(&done).run("go");
    let handle = run.handle();
    let mut events = run.in_task(non_zero(100));
    pause_at_tool_start(&mut events).await;
    assert_eq!(done.load(Ordering::Relaxed), 1);
    assert_eq!(handle.history().len(), 4, "all was said meanwhile");
    let last = events.collect::<Vec<_>>().await.pop().unwrap().unwrap();
    assert_eq!(last.outcome().unwrap().reason, EndReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_run_in_a_task_can_be_interrupted() {
    let done = Arc::new(AtomicUsize::new(0));
    let run = slow_tool_agent(&done).run("go");
    let handle = run.handle();
    let mut events = run.in_task(non_zero(1));
    while !matches!(events.next().await, Some(Ok(Event::Tool(_)))) {}
    handle.interrupt();
    let last = events.collect::<Vec<_>>().await.pop().unwrap().unwrap();
    assert!(matches!(last.outcome().unwrap().reason, EndReason::Interrupted(_)));
    assert_eq!(done.load(Ordering::Relaxed), 0);
}
