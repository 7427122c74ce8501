//! The offline model: computes a reply from the body of a request.
//!
//! It is deterministic and has no knowledge: its first turn depends on the words of the question,
//! and its second turn on the results of the tools.

mod answer;
mod outside;
mod question;
mod request;
mod words;
mod write;

use std::time::Duration;

use serde_json::{Value, json};
use turnstream::Usage;
use turnstream::provider::Reply;

use answer::OFFLINE_NOTICE;
use outside::OutsideCall;
use question::Intent;
use request::ParsedRequest;
use write::WriteRequest;

/// Returns the reply to a request, given as the JSON body of Anthropic's Messages API. The stream
/// pauses after each word.
pub(crate) fn reply(body: &Value, pause: Duration) -> Reply {
    scripted_turn(body).into_reply(body, pause)
}

fn scripted_turn(body: &Value) -> ScriptedTurn {
    let request = ParsedRequest::parse(body);
    if !request.results.is_empty() {
        let words = answer::answer_from_results(&request.results);
        return ScriptedTurn::new("", &format!("{words}\n\n{OFFLINE_NOTICE}"));
    }
    if request.tool_names.is_empty() {
        let words = "Without tools I cannot look at anything, and I know nothing on my own. Ask me \
                     again without `--no-tools`.";
        return ScriptedTurn::new("There are no tools.", &format!("{words}\n\n{OFFLINE_NOTICE}"));
    }
    let speech = match question::delegated_task(&request.question, &request.tool_names) {
        Some(task) => ScriptedTurn::new("A sub-agent can look this up.", "I'll have it looked up.")
            .with_call(question::RESEARCH_TOOL, json!({ "prompt": task })),
        None => match Intent::parse(&request.question) {
            intent @ (Intent::Search(_) | Intent::Unknown) => {
                match outside::plan_call(&request.question, &request.outside_tools) {
                    Some(call) => plan_outside_call(call),
                    None => plan_first_turn(intent),
                }
            }
            intent => plan_first_turn(intent),
        },
    };
    match speech.calls.iter().find(|(name, _)| !request.tool_names.contains(name)) {
        None => speech,
        Some((name, _)) => {
            let words = format!("For that I would need the tool `{name}`, which I do not have.");
            ScriptedTurn::new("A tool is missing.", &format!("{words}\n\n{OFFLINE_NOTICE}"))
        }
    }
}

/// Returns the text and the calls of the first turn.
fn plan_first_turn(question: Intent) -> ScriptedTurn {
    match question {
        Intent::CountLines { path, extension } => {
            let of = extension.as_deref().map_or(String::new(), |it| format!(" of `.{it}` files"));
            let think =
                format!("This is about the lines{of} in `{path}`. Counting beats guessing.");
            let speech = ScriptedTurn::new(&think, &format!("I'll look at `{path}` and count."));
            let mut input = json!({ "path": path });
            if let Some(extension) = extension {
                input["extension"] = extension.into();
            }
            let is_file = path
                .rsplit('/')
                .next()
                .is_some_and(|name| name.trim_start_matches('.').contains('.'));
            let speech = match is_file {
                true => speech,
                false => speech.with_call("list_directory", json!({ "path": path })),
            };
            speech.with_call("count_lines", input)
        }
        Intent::Calculate(expression) => ScriptedTurn::new(
            "This is a sum. A calculator is better at it.",
            "I'll calculate that.",
        )
        .with_call("calculate", json!({ "expression": expression })),
        Intent::WriteFile(WriteRequest { text, path, is_append: append }) => {
            let mut input = json!({ "path": path, "text": text });
            if append {
                input["append"] = true.into();
            }
            let think = format!("The user wants to write `{path}`, and is asked for approval.");
            ScriptedTurn::new(&think, &format!("I'll write to `{path}`, if I may."))
                .with_call("write_file", input)
        }
        Intent::Search(words) => {
            let list = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let think = format!("I do not know. It may be in the working directory: {list}.");
            let speech = ScriptedTurn::new(&think, &format!("I'll search for {list}."));
            words.iter().fold(speech, |speech, word| {
                speech.with_call("search_text", json!({ "query": word, "path": "." }))
            })
        }
        Intent::Unknown => {
            let words = "That contains nothing to search for. Ask me, for example, how many lines \
                         of Rust are in `src`, where a word occurs, what (2 + 3) * 4 is, or to \
                         write hello to notes.txt.";
            ScriptedTurn::new("There is no keyword.", &format!("{words}\n\n{OFFLINE_NOTICE}"))
        }
    }
}

/// The turn for a question about an MCP server's tool.
fn plan_outside_call(call: OutsideCall) -> ScriptedTurn {
    match call {
        OutsideCall::Ready { tool, input } => {
            let think = format!("I do not know. The description of `{tool}` matches.");
            ScriptedTurn::new(&think, &format!("I'll call `{tool}`, if I may."))
                .with_call(&tool, input)
        }
        OutsideCall::Incomplete { tool, missing } => {
            let words = format!(
                "I would call `{tool}`, but I find no value for its `{missing}` in the question. \
                 I recognize numbers, text in quotes and capitalized names."
            );
            ScriptedTurn::new("A value is missing.", &format!("{words}\n\n{OFFLINE_NOTICE}"))
        }
    }
}

/// One turn of the offline model, as plain data.
#[derive(Debug, PartialEq)]
struct ScriptedTurn {
    reasoning: String,
    text: String,
    calls: Vec<(String, Value)>,
}

impl ScriptedTurn {
    fn new(think: &str, say: &str) -> Self {
        Self { reasoning: think.to_owned(), text: say.to_owned(), calls: Vec::new() }
    }

    fn with_call(mut self, name: &str, input: Value) -> Self {
        self.calls.push((name.to_owned(), input));
        self
    }

    fn into_reply(self, body: &Value, pause: Duration) -> Reply {
        let calls: usize = self.calls.iter().map(|(_, input)| input.to_string().len()).sum();
        let usage = Usage {
            input_tokens: estimate_tokens(body.to_string().len()),
            output_tokens: estimate_tokens(self.reasoning.len() + self.text.len() + calls),
            reasoning_tokens: estimate_tokens(self.reasoning.len()),
            ..Usage::default()
        };
        let reply = words(&self.reasoning, pause)
            .fold(Reply::new(), |reply, word| paused(reply.think(word), pause));
        let reply =
            words(&self.text, pause).fold(reply, |reply, word| paused(reply.say(word), pause));
        self.calls
            .into_iter()
            .fold(reply, |reply, (name, input)| reply.call(&name, input))
            .usage(usage)
    }
}

/// Splits a text into its words, or returns it whole if the pause is zero.
fn words(text: &str, pause: Duration) -> impl Iterator<Item = &str> {
    let end = if pause.is_zero() { '\0' } else { ' ' };
    text.split_inclusive(end)
}

fn paused(reply: Reply, pause: Duration) -> Reply {
    if pause.is_zero() { reply } else { reply.delay(pause) }
}

/// Estimates a token as four bytes.
fn estimate_tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
