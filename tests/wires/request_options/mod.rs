//! The exact JSON of options that not every wire has: what is sent on the wires that have the
//! option, and the error on those that lack it.

use serde_json::{Value, json};
use turnstream::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use turnstream::request::ToolSpec;
use turnstream::{Error, ErrorKind, History, Item, Request};

mod citations;
mod files;
mod logprobs;
mod options_table;
#[cfg(feature = "http")]
mod sdk_requests;
mod server_tools;
mod settings;
mod strict_tools;

/// A wire, with the model to which its requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    Messages,
    Chat,
    CompatibleChat,
    Responses,
    Gemini,
    Ollama,
}

const WIRES: [Wire; 6] =
    [Wire::Messages, Wire::Chat, Wire::CompatibleChat, Wire::Responses, Wire::Gemini, Wire::Ollama];

impl Wire {
    fn encode(self, request: &Request) -> Result<Value, Error> {
        self.encode_for_model(request, None)
    }

    /// Encodes a request to one of OpenAI's models, if the wire has them.
    fn encode_for_model(self, request: &Request, model: Option<&str>) -> Result<Value, Error> {
        let gpt = model.filter(|model| model.starts_with("gpt")).unwrap_or("gpt-5.1");
        let body = match self {
            Self::Messages => anthropic::encode(request, "claude-sonnet-4-5"),
            Self::Chat => openai_chat::encode(request, gpt, &openai_chat::Dialect::OPENAI),
            Self::CompatibleChat => {
                openai_chat::encode(request, "any", &openai_chat::Dialect::MINIMAL)
            }
            Self::Responses => openai_responses::encode(request, gpt),
            Self::Gemini => gemini::encode(request, "gemini-3-pro"),
            Self::Ollama => ollama::encode(request, "qwen3", &ollama::Chat::default()),
        }?;
        Ok(serde_json::from_slice(&body).expect("a body is JSON"))
    }
}

/// A request with a single message.
fn hello() -> Request {
    Request::new(History::from_items("h", [Item::user("hello")]))
}

/// A tool with one required argument.
fn look_up() -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": { "word": { "type": "string" } },
        "required": ["word"],
    });
    ToolSpec::new("look_up", "Looks up a word", parameters)
}

/// Checks that the body contains `expected` in place of the fields of the same names on the wires
/// in `expected`, and that all other wires report that they cannot express `parameter`.
#[track_caller]
fn check(request: &Request, parameter: &str, expected: &[(Wire, Value)]) {
    for wire in WIRES {
        let Some((_, fields)) = expected.iter().find(|(known, _)| *known == wire) else {
            let error = wire.encode(request).expect_err(&format!("{wire:?} lacks {parameter}"));
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{wire:?}: {error}");
            assert_eq!(error.parameter(), Some(parameter), "{wire:?}: {error}");
            continue;
        };
        let body = wire.encode(request).unwrap_or_else(|error| panic!("{wire:?}: {error}"));
        for (name, value) in fields.as_object().expect("the expected fields are an object") {
            assert_eq!(&body[name], value, "{wire:?}: {name}");
        }
    }
}
