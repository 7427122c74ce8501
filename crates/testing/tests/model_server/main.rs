//! The model server and its lints.
//!
//! | module | claims |
//! |---|---|
//! | `wires` | the bytes of an answer on each wire, with each fault, without a network |
//! | `server` | requests and answers over the loopback device |
//! | `corpus` | the lints accept the requests that vendors accepted |

mod corpus;
mod server;
mod wires;
