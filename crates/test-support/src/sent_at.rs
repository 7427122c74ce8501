//! A world with fixed times.

use turnstream::request::Request;
use turnstream::stream::TurnStream;
use turnstream::tool::ToolRun;
use turnstream::world::{
    Effect, EffectKey, EffectKind, EffectValue, LiveWorld, SendRequest, World,
};

/// The world of a run whose requests are all sent at this time, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct SentAt(pub u64);

impl World for SentAt {
    fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
        match key.kind {
            EffectKind::RequestTime => EffectValue::new(self.0),
            _ => LiveWorld.draw(key, live),
        }
    }

    fn step(&self, key: &EffectKey, effect: Effect) -> Effect {
        LiveWorld.step(key, effect)
    }

    fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream {
        LiveWorld.turn(key, request, ask)
    }

    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun {
        LiveWorld.fan_out(key, calls)
    }
}
