//! Timers that use the runtime's clock, if timers are enabled in the runtime.

use std::cell::Cell;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep};

thread_local! {
    /// The most recent runtime on this thread that was found to have no timers.
    static WITHOUT_TIME: Cell<Option<Id>> = const { Cell::new(None) };
}

/// A timer, together with the id of the runtime that drives it.
#[derive(Debug)]
struct Timer {
    sleep: Pin<Box<Sleep>>,
    runtime: Id,
}

impl Timer {
    /// Creates a timer that fires at `at`. Returns `None` outside of a tokio runtime, or if timers
    /// are not enabled in the runtime.
    fn try_new(at: Instant) -> Option<Self> {
        // `sleep_until` panics without a runtime or without timers. A missing runtime can be
        // checked for, but missing timers can only be detected by catching the panic.
        let runtime = current_runtime()?;
        let sleep = catch_unwind(|| Box::pin(tokio::time::sleep_until(at))).ok();
        WITHOUT_TIME.set(sleep.is_none().then_some(runtime));
        Some(Self { sleep: sleep?, runtime })
    }
}

/// Returns the id of the current runtime.
fn current_runtime() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

/// Returns whether the current runtime is known to have no timers. Without this check, each attempt
/// to create a timer would cause a panic, which would be printed by the process's panic hook.
fn is_time_disabled() -> bool {
    let known = WITHOUT_TIME.get();
    known.is_some() && known == current_runtime()
}

/// Returns the instant at which a wait that starts at `from` ends, or `None` if that instant is too
/// far in the future to need a timer.
pub(crate) fn instant_after(from: Instant, wait: Duration) -> Option<Instant> {
    (wait < FAR_FUTURE).then(|| from.checked_add(wait)).flatten()
}

/// The shortest wait for which no timer is created, because the wait ends too far in the future.
const FAR_FUTURE: Duration = Duration::from_hours(24 * 365);

/// The maximum duration of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeLimit {
    /// A default limit of this crate, which is ignored if the runtime has no timers.
    Default(Duration),
    /// A limit set by the user. If the runtime has no timers, the operation fails.
    Explicit(Duration),
}

impl TimeLimit {
    /// Returns the explicit limit, or the default if `explicit` is `None`.
    pub(crate) fn explicit_or(explicit: Option<Duration>, default: Duration) -> Self {
        explicit.map_or(Self::Default(default), Self::Explicit)
    }

    pub(crate) fn duration(self) -> Duration {
        match self {
            Self::Default(limit) | Self::Explicit(limit) => limit,
        }
    }
}

/// Ends a wait once a time limit has expired. The first poll that has to wait creates the timer.
#[derive(Debug)]
pub(crate) struct Deadline {
    limit: TimeLimit,
    /// The instant at which the deadline expires. `None` if it never expires.
    expires_at: Option<Instant>,
    timer: Option<Timer>,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadlineOutcome {
    /// The time limit has expired.
    TimeUp,
    /// The limit is explicit, but the runtime has no timers to enforce it.
    NoTimer,
}

impl Deadline {
    /// Creates a deadline whose time limit starts now.
    pub(crate) fn new(limit: TimeLimit) -> Self {
        Self::starting_at(Instant::now(), limit)
    }

    /// Creates a deadline whose time limit starts now, and creates its timer immediately. Returns
    /// `None` if the runtime has no timers.
    pub(crate) fn try_start(time: Duration) -> Option<Self> {
        let mut deadline = Self::new(TimeLimit::Explicit(time));
        if let Some(at) = deadline.expires_at {
            deadline.timer = Some(Timer::try_new(at)?);
        }
        Some(deadline)
    }

    /// Creates a deadline whose time limit starts at `from`.
    pub(crate) fn starting_at(from: Instant, limit: TimeLimit) -> Self {
        Self { limit, expires_at: instant_after(from, limit.duration()), timer: None }
    }

    /// Returns whether the deadline has expired. This check needs no timer.
    pub(crate) fn is_over(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= Instant::now())
    }

    /// Extends the deadline by `pause`. An existing timer still fires at the original time, and is
    /// then reset.
    pub(crate) fn extend(&mut self, pause: Duration) {
        self.expires_at = self.expires_at.and_then(|at| at.checked_add(pause));
    }

    /// Waits until the deadline has expired.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<DeadlineOutcome> {
        let Some(at) = self.expires_at else { return Poll::Pending };
        if self.is_over() {
            return Poll::Ready(DeadlineOutcome::TimeUp);
        }
        // In another runtime, a new timer is needed, because the original runtime may no longer be
        // running.
        self.timer.take_if(|timer| Some(timer.runtime) != current_runtime());
        let is_default = matches!(self.limit, TimeLimit::Default(_));
        if self.timer.is_none() && !(is_default && is_time_disabled()) {
            self.timer = Timer::try_new(at);
        }
        let Some(Timer { sleep, .. }) = &mut self.timer else {
            return match self.limit {
                TimeLimit::Default(_) => Poll::Pending,
                TimeLimit::Explicit(_) => Poll::Ready(DeadlineOutcome::NoTimer),
            };
        };
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= at {
                return Poll::Ready(DeadlineOutcome::TimeUp);
            }
            sleep.as_mut().reset(at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::future::poll_fn;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn poll_once(limit: TimeLimit) -> Poll<DeadlineOutcome> {
        let mut deadline = Deadline::new(limit);
        block_on(poll_fn(|cx| Poll::Ready(deadline.poll(cx))))
    }

    #[test]
    fn without_a_runtime_a_default_limit_is_ignored_and_an_explicit_one_fails() {
        assert_eq!(poll_once(TimeLimit::Default(LIMIT)), Poll::Pending);
        assert_eq!(poll_once(TimeLimit::Explicit(LIMIT)), Poll::Ready(DeadlineOutcome::NoTimer));
        assert_eq!(poll_once(TimeLimit::Explicit(Duration::MAX)), Poll::Pending);
        assert_eq!(
            poll_once(TimeLimit::Explicit(Duration::ZERO)),
            Poll::Ready(DeadlineOutcome::TimeUp)
        );
        assert!(Deadline::try_start(LIMIT).is_none());
    }

    #[test]
    fn a_runtime_without_time_has_no_timers() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let limits = [TimeLimit::Default(LIMIT), TimeLimit::Explicit(LIMIT)];
        let polled =
            runtime.block_on(async { limits.map(|limit| poll_once_here(limit).is_ready()) });
        assert_eq!(polled, [false, true]);
    }

    #[test]
    fn a_runtime_without_timers_is_probed_once_for_default_limits() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        static PANICS: AtomicUsize = AtomicUsize::new(0);
        let (here, before) = (std::thread::current().id(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| match std::thread::current().id() == here {
            true => drop(PANICS.fetch_add(1, Ordering::Relaxed)),
            false => before(panic),
        }));
        for runtime in 1..=2 {
            let of_runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            of_runtime.block_on(async {
                for _ in 0..100 {
                    assert_eq!(poll_once_here(TimeLimit::Default(LIMIT)), Poll::Pending);
                }
            });
            assert_eq!(PANICS.load(Ordering::Relaxed), runtime);
        }
    }

    #[test]
    fn a_deadline_fires_in_another_runtime_if_its_own_is_idle_or_dropped() {
        let runtime = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_time().start_paused(true).build().unwrap()
        };
        let (first, gone, second) = (runtime(), runtime(), runtime());
        let mut deadlines = [&first, &gone].map(|runtime| {
            runtime.block_on(async {
                let mut deadline = Deadline::try_start(LIMIT).unwrap();
                assert!(poll_fn(|cx| Poll::Ready(deadline.poll(cx).is_pending())).await);
                deadline
            })
        });
        drop(gone);
        for deadline in &mut deadlines {
            assert_eq!(second.block_on(poll_fn(|cx| deadline.poll(cx))), DeadlineOutcome::TimeUp);
        }
        drop(first);
    }

    fn poll_once_here(limit: TimeLimit) -> Poll<DeadlineOutcome> {
        let mut deadline = Deadline::new(limit);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        deadline.poll(&mut cx)
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_fires_at_its_time_and_can_be_extended() {
        let mut deadline = Deadline::new(TimeLimit::Default(LIMIT));
        let began = Instant::now();
        assert!(poll_fn(|cx| Poll::Ready(deadline.poll(cx).is_pending())).await);
        deadline.extend(LIMIT);
        assert_eq!(poll_fn(|cx| deadline.poll(cx)).await, DeadlineOutcome::TimeUp);
        assert_eq!(began.elapsed(), 2 * LIMIT);
        assert!(deadline.is_over());
    }
}
