//! A pool grants tokens in order, never more than it has, and every waiting request is granted
//! eventually.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;
use proptest::prelude::*;
use turnstream::Usage;
use turnstream::agent::{Pool, TokenReservation};
use turnstream::event::BudgetExceeded;

const LIMIT_TOKENS: u64 = 100;

#[derive(Clone, Copy, Debug)]
enum PoolAction {
    /// A request reserves this number of tokens, and is polled.
    Reserve(u64),
    /// A waiting request is polled, woken or not.
    Poll(usize),
    /// A waiting request is dropped.
    Cancel(usize),
    /// A request with tokens uses some of them, and returns the rest.
    Settle(usize, u64),
}

fn any_action() -> impl Strategy<Value = PoolAction> {
    prop_oneof![
        (0_u64..=120).prop_map(PoolAction::Reserve),
        (0_usize..8).prop_map(PoolAction::Poll),
        (0_usize..8).prop_map(PoolAction::Cancel),
        (0_usize..8, 0_u64..30).prop_map(|(at, used)| PoolAction::Settle(at, used)),
        (0_usize..8).prop_map(|at| PoolAction::Settle(at, 0)),
    ]
}

/// Records that it was woken.
#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct PendingReservation {
    tokens: u64,
    future: BoxFuture<'static, Result<TokenReservation, BudgetExceeded>>,
    wake_flag: Arc<WakeFlag>,
}

/// A pool, the waiting requests in order of arrival, and the requests with tokens.
struct PoolModel {
    pool: Pool,
    used_tokens: u64,
    pending: Vec<PendingReservation>,
    granted: Vec<(u64, TokenReservation)>,
}

impl PoolModel {
    fn committed_tokens(&self) -> u64 {
        self.used_tokens + self.granted.iter().map(|(tokens, _)| tokens).sum::<u64>()
    }

    /// Whether the request at this position can be granted, given all granted and earlier requests.
    fn is_grantable(&self, at: usize) -> bool {
        let before: u64 = self.pending[..at].iter().map(|it| it.tokens).sum();
        let is_alone = self.granted.is_empty() && at == 0;
        is_alone || self.committed_tokens() + before + self.pending[at].tokens <= LIMIT_TOKENS
    }

    fn poll_pending(&mut self, at: usize) {
        let (spent, may_go) = (self.used_tokens >= LIMIT_TOKENS, self.is_grantable(at));
        let waiting = &mut self.pending[at];
        waiting.wake_flag.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&waiting.wake_flag));
        match waiting.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(reservation)) => {
                assert!(!spent && may_go, "granted out of order, or with too many in flight");
                let waiting = self.pending.remove(at);
                self.granted.push((waiting.tokens, reservation));
            }
            Poll::Ready(Err(exceeded)) => {
                assert!(spent, "refused while something is left");
                assert_eq!((exceeded.used, exceeded.limit), (self.used_tokens, LIMIT_TOKENS));
                self.pending.remove(at);
            }
            Poll::Pending => assert!(!spent && !may_go, "it waits for nothing"),
        }
    }

    fn apply_action(&mut self, step: PoolAction) {
        let (waiting, held) = (self.pending.len(), self.granted.len());
        match step {
            PoolAction::Reserve(tokens) => {
                let future = Box::pin(self.pool.reserve(tokens));
                self.pending.push(PendingReservation { tokens, future, wake_flag: Arc::default() });
                self.poll_pending(waiting);
            }
            PoolAction::Poll(at) if waiting > 0 => self.poll_pending(at % waiting),
            PoolAction::Cancel(at) if waiting > 0 => drop(self.pending.remove(at % waiting)),
            PoolAction::Settle(at, used) if held > 0 => {
                let (_, reservation) = self.granted.remove(at % held);
                self.pool.charge(Usage { output_tokens: used, ..Usage::default() });
                self.used_tokens += used;
                drop(reservation);
            }
            PoolAction::Poll(_) | PoolAction::Cancel(_) | PoolAction::Settle(..) => {}
        }
    }

    fn check_pool(&self) {
        assert_eq!(
            (self.pool.used_tokens(), self.pool.used_tokens() + self.pool.reserved_tokens()),
            (self.used_tokens, self.committed_tokens())
        );
        if let Some(first) = self.pending.first()
            && (self.used_tokens >= LIMIT_TOKENS || self.is_grantable(0))
        {
            assert!(first.wake_flag.0.load(Ordering::Relaxed), "it is its turn, and it sleeps");
        }
    }
}

proptest! {
    #[test]
    fn tokens_are_granted_in_fifo_order_and_every_granted_waiter_is_woken(
        moves in prop::collection::vec(any_action(), 1..60)
    ) {
        let pool = Pool::new(LIMIT_TOKENS);
        let mut world = PoolModel { pool, used_tokens: 0, pending: Vec::new(), granted: Vec::new() };
        for step in moves {
            world.apply_action(step);
            world.check_pool();
        }
        // All requests end if each acts once it is woken.
        while !(world.pending.is_empty() && world.granted.is_empty()) {
            let woken = |it: &PendingReservation| it.wake_flag.0.load(Ordering::Relaxed);
            match world.pending.iter().position(woken) {
                Some(at) => world.poll_pending(at),
                None => {
                    prop_assert!(!world.granted.is_empty(), "those that wait are forgotten");
                    world.apply_action(PoolAction::Settle(0, 7));
                }
            }
            world.check_pool();
        }
        prop_assert_eq!(world.pool.reserved_tokens(), 0);
    }
}
