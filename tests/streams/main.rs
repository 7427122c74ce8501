//! Streams: the loop, the scripted model that drives it in tests, and the adapters of a run's
//! events.
//!
//! | module | claims |
//! |---|---|
//! | `loop_stream` | the contract of `loop_stream`, `loop_over`, `loop_with_state` and `on_turn_complete` |
//! | `stop_after_turn` | a run stops after a turn on request, and can be resumed |
//! | `in_task` | how far ahead a stream in its own task runs, and the effects of a pause and a drop |
//! | `journal` | the journal folds a run's events: sub-agents, evidence, pending calls |
//! | `partials` | values that have not ended: what is yielded when, and how each value ends |
//! | `supervise` | many runs as one stream: events, ends, restarts, silence, and drops |
//! | `recover` | a loop continues after an error of one kind |
//! | `scripted` | the scripted model signs, hides and refuses like a real one |

mod in_task;
mod journal;
mod loop_stream;
#[cfg(feature = "schemars")]
mod partials;
mod recover;
mod script;
mod scripted;
mod stop_after_turn;
mod supervise;
