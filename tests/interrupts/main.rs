//! The ways to stop a run: interrupts in each phase, a stop after the turn, a drop.
//!
//! | module | cases |
//! |---|---|
//! | `interrupt` | an interrupt, in every phase |
//! | `interrupt_turn` | an interrupt of the model that lets the tools finish |
//! | `interrupt_races` | an interrupt that coincides with failures, sub-agents, approvals |
//! | `interrupt_during_waits` | an interrupt during a wait, and the notifications of hooks at the end |
//! | `stop_and_drop` | a stop, a drop, a consumer that pauses |

mod interrupt;
mod interrupt_during_waits;
mod interrupt_races;
mod interrupt_turn;
mod stop_and_drop;
