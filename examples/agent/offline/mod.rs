//! The brain of the offline model: given the body of a request, what it says.
//!
//! It has no knowledge and no luck: its first turn follows from the words of the question, its
//! second one from what the tools returned.

mod answer;
mod asked;
mod question;
mod write;

use serde_json::{Value, json};
use turnstream::Usage;
use turnstream::provider::Reply;

use asked::Asked;
use question::Question;
use write::Write;

const WHO: &str = "I am the offline model: my words are scripted, the tool results are real.";

/// What the offline model says to a request, given the JSON body of Anthropic's Messages API.
pub(crate) fn reply(body: &Value) -> Reply {
    speech(body).into_reply(body)
}

fn speech(body: &Value) -> Speech {
    let asked = Asked::read(body);
    if !asked.results.is_empty() {
        let words = answer::answer(&asked.results);
        return Speech::new("", &format!("{words}\n\n{WHO}"));
    }
    if asked.tools.is_empty() {
        let words = "Without tools I cannot look at anything, and I know nothing by myself. Ask me \
                     again without `--no-tools`.";
        return Speech::new("There are no tools.", &format!("{words}\n\n{WHO}"));
    }
    let speech = plan(Question::understand(&asked.question));
    match speech.calls.iter().find(|(name, _)| !asked.tools.contains(name)) {
        None => speech,
        Some((name, _)) => {
            let words = format!("For that I would need the tool `{name}`, which I do not have.");
            Speech::new("A tool is missing.", &format!("{words}\n\n{WHO}"))
        }
    }
}

/// What it says first, and what it calls.
fn plan(question: Question) -> Speech {
    match question {
        Question::Lines { path, extension } => {
            let of = extension.as_deref().map_or(String::new(), |it| format!(" of `.{it}` files"));
            let think =
                format!("This is about the lines{of} in `{path}`. Counting beats guessing.");
            let speech = Speech::new(&think, &format!("I'll look at `{path}` and count."));
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
                false => speech.call("list_directory", json!({ "path": path })),
            };
            speech.call("count_lines", input)
        }
        Question::Sum(expression) => {
            Speech::new("This is a sum. A calculator is better at it.", "I'll calculate that.")
                .call("calculate", json!({ "expression": expression }))
        }
        Question::Write(Write { text, path, append }) => {
            let mut input = json!({ "path": path, "text": text });
            if append {
                input["append"] = true.into();
            }
            let think = format!("The user wants `{path}` written, and is asked before it is.");
            Speech::new(&think, &format!("I'll write to `{path}`, if I may."))
                .call("write_file", input)
        }
        Question::Words(words) => {
            let list = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let think = format!("I do not know. The working directory may: {list}.");
            let speech = Speech::new(&think, &format!("I'll search for {list}."));
            words.iter().fold(speech, |speech, word| {
                speech.call("search_text", json!({ "query": word, "path": "." }))
            })
        }
        Question::Nothing => {
            let words = "There is nothing in that to search for. Ask me for example how many lines \
                         of Rust are in `src`, where a word stands, what (2 + 3) * 4 is, or to write \
                         hello to notes.txt.";
            Speech::new("No word to go by.", &format!("{words}\n\n{WHO}"))
        }
    }
}

/// One turn of the offline model, as plain data.
#[derive(Debug, PartialEq)]
struct Speech {
    think: String,
    say: String,
    calls: Vec<(String, Value)>,
}

impl Speech {
    fn new(think: &str, say: &str) -> Self {
        Self { think: think.to_owned(), say: say.to_owned(), calls: Vec::new() }
    }

    fn call(mut self, name: &str, input: Value) -> Self {
        self.calls.push((name.to_owned(), input));
        self
    }

    fn into_reply(self, body: &Value) -> Reply {
        let calls: usize = self.calls.iter().map(|(_, input)| input.to_string().len()).sum();
        let usage = Usage {
            input_tokens: tokens(body.to_string().len()),
            output_tokens: tokens(self.think.len() + self.say.len() + calls),
            reasoning_tokens: tokens(self.think.len()),
            ..Usage::default()
        };
        let reply = match self.think.as_str() {
            "" => Reply::new(),
            think => Reply::new().think(think),
        };
        let reply = reply.say(&self.say);
        self.calls
            .into_iter()
            .fold(reply, |reply, (name, input)| reply.call(&name, input))
            .usage(usage)
    }
}

/// Four bytes are about a token.
fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
