//! The world of an ordinary run.

use crate::request::Request;
use crate::stream::TurnStream;
use crate::tool::ToolRun;
use crate::world::{Effect, EffectKey, EffectValue, SendRequest, World};

/// The world of an ordinary run. It performs every effect and stores nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveWorld;

impl World for LiveWorld {
    fn is_live(&self) -> bool {
        true
    }

    fn draw(&self, _key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
        live()
    }

    fn step(&self, _key: &EffectKey, effect: Effect) -> Effect {
        effect
    }

    fn turn(&self, _key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream {
        ask(request)
    }

    fn fan_out(&self, _key: &EffectKey, calls: ToolRun) -> ToolRun {
        calls
    }
}
