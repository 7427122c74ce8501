//! What the agent's loop goes over.

use crate::event::{Reason, Transition};
use crate::item::History;

/// The state between two turns: a plain value, replaced whole.
#[derive(Clone, Debug)]
pub struct State {
    /// All that was said. At each boundary it equals the journal's.
    pub history: History,
    /// How many requests were sent. The cap counts these.
    pub model_calls: u32,
    /// How many turns led to a next turn by their tools.
    pub turn_count: u32,
    /// How many replies in a row could not be used.
    pub malformed: u32,
    /// Whether the model was asked again after a stop reason that is not understood.
    pub asked_again: bool,
    /// Why the loop went on last.
    pub transition: Option<Transition>,
    /// Why the loop is over.
    pub ending: Option<Reason>,
}

impl State {
    /// Begins with a history.
    pub fn new(history: History) -> Self {
        Self {
            history,
            model_calls: 0,
            turn_count: 0,
            malformed: 0,
            asked_again: false,
            transition: None,
            ending: None,
        }
    }
}
