//! Wires: how requests are encoded and responses decoded, on every wire and on each of them.
//!
//! | module | claims |
//! |---|---|
//! | `anthropic` | the Messages wire |
//! | `openai_chat` | the Chat Completions wire and its dialects |
//! | `openai_responses` | the Responses wire |
//! | `gemini` | the Gemini wire |
//! | `ollama` | Ollama's own wire |
//! | `guide_table` | the guide's tables of options, content and media that each wire supports |
//! | `guide_schemas` | every vendor accepts the schemas in the docs and the examples |
//! | `secrets_and_timeouts` | over HTTP: no error shows a secret, and time limits apply |
//! | `failures` | the error that each vendor's failure becomes, one test per wording |
//! | `size_limits` | a turn with too many items is an error, returned without delay |
//! | `phantom_calls` | no call runs unless its arguments are known in full |
//! | `any_field` | a field with an unexpected value does not fail the turn, with few exceptions |
//! | `handoff` | a history moves from one wire's model to another wire's model |
//! | `request_options` | the exact JSON of options that not every wire has |
//! | `vendor_rules` | names, ids, schemas and server tools obey the rules of the server they go to |
//! | `unsupported_parts` | images and files that a wire cannot send never make a conversation unusable |
//! | `corpus` | recorded streams are decoded as the vendors' SDKs decode them |
//! | `transport` | caches, transforms, frames that are split anywhere |
//! | `on_each_wire` | cases that apply to every wire |

mod anthropic;
mod any_field;
mod corpus;
#[cfg(feature = "http")]
mod failures;
mod gemini;
mod guide_schemas;
mod guide_table;
mod handoff;
mod ollama;
mod on_each_wire;
mod openai_chat;
mod openai_responses;
mod phantom_calls;
mod request_options;
#[cfg(feature = "http")]
mod secrets_and_timeouts;
mod size_limits;
mod transport;
#[cfg(feature = "http")]
mod unsupported_parts;
#[cfg(feature = "http")]
mod vendor_rules;
