//! The Chat Completions wire, complete: what servers send, what each dialect of a request looks
//! like, and the laws that hold for all of them.

mod answers;
mod calls;
mod encode;
mod fixture;
mod options;
mod reasoning;

use self::fixture::*;
