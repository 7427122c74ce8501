//! Properties: claims about all inputs, each checked with random cases.
//!
//! | module | the property |
//! |---|---|
//! | `loop_stream` | every form of the loop agrees with a loop over vectors |
//! | `frames` | frames of server-sent events agree with `eventsource-stream`, in any chunks |
//! | `repeated_frames` | a frame that differs from the previous one only in a text is read as the parser reads it |
//! | `any_bytes` | damaged streams violate no invariant, on any wire |
//! | `bodies` | a body decodes to the same turn on every wire, however it is framed and split |
//! | `anthropic`, `chat`, `gemini`, `ollama`, `openai_responses` | each wire: splits, noise, stable prefixes |
//! | `encoders` | an encoder's output is accepted by its vendor, for any history |
//! | `encoded_once` | encoding a history in steps yields the same bytes as encoding it in one step |
//! | `settle` | settling pairs calls and results of any history |
//! | `tombstones` | tombstoned items are never sent, and the remaining ones can be |
//! | `compaction` | a compaction keeps a valid history valid |
//! | `sessions` | a session reads back the fold of any events |
//! | `retry`, `fallback` | a run ends once and counts every attempt |
//! | `tool_concurrency` | an exclusive call runs alone and in its order |
//! | `truncate` | truncated content keeps its head, its tail and its media |
//! | `pools` | tokens are granted in order, and each request is woken when it can be granted |
//! | `hub_log` | a hub's log yields to each reader the entries that were written |
//! | `json_lines` | JSON lines are the same in any split |
//! | `partials` | JSON that has not ended begins like the whole, and ends equal to it, in any split |

mod anthropic;
mod any_bytes;
mod bodies;
mod chat;
mod compaction;
mod encoded_once;
mod encoders;
mod fallback;
mod frames;
mod gemini;
mod hub_log;
mod json_lines;
mod loop_stream;
mod ollama;
mod openai_responses;
mod partials;
mod pools;
mod repeated_frames;
mod retry;
mod sessions;
mod settle;
mod tombstones;
mod tool_concurrency;
mod truncate;
