//! A model without a key: its words are scripted, and the calls of its tools are real.

use std::time::Duration;

use serde_json::json;
use turnstream::Request;
use turnstream::provider::{Reply, Scripted};

/// The pause between two words. It is long, so that there is time to kill a process.
const PAUSE: Duration = Duration::from_millis(200);

const NOTICE: &str =
    "I am a scripted model: my words come from a script, the tool results are real.";

pub(crate) fn model() -> Scripted {
    Scripted::from_fn(|request, _| reply(request))
}

/// Calls tools for a question, and repeats their last result.
fn reply(request: &Request) -> Reply {
    // The question, and the last result since.
    let (mut question, mut result) = (String::new(), None);
    for item in request.history.newest_first() {
        if let Some(content) = item.as_user() {
            question = content.text();
            break;
        }
        result = result.or_else(|| item.as_tool_result().map(|result| result.content.text()));
    }
    if let Some(result) = result {
        return say(Reply::new(), &format!("{result}\n\n{NOTICE}"));
    }
    match Question::parse(&question) {
        Question::Write { text, path } => {
            say(Reply::new(), &format!("I'll write to `{path}`, if I may."))
                .call("write_file", json!({ "path": path, "text": text }))
        }
        Question::Count { path } => say(Reply::new(), &format!("I'll look at `{path}` and count."))
            .call("list_directory", json!({ "path": path }))
            .call("count_lines", json!({ "path": path })),
        Question::Other => {
            let help = "Ask me how many lines are in a folder, for example in `src`, or to write \
                 hello to notes.txt.";
            say(Reply::new(), &format!("{help}\n\n{NOTICE}"))
        }
    }
}

/// Adds text word by word.
fn say(reply: Reply, text: &str) -> Reply {
    text.split_inclusive(' ').fold(reply, |reply, word| reply.say(word).delay(PAUSE))
}

#[derive(Debug, PartialEq)]
enum Question<'a> {
    /// "write hello to notes.txt"
    Write {
        text: &'a str,
        path: &'a str,
    },
    /// "how many lines are in src?"
    Count {
        path: &'a str,
    },
    Other,
}

impl<'a> Question<'a> {
    fn parse(question: &'a str) -> Self {
        let written = question.strip_prefix("write ").and_then(|rest| rest.rsplit_once(" to "));
        if let Some((text, path)) = written {
            return Self::Write { text, path: path.trim() };
        }
        let mut words = question.split_whitespace().map(|word| word.trim_matches([',', '?', '`']));
        match (question.contains("lines"), words.rfind(|word| is_folder(word))) {
            (true, Some(path)) => Self::Count { path },
            _ => Self::Other,
        }
    }
}

/// Whether the word names a folder in the working directory.
fn is_folder(word: &str) -> bool {
    std::path::Path::new(word).is_dir()
}
