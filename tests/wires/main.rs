//! Wires: how requests are encoded and responses decoded, on every wire and on each of them.
//!
//! | module | claims |
//! |---|---|
//! | `anthropic` | the Messages wire |
//! | `chat`, `openai_chat` | the Chat Completions wire and its dialects |
//! | `openai_responses` | the Responses wire |
//! | `gemini` | the Gemini wire |
//! | `table` | the guide's table of options and content that each wire carries |
//! | `edges` | unusual servers and histories, secrets in errors, timeouts |
//! | `failures` | the error that each vendor's failure becomes, one test per wording |
//! | `overfull` | a turn with too many items is an error, returned without delay |
//! | `phantom` | no call runs unless its arguments are known in full |
//! | `any_bytes`, `any_field` | damaged bytes and unexpected values on any wire |
//! | `handoff` | a history moves from one wire's model to another wire's model |
//! | `encoded_once` | encoding a history in steps yields the same bytes as encoding it at once |
//! | `testing_encoders`, `testing_corpus` | the lints of `testing` accept what a vendor accepts |
//! | `testing_wires`, `testing_server` | the loopback server, without and with a network |
//! | `corpus` | recorded streams are decoded as the vendors' SDKs decode them |

mod anthropic;
mod any_bytes;
mod any_field;
mod chat;
mod corpus;
mod edges;
mod encoded_once;
#[cfg(feature = "http")]
mod failures;
mod gemini;
mod handoff;
mod openai_chat;
mod openai_responses;
mod overfull;
mod phantom;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod testing_corpus;
mod testing_encoders;
mod testing_server;
mod testing_wires;
