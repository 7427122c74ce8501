//! Handles the requests that a server sends during a call: questions to the user, requests to a
//! model, and requests for folders.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use turnstream::agent::Agent;
use turnstream::http::reqwest::Url;

/// A question from a server to the user, for example about a choice or a missing value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Elicitation {
    /// The name of the server that asks the question.
    pub server: String,
    /// The question, in the server's own words. Show the user both the question and the name of the
    /// server that asks it.
    pub message: String,
    /// The form that the answer must take.
    pub form: ElicitationForm,
}

/// The form that the answer to an [`Elicitation`] must take.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitationForm {
    /// The answer is an object that matches this flat JSON Schema.
    Fields(Value),
    /// The server asks the user to open this address instead of filling in a form. Do not open the
    /// address without the user's consent.
    Url(String),
}

/// The user's answer to an [`Elicitation`], which is sent to the server. The call that asked the
/// question then continues.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationAnswer {
    /// The user accepts. The value is an object that matches the form, or `null` if the server
    /// asked the user to open an address. Missing fields are set to the form's default values.
    Accept(Value),
    /// The user declines to answer.
    Decline,
    /// The user dismisses the question without making a choice.
    Cancel,
}

pub(crate) type ElicitationFn =
    dyn Fn(Elicitation) -> BoxFuture<'static, ElicitationAnswer> + Send + Sync;

/// The functions that answer a server's requests. If the function for a request is not set, an
/// elicitation is declined and any other request is answered with an error.
#[derive(Clone, Default)]
pub(crate) struct Answerers {
    pub(crate) elicitation: Option<Arc<ElicitationFn>>,
    pub(crate) sampling: Option<Agent>,
    pub(crate) roots: Option<Vec<PathBuf>>,
}

impl Answerers {
    /// Returns the client capabilities to declare to a server.
    pub(crate) fn capabilities(&self) -> Value {
        let mut capabilities = Map::new();
        if self.elicitation.is_some() {
            capabilities.insert("elicitation".to_owned(), json!({ "form": {}, "url": {} }));
        }
        if self.sampling.is_some() {
            capabilities.insert("sampling".to_owned(), json!({}));
        }
        if self.roots.is_some() {
            capabilities.insert("roots".to_owned(), json!({}));
        }
        Value::Object(capabilities)
    }

    /// Returns the answer to a `roots/list` request, or `None` if the server may not request the
    /// folders.
    pub(crate) fn roots_answer(&self) -> Option<Value> {
        let root = |folder: &PathBuf| json!({ "uri": file_url(folder), "name": file_name(folder) });
        let roots = self.roots.as_ref()?.iter().map(root).collect::<Vec<_>>();
        Some(json!({ "roots": roots }))
    }

    /// Passes a server's question to the function that asks the user. The question is declined if
    /// no such function is set or the function panics.
    pub(crate) fn ask_user(&self, server: &str, params: &Value) -> BoxFuture<'static, Value> {
        let Some(hook) = self.elicitation.clone() else {
            return futures::future::ready(answer_of(ElicitationAnswer::Decline)).boxed();
        };
        let text = |field: &str| params[field].as_str().map(str::to_owned);
        let schema = params["requestedSchema"].clone();
        let form = match text("url").filter(|_| params["mode"] == "url") {
            Some(url) => ElicitationForm::Url(url),
            None => ElicitationForm::Fields(schema.clone()),
        };
        let message = text("message").unwrap_or_default();
        let elicitation = Elicitation { server: server.to_owned(), message, form };
        async move {
            let answer = AssertUnwindSafe(async { hook(elicitation).await }).catch_unwind().await;
            answer_of(match answer {
                Ok(ElicitationAnswer::Accept(content)) => {
                    ElicitationAnswer::Accept(with_defaults(content, &schema))
                }
                Ok(other) => other,
                Err(panic) => {
                    // Dropping the panic's payload could panic.
                    std::mem::forget(panic);
                    ElicitationAnswer::Decline
                }
            })
        }
        .boxed()
    }
}

impl fmt::Debug for Answerers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answerers")
            .field("elicitation", &self.elicitation.is_some())
            .field("sampling", &self.sampling.is_some())
            .field("roots", &self.roots)
            .finish()
    }
}

/// Returns the answer that declines a question without showing it to the user, or `None` if the
/// request cannot be declined.
pub(crate) fn declined_answer(method: &str) -> Option<Value> {
    (method == "elicitation/create").then(|| answer_of(ElicitationAnswer::Decline))
}

/// Returns the answer to send if the user did not answer a question in time.
pub(crate) fn cancelled_answer() -> Value {
    answer_of(ElicitationAnswer::Cancel)
}

fn answer_of(answer: ElicitationAnswer) -> Value {
    match answer {
        ElicitationAnswer::Accept(Value::Null) => json!({ "action": "accept" }),
        ElicitationAnswer::Accept(content) => json!({ "action": "accept", "content": content }),
        ElicitationAnswer::Decline => json!({ "action": "decline" }),
        ElicitationAnswer::Cancel => json!({ "action": "cancel" }),
    }
}

/// Returns the content of an answer, with missing fields set to their default values.
fn with_defaults(content: Value, schema: &Value) -> Value {
    let Value::Object(mut fields) = content else { return content };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(default) = field.get("default")
            && !fields.contains_key(name)
        {
            fields.insert(name.clone(), default.clone());
        }
    }
    Value::Object(fields)
}

/// Converts a sampling request into a single text prompt.
pub(crate) fn sampling_prompt(params: &Value) -> String {
    let mut prompt = Vec::new();
    if let Some(system) = params["systemPrompt"].as_str() {
        prompt.push(system.to_owned());
    }
    let messages = params["messages"].as_array().map_or(&[][..], Vec::as_slice);
    for message in messages {
        let text = text_of(&message["content"]);
        prompt.push(match messages.len() {
            1 => text,
            _ => format!("{}: {text}", message["role"].as_str().unwrap_or("user")),
        });
    }
    prompt.join("\n\n")
}

/// Returns the answer to a sampling request, which contains the text that the model returned.
pub(crate) fn sampling_answer(text: &str, model: &str) -> Value {
    json!({
        "role": "assistant",
        "content": { "type": "text", "text": text },
        "model": model,
        "stopReason": "endTurn",
    })
}

fn text_of(content: &Value) -> String {
    match content {
        Value::Array(blocks) => blocks.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        block => match block["text"].as_str() {
            Some(text) => text.to_owned(),
            None => block.to_string(),
        },
    }
}

fn file_name(folder: &Path) -> String {
    folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the `file` URL for a folder.
fn file_url(folder: &Path) -> String {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    Url::from_directory_path(&absolute)
        .map_or_else(|()| format!("file://{}", absolute.display()), |url| url.to_string())
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn without_a_hook_questions_are_declined_and_no_capability_is_announced() {
        let answerers = Answerers::default();
        assert_eq!(answerers.capabilities(), json!({}));
        let answer = block_on(answerers.ask_user("s", &json!({ "message": "Your name?" })));
        assert_eq!(answer, json!({ "action": "decline" }));
    }

    #[test]
    fn an_accepted_answer_gets_defaults_for_omitted_fields() {
        let hook: Arc<ElicitationFn> = Arc::new(|question| {
            assert_eq!((question.server.as_str(), question.message.as_str()), ("s", "Who?"));
            futures::future::ready(ElicitationAnswer::Accept(json!({ "name": "Ada" }))).boxed()
        });
        let answerers = Answerers { elicitation: Some(hook), ..Answerers::default() };
        let schema = json!({ "properties": {
            "name": { "default": "nobody" }, "age": { "default": 7 }, "note": {},
        }});
        let params = json!({ "message": "Who?", "requestedSchema": schema });
        let answer = block_on(answerers.ask_user("s", &params));
        assert_eq!(answer, json!({ "action": "accept", "content": { "name": "Ada", "age": 7 } }));
    }

    #[test]
    fn a_hook_that_panics_declines() {
        let hook: Arc<ElicitationFn> = Arc::new(|_| panic!("no user"));
        let answerers = Answerers { elicitation: Some(hook), ..Answerers::default() };
        assert_eq!(block_on(answerers.ask_user("s", &json!({}))), json!({ "action": "decline" }));
    }

    #[test]
    fn a_sampling_request_is_one_prompt() {
        let one = json!({ "systemPrompt": "Be brief.", "messages": [
            { "role": "user", "content": { "type": "text", "text": "Hi" } },
        ]});
        assert_eq!(sampling_prompt(&one), "Be brief.\n\nHi");
        let two = json!({ "messages": [
            { "role": "user", "content": { "type": "text", "text": "Hi" } },
            { "role": "assistant", "content": [{ "type": "text", "text": "Yes?" }] },
        ]});
        assert_eq!(sampling_prompt(&two), "user: Hi\n\nassistant: Yes?");
    }
}
