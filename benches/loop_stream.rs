//! The cost of an item that passes through the loop: 1,000 turns of 1,000 ready items.
//!
//! `cargo bench -p turnstream-properties --bench loop_stream`

use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use divan::Bencher;
use divan::counter::ItemsCount;
use futures::executor::block_on;
use futures::{Stream, StreamExt};
use pin_project::pin_project;

use turnstream::stream::{Step, loop_over, loop_stream, loop_with_state};

const TURN_COUNT: u64 = 1000;
const ITEMS_PER_TURN: u64 = 1000;

fn main() {
    divan::main();
}

/// About as large as a turn event.
struct Item(u64, #[expect(dead_code, reason = "only its size counts")] [u64; 3]);

/// One turn: a number of ready items, and then the next step.
struct Turn {
    index: u64,
    emitted_count: u64,
}

impl Turn {
    fn new(n: u64) -> Self {
        Self { index: n, emitted_count: 0 }
    }
}

impl Stream for Turn {
    type Item = Step<Item, u64>;

    #[inline]
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let said = self.emitted_count;
        self.emitted_count += 1;
        Poll::Ready(match said {
            0..ITEMS_PER_TURN => Some(Step::Value(Item(black_box(said), [said; 3]))),
            ITEMS_PER_TURN if self.index + 1 < TURN_COUNT => Some(Step::Next(self.index + 1)),
            ITEMS_PER_TURN => Some(Step::Stop),
            _ => None,
        })
    }
}

/// Polls a stream to its end.
fn bench_drain<S: Stream<Item = Item>>(bencher: Bencher, make: impl Fn() -> S + Sync) {
    bencher.counter(ItemsCount::new(TURN_COUNT * ITEMS_PER_TURN)).bench(|| {
        let sum = block_on(async {
            // Dynamic dispatch: if the stream were inlined, its items might be optimized away.
            let mut items: Pin<&mut dyn Stream<Item = Item>> = pin!(make());
            let mut sum = 0;
            while let Some(Item(n, _)) = items.next().await {
                sum += n;
            }
            sum
        });
        assert_eq!(sum, TURN_COUNT * (ITEMS_PER_TURN * (ITEMS_PER_TURN - 1) / 2));
    });
}

/// The minimal loop: it catches no panics, reports no end, and never yields to the executor.
#[pin_project]
struct HandwrittenLoop<F, B, S> {
    make_body: F,
    state: Option<S>,
    #[pin]
    body: Option<B>,
}

impl<F, B, S, A> Stream for HandwrittenLoop<F, B, S>
where
    F: FnMut(S) -> B,
    B: Stream<Item = Step<A, S>>,
{
    type Item = A;

    #[inline]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<A>> {
        let mut this = self.project();
        loop {
            if let Some(body) = this.body.as_mut().as_pin_mut() {
                match ready!(body.poll_next(cx)) {
                    Some(Step::Value(value)) => return Poll::Ready(Some(value)),
                    Some(Step::Next(state)) => {
                        this.body.set(None);
                        *this.state = Some(state);
                    }
                    Some(Step::Stop | Step::StopWith(_)) | None => {
                        this.body.set(None);
                        return Poll::Ready(None);
                    }
                }
            }
            let Some(state) = this.state.take() else { return Poll::Ready(None) };
            this.body.set(Some((this.make_body)(state)));
        }
    }
}

#[divan::bench]
fn handwritten_loop(bencher: Bencher) {
    bench_drain(bencher, || HandwrittenLoop { make_body: Turn::new, state: Some(0), body: None });
}

#[divan::bench(name = "loop_stream")]
fn with_loop_stream(bencher: Bencher) {
    bench_drain(bencher, || loop_stream(0, Turn::new));
}

#[divan::bench(name = "loop_stream_of_boxed_bodies")]
fn with_boxed_bodies(bencher: Bencher) {
    bench_drain(bencher, || loop_stream(0, |n| Turn::new(n).boxed()));
}

#[divan::bench(name = "loop_with_state")]
fn with_loop_with_state(bencher: Bencher) {
    bench_drain(bencher, || loop_with_state(0, Turn::new).0);
}

#[divan::bench(name = "loop_over")]
fn with_loop_over(bencher: Bencher) {
    bench_drain(bencher, || loop_over(futures::stream::repeat(()), 0, |n, ()| Turn::new(n)));
}

#[divan::bench]
fn async_stream(bencher: Bencher) {
    bench_drain(bencher, || {
        async_stream::stream! {
            let mut n = 0;
            'turns: loop {
                let mut turn = Turn::new(n);
                while let Some(step) = turn.next().await {
                    match step {
                        Step::Value(item) => yield item,
                        Step::Next(next) => {
                            n = next;
                            continue 'turns;
                        }
                        Step::Stop | Step::StopWith(_) => return,
                    }
                }
                return;
            }
        }
    });
}
