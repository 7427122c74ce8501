//! The resources and prompts that the server offers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};

#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) uri: String,
    pub(super) name: String,
    pub(super) mime_type: String,
    pub(super) contents: Contents,
}

#[derive(Clone, Debug)]
pub(super) enum Contents {
    Text(String),
    Blob(Bytes),
}

impl Resource {
    pub(super) fn listed(&self) -> Value {
        json!({ "uri": self.uri, "name": self.name, "mimeType": self.mime_type })
    }

    pub(super) fn read(&self) -> Value {
        let mut contents = json!({ "uri": self.uri, "mimeType": self.mime_type });
        match &self.contents {
            Contents::Text(text) => contents["text"] = json!(text),
            Contents::Blob(bytes) => contents["blob"] = json!(STANDARD.encode(bytes)),
        }
        json!({ "contents": [contents] })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) arguments: Vec<String>,
    /// The prompt's text, in which each argument appears as `{name}`.
    pub(super) template: String,
}

impl Prompt {
    pub(super) fn listed(&self) -> Value {
        let argument = |name: &String| json!({ "name": name, "required": true });
        json!({
            "name": self.name,
            "description": self.description,
            "arguments": self.arguments.iter().map(argument).collect::<Vec<_>>(),
        })
    }

    /// Returns the prompt with the arguments filled in. An `Err` names a missing argument.
    pub(super) fn get(&self, arguments: &Map<String, Value>) -> Result<Value, String> {
        let mut text = self.template.clone();
        for name in &self.arguments {
            let Some(value) = arguments.get(name).and_then(Value::as_str) else {
                return Err(format!("the prompt needs the argument `{name}`"));
            };
            text = text.replace(&format!("{{{name}}}"), value);
        }
        let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
        Ok(json!({ "description": self.description, "messages": [message] }))
    }
}
