//! A program that kills a process in the middle of a session, again and again, and checks whether
//! anything was lost or done twice.
//!
//! The program starts itself as a child process that continues an endless session and prints a line
//! for each item that its runs report, and kills the child at a random moment. Each printed item
//! must be in the store, and a tool that is not idempotent must not have run twice for one call.
//! Failures do not end the campaign. The last line has the number of kills, lost items and
//! duplicates; the exit code is 0 if nothing was lost or duplicated.

mod check;
mod child;
mod location;
mod parent;
mod program;
mod store_kind;

pub use check::assert_nothing_lost;
pub use location::SESSION_ID;
pub use program::run;
pub use store_kind::StoreKind;
