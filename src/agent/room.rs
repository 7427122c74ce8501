//! How the agent keeps its history shorter than the model's window.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::agent::{Parts, State};
use crate::context::{self, Compaction, CompactionFailure, Compactor, Window};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, RewrittenWhy};
use crate::item::History;
use crate::usage::Usage;

impl Parts {
    /// Makes the history shorter before a request that nears the [window](crate::Agent::with_window).
    /// Call it until it is `None`, which says that the request is to be sent.
    ///
    /// Hooks are told of a compaction that came to nothing. It is tried again when the request has
    /// grown by a twentieth of the window.
    pub async fn make_room(&self, state: &mut State) -> Option<Event> {
        let agent = self.agent();
        let (window, compactor) = (agent.window.as_ref()?, agent.compactor.as_ref()?);
        let request = agent.request(&state.history);
        let estimate = window.estimate(&request);
        let limit = window.limit(&request.options);
        if estimate <= limit.max(state.compact_above) {
            return None;
        }
        let guess = window.guess(&request);
        let step = window.tokens() / 20;
        state.compact_above = estimate.saturating_add(step);
        // Boxed, so that it takes no room in the body for all of the lap.
        let made = Box::pin(self.made(&**compactor, &state.history, |compaction, history| {
            let compaction = context::recorded(compaction, history);
            let left = self.guess_behind(window, &compaction, history);
            match left < guess {
                true => Ok(compaction),
                false => Err(longer()),
            }
        }));
        let made = made.await;
        if let Ok(Some(compaction)) = &made {
            let left = self.guess_behind(window, compaction, &state.history);
            let now = corrected(left, estimate, guess);
            let is_enough = now <= limit;
            // Another compaction may follow at once, where one has helped.
            let goes_on = guess.saturating_sub(left) >= step.max(1);
            state.compact_above = match is_enough || goes_on {
                true => 0,
                false => now.saturating_add(step),
            };
        }
        self.told(state, made)
    }

    /// Makes a history shorter that did not fit, which then [says so](context::was_compacted). `None`,
    /// or an event that replaces nothing, says that it cannot be; hooks are told why.
    pub async fn compact(&self, state: &mut State) -> Option<Event> {
        let compactor = self.agent().compactor.as_ref()?;
        let made = Box::pin(self.made(&**compactor, &state.history, |compaction, history| {
            Ok(context::reactive(compaction, history))
        }));
        let made = made.await;
        if let Ok(Some(_)) = &made {
            state.compact_above = 0;
        }
        self.told(state, made)
    }

    /// Asks for a compaction that can be used.
    async fn made(
        &self,
        compactor: &dyn Compactor,
        history: &History,
        finish: impl Fn(Compaction, &History) -> Result<Compaction, Error>,
    ) -> Result<Option<Compaction>, Error> {
        let limit = self.agent().compactor_timeout;
        let Some(compaction) = within(limit, || compactor.compact(history)).await? else {
            return Ok(None);
        };
        let usage = compaction.usage;
        let finished = finish(compaction, history).and_then(|compaction| {
            compaction.check(history)?;
            Ok(Some(compaction))
        });
        finished.map_err(|error| CompactionFailure::wrap(error, usage))
    }

    fn guess_behind(&self, window: &Window, compaction: &Compaction, history: &History) -> u64 {
        let mut shorter = history.clone();
        compaction.apply(&mut shorter);
        window.guess(&self.agent().request(&shorter))
    }

    /// Rewrites the history, and tells what came of it.
    fn told(&self, state: &mut State, made: Result<Option<Compaction>, Error>) -> Option<Event> {
        let why = RewrittenWhy::Compacted;
        match made {
            Ok(compaction) => {
                let compaction = compaction?;
                self.pay(state, compaction.usage, compaction.model.as_deref());
                compaction.apply(&mut state.history);
                let Compaction { from, to, items, usage, model: _ } = compaction;
                Some(Event::Rewritten { why, from, to, items, usage })
            }
            Err(error) => {
                self.agent().hooks.failure(state, &error);
                let usage = CompactionFailure::usage_of(&error);
                self.pay(state, usage, None);
                let paid = usage != Usage::default();
                paid.then(|| Event::Rewritten { why, from: 0, to: 0, items: Vec::new(), usage })
            }
        }
    }

    /// What comes on top next is counted at the price of the model that has made the compaction, or
    /// else of the agent's.
    fn pay(&self, state: &State, usage: Usage, model: Option<&str>) {
        if usage == Usage::default() {
            return;
        }
        let budget = &self.agent().budget;
        let price = |model: &str| budget.price_of(model).ok().flatten();
        let price = model.and_then(price).or_else(|| price(self.provider(state).model()));
        // What was used until here was the last model's.
        self.spent(state);
        if price.is_some() {
            self.control().set_price(price);
        }
    }
}

/// A guess, made larger by as much as the last one was too low.
fn corrected(guess: u64, counted: u64, guessed: u64) -> u64 {
    let ratio = |by: u64| u128::from(guess) * u128::from(by) / u128::from(guessed.max(1));
    u64::try_from(ratio(counted.max(guessed))).unwrap_or(u64::MAX)
}

/// Waits for a compaction for at most `limit`. The timer is made when the first poll was pending.
async fn within(
    limit: Duration,
    ask: impl FnOnce() -> BoxFuture<'static, Result<Option<Compaction>, Error>>,
) -> Result<Option<Compaction>, Error> {
    let mut answer = caught(ask)?;
    let mut timer = None;
    let given = poll_fn(|cx| match caught(|| answer.as_mut().poll(cx)) {
        Ok(Poll::Ready(given)) => Poll::Ready(given),
        Ok(Poll::Pending) => {
            let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
            timer.as_mut().poll(cx).map(|()| Err(late(limit)))
        }
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await;
    // Code of the compactor also runs when its future is dropped.
    caught(|| drop(answer)).and(given)
}

/// Runs code of the compactor; a panic is an error.
fn caught<T>(f: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| Error::panic("the compactor", &*payload))
}

fn late(limit: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("the compactor took longer than {limit:?}"))
}

fn longer() -> Error {
    let what = "the compaction cannot be used: the history would not get shorter";
    Error::new(ErrorKind::InvalidRequest, what)
}
