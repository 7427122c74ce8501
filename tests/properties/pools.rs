//! A pool grants tokens in order, never more than there are, and every waiting request gets its turn.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;
use turnstream::Usage;
use turnstream::agent::{Pool, ReserveTokens, TokenReservation};

const LIMIT: u64 = 100;

#[derive(Clone, Copy, Debug)]
enum Move {
    /// A request reserves this number of tokens, and is polled.
    Ask(u64),
    /// One of those that wait is polled, woken or not.
    Poll(usize),
    /// One of those that wait goes away.
    Leave(usize),
    /// One that holds tokens uses so many, and gives back the rest.
    Settle(usize, u64),
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        (0_u64..=120).prop_map(Move::Ask),
        (0_usize..8).prop_map(Move::Poll),
        (0_usize..8).prop_map(Move::Leave),
        (0_usize..8, 0_u64..30).prop_map(|(at, used)| Move::Settle(at, used)),
        (0_usize..8).prop_map(|at| Move::Settle(at, 0)),
    ]
}

/// Remembers that it was woken.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Waiting {
    asked: u64,
    future: Pin<Box<ReserveTokens>>,
    bell: Arc<Bell>,
}

/// A pool, those that wait in the order in which they came, and those that hold tokens.
struct World {
    pool: Pool,
    used: u64,
    waiting: Vec<Waiting>,
    held: Vec<(u64, TokenReservation)>,
}

impl World {
    fn sum(&self) -> u64 {
        self.used + self.held.iter().map(|(tokens, _)| tokens).sum::<u64>()
    }

    /// Whether the one in this place may go, beside all that hold tokens or came before it.
    fn may_go(&self, at: usize) -> bool {
        let before: u64 = self.waiting[..at].iter().map(|it| it.asked).sum();
        let is_alone = self.held.is_empty() && at == 0;
        is_alone || self.sum() + before + self.waiting[at].asked <= LIMIT
    }

    fn poll(&mut self, at: usize) {
        let (spent, may_go) = (self.used >= LIMIT, self.may_go(at));
        let waiting = &mut self.waiting[at];
        waiting.bell.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&waiting.bell));
        match waiting.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(reservation)) => {
                assert!(!spent && may_go, "granted out of order, or beside too many");
                assert_eq!(reservation.tokens(), waiting.asked);
                let waiting = self.waiting.remove(at);
                self.held.push((waiting.asked, reservation));
            }
            Poll::Ready(Err(exceeded)) => {
                assert!(spent, "refused while something is left");
                assert_eq!((exceeded.used, exceeded.limit), (self.used, LIMIT));
                self.waiting.remove(at);
            }
            Poll::Pending => assert!(!spent && !may_go, "it waits for nothing"),
        }
    }

    fn act(&mut self, step: Move) {
        let (waiting, held) = (self.waiting.len(), self.held.len());
        match step {
            Move::Ask(tokens) => {
                let future = Box::pin(self.pool.reserve(tokens));
                self.waiting.push(Waiting { asked: tokens, future, bell: Arc::default() });
                self.poll(waiting);
            }
            Move::Poll(at) if waiting > 0 => self.poll(at % waiting),
            Move::Leave(at) if waiting > 0 => drop(self.waiting.remove(at % waiting)),
            Move::Settle(at, used) if held > 0 => {
                let (_, reservation) = self.held.remove(at % held);
                self.pool.charge(Usage { output_tokens: used, ..Usage::default() });
                self.used += used;
                drop(reservation);
            }
            Move::Poll(_) | Move::Leave(_) | Move::Settle(..) => {}
        }
    }

    fn check(&self) {
        assert_eq!(
            (self.pool.used_tokens(), self.pool.used_tokens() + self.pool.reserved_tokens()),
            (self.used, self.sum())
        );
        if let Some(first) = self.waiting.first()
            && (self.used >= LIMIT || self.may_go(0))
        {
            assert!(first.bell.0.load(Ordering::Relaxed), "it is its turn, and it sleeps");
        }
    }
}

proptest! {
    #[test]
    fn tokens_are_granted_in_fifo_order_and_every_granted_waiter_is_woken(
        moves in prop::collection::vec(any_move(), 1..60)
    ) {
        let pool = Pool::new(LIMIT);
        let mut world = World { pool, used: 0, waiting: Vec::new(), held: Vec::new() };
        for step in moves {
            world.act(step);
            world.check();
        }
        // All come to an end when each does what it can once it is woken.
        while !(world.waiting.is_empty() && world.held.is_empty()) {
            let woken = |it: &Waiting| it.bell.0.load(Ordering::Relaxed);
            match world.waiting.iter().position(woken) {
                Some(at) => world.poll(at),
                None => {
                    prop_assert!(!world.held.is_empty(), "those that wait are forgotten");
                    world.act(Move::Settle(0, 7));
                }
            }
            world.check();
        }
        prop_assert_eq!(world.pool.reserved_tokens(), 0);
    }
}
