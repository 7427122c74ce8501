//! Hard cases of an agent's loop, from the terminal marker on: what ends a turn, what bounds a run,
//! and what a history must be. Each name begins with the number of its case.

mod bytes;
mod ending;
mod heard;
mod history;
mod kit_b;
mod limits;
mod repair;
mod terminal;
