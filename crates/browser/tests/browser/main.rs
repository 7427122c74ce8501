//! The page of the examples `web` and `fleet` in a real browser, against a model that is controlled
//! by the test.
//!
//! | module | claims |
//! |---|---|
//! | `streams` | text streams in; disconnecting does not stop a run; a page that reconnects has lost nothing |
//! | `approvals` | a call that needs approval is shown exactly, and does not run before it is approved |
//! | `exact_text` | an approver sees every token and every character of a call |
//! | `hostile_words` | a model's text cannot affect the page |
//! | `markdown_limits` | no text of a model can block the page |
//! | `many` | many messages, many tabs, a tab that reads too slowly |
//! | `cluster` | two servers that share their sessions and events act as one |
//! | `fleet` | on Restate, a run continues whichever process is killed |
//! | `growing_form` | the form of the example `growing_form` is filled in while the answer arrives |
//! | `access` | with the keyboard only, on a phone, for a screen reader |
//! | `pictures` | the screenshots of the README |
//!
//! Each test needs a browser, and is ignored without one: `run.sh` installs a browser, starts its
//! driver and runs the tests. Those of `fleet` need a Restate server as well.

#![cfg(unix)]

mod access;
mod approvals;
mod cluster;
mod driver;
mod exact_text;
mod fleet;
mod fleet_process;
mod growing_form;
mod hostile_words;
mod many;
mod markdown_limits;
mod model;
mod page;
mod pictures;
mod server;
mod streams;
