//! Properties: claims about all inputs, each checked with random cases.
//!
//! | module | the property |
//! |---|---|
//! | `loop_stream` | every form of the loop agrees with a loop over vectors |
//! | `frames` | frames of server-sent events agree with `eventsource-stream`, in any chunks |
//! | `repeated_frames` | a frame that repeats another but for its text is read as the parser reads it |
//! | `any_bytes` | damaged streams break no law, on any wire |
//! | `bodies` | a body is the same turn on every wire, however it is framed and cut |
//! | `anthropic`, `chat`, `gemini`, `ollama`, `openai_responses` | each wire: cuts, noise, stable prefixes |
//! | `encoders` | an encoder's output is accepted by its vendor, for any history |
//! | `encoded_once` | encoding a history in steps yields the same bytes as encoding it at once |
//! | `settle` | settling pairs calls and results of any history |
//! | `tombstones` | what becomes void is never sent, and what stays can be |
//! | `compaction` | a compaction leaves a lawful history lawful |
//! | `sessions` | a session reads back the fold of any events |
//! | `retry`, `fallback` | a run ends once and counts every attempt |
//! | `tool_concurrency` | an exclusive call runs alone and in its order |
//! | `truncate` | clipped content keeps its head, its tail and its media |
//! | `budget` | nudging stops |
//! | `pools` | tokens are granted in order, and each request is woken when it may go |
//! | `json_lines` | JSON lines are the same in any cut |

mod anthropic;
mod any_bytes;
mod bodies;
mod budget;
mod chat;
mod compaction;
mod encoded_once;
mod encoders;
mod fallback;
mod frames;
mod gemini;
mod json_lines;
mod loop_stream;
mod ollama;
mod openai_responses;
mod pools;
mod repeated_frames;
mod retry;
mod sessions;
mod settle;
#[path = "../support/mod.rs"]
mod support;
mod tombstones;
mod tool_concurrency;
mod truncate;
