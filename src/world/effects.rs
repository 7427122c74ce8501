//! Passes the effects of a run to its world.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind};
use crate::item::{History, PendingCall};
use crate::lock::lock_ignoring_poison;
use crate::request::Request;
use crate::stream::TurnStream;
use crate::tool::{ToolRun, Verdict};
use crate::world::{EffectKey, EffectKind, EffectValue, SendRequest, World};

/// Creates a key for each effect in a run and passes the effect to the run's world. Clones share
/// the counters that are used for the keys.
#[derive(Clone)]
pub(crate) struct Effects {
    world: Arc<dyn World>,
    run_id: Arc<str>,
    counts: Arc<Mutex<EffectCounts>>,
}

#[derive(Default)]
struct EffectCounts {
    iteration: u32,
    /// The number of effects so far in the current iteration, by kind and name.
    effects: Vec<(EffectKind, Arc<str>, u32)>,
}

impl Effects {
    /// Creates the `Effects` for a run that starts from `history`.
    pub(crate) fn new(world: Arc<dyn World>, history: &History) -> Self {
        let run = format!("{}#{}", history.id(), history.len()).into();
        Self { world, run_id: run, counts: Arc::default() }
    }

    /// Returns the run's world.
    pub(crate) fn world(&self) -> &dyn World {
        &*self.world
    }

    /// Starts a new iteration of the loop.
    pub(crate) fn begin_iteration(&self) {
        let mut counted = lock_ignoring_poison(&self.counts);
        counted.iteration = counted.iteration.saturating_add(1);
        counted.effects.clear();
    }

    /// Returns the number of iterations so far.
    pub(crate) fn iteration(&self) -> u32 {
        lock_ignoring_poison(&self.counts).iteration
    }

    /// Obtains a nondeterministic value from the world without waiting. If a stored value cannot be
    /// deserialized, the default value of its type is returned.
    pub(crate) fn draw<T>(&self, kind: EffectKind, live: impl FnOnce() -> T) -> T
    where
        T: Default + Serialize + DeserializeOwned + Send + 'static,
    {
        if self.world.is_live() {
            return live();
        }
        let mut live = Some(live);
        let mut draw =
            || live.take().map_or_else(EffectValue::empty, |live| EffectValue::new(live()));
        let drawn = self.world.draw(&self.next_key(kind, ""), &mut draw);
        drawn.into_typed().ok().flatten().unwrap_or_default()
    }

    /// Performs an effect that the run's loop requested.
    pub(crate) fn perform<T, F>(
        &self,
        kind: EffectKind,
        effect: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
        T: Default + Serialize + DeserializeOwned + Send + 'static,
    {
        let effect = effect.map(|made| made.map(EffectValue::new)).boxed();
        let performed = self.world.step(&self.next_key(kind, ""), effect);
        async move { Ok(performed.await?.into_typed()?.unwrap_or_default()) }
    }

    /// Runs a step in a custom loop body.
    pub(crate) fn step<T, F>(
        &self,
        name: &str,
        effect: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let effect = effect.map(|made| made.map(EffectValue::new)).boxed();
        let key = self.next_key(EffectKind::Step, name);
        let performed = self.world.step(&key, effect);
        async move {
            performed.await?.into_typed()?.ok_or_else(|| {
                let message = format!("no value was stored for the step `{key}`");
                Error::new(ErrorKind::ReplayMismatch, message)
            })
        }
    }

    /// Sends a request to the model through the world.
    pub(crate) fn turn(&self, request: Request, ask: SendRequest) -> TurnStream {
        self.world.turn(&self.next_key(EffectKind::Turn, ""), request, ask)
    }

    /// Runs a turn's tool calls through the world.
    pub(crate) fn fan_out(&self, calls: ToolRun) -> ToolRun {
        self.world.fan_out(&self.next_key(EffectKind::ToolCalls, ""), calls)
    }

    /// Waits for verdicts on `calls`, for at most `limit` if a limit is given.
    pub(crate) fn suspend(
        &self,
        calls: Vec<PendingCall>,
        limit: Option<Duration>,
    ) -> BoxFuture<'static, Result<Vec<(PendingCall, Verdict)>, Error>> {
        self.world.suspend(&self.next_key(EffectKind::Suspension, ""), calls, limit)
    }

    fn next_key(&self, kind: EffectKind, name: &str) -> EffectKey {
        let mut counted = lock_ignoring_poison(&self.counts);
        let iteration = counted.iteration;
        let known =
            counted.effects.iter_mut().find(|(of, called, _)| *of == kind && **called == *name);
        let (name, nth) = match known {
            Some((_, name, nth)) => {
                *nth = nth.saturating_add(1);
                (Arc::clone(name), *nth)
            }
            None => {
                let name: Arc<str> = name.into();
                counted.effects.push((kind, Arc::clone(&name), 1));
                (name, 1)
            }
        };
        EffectKey { run: Arc::clone(&self.run_id), iteration, kind, name, nth }
    }
}

impl_debug!(Effects(it), run = it.run_id);

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::world::{Effect, LiveWorld};

    /// Logs the keys of effects.
    #[derive(Debug, Default)]
    struct KeyLog(Mutex<Vec<String>>);

    impl World for Arc<KeyLog> {
        fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
            lock_ignoring_poison(&self.0).push(key.to_string());
            LiveWorld.draw(key, live)
        }

        fn step(&self, key: &EffectKey, effect: Effect) -> Effect {
            lock_ignoring_poison(&self.0).push(key.to_string());
            LiveWorld.step(key, effect)
        }

        fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream {
            LiveWorld.turn(key, request, ask)
        }

        fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun {
            LiveWorld.fan_out(key, calls)
        }
    }

    #[test]
    fn effects_of_one_kind_and_name_are_counted_in_each_iteration() {
        let noting = Arc::new(KeyLog::default());
        let history = History::from_items("h", [crate::item::Item::user("hi")]);
        let effects = Effects::new(Arc::new(Arc::clone(&noting)), &history);
        effects.draw(EffectKind::Id, || "first".to_owned());
        for _ in 0..2 {
            effects.begin_iteration();
            for name in ["a", "b", "a"] {
                block_on(effects.step(name, async { Ok(1) })).unwrap();
            }
            effects.draw(EffectKind::Id, String::new);
        }
        let keys = lock_ignoring_poison(&noting.0).join(" ");
        assert_eq!(
            keys,
            "h#1/0/id/1 h#1/1/step:a/1 h#1/1/step:b/1 h#1/1/step:a/2 h#1/1/id/1 \
             h#1/2/step:a/1 h#1/2/step:b/1 h#1/2/step:a/2 h#1/2/id/1",
        );
    }

    #[test]
    fn an_effect_that_is_not_polled_is_not_performed() {
        let effects = Effects::new(Arc::new(LiveWorld), &History::empty("h"));
        let performed = Arc::new(Mutex::new(false));
        let perform = Arc::clone(&performed);
        drop(effects.step("a", async move {
            *lock_ignoring_poison(&perform) = true;
            Ok(())
        }));
        assert!(!*lock_ignoring_poison(&performed));
    }
}
