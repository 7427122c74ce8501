//! The world of an ordinary run.

use crate::request::Request;
use crate::stream::TurnStream;
use crate::tool::ToolRun;
use crate::world::{Ask, Effect, Key, Value, World};

/// The world of an ordinary run: every effect is performed, and nothing is kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

impl World for Live {
    fn draw(&self, _key: &Key, live: &mut dyn FnMut() -> Value) -> Value {
        live()
    }

    fn step(&self, _key: &Key, effect: Effect) -> Effect {
        effect
    }

    fn turn(&self, _key: &Key, request: Request, ask: Ask) -> TurnStream {
        ask(request)
    }

    fn fan_out(&self, _key: &Key, calls: ToolRun) -> ToolRun {
        calls
    }
}
