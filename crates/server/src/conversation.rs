//! The messages of a client, on any wire.

use std::collections::{HashMap, HashSet, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use turnstream::item::{Content, ItemKind, MediaSource, Part, ResultKind, ToolCall, ToolResult};
use turnstream::ui::ClientLimits;
use turnstream::{Error, Item};

use crate::fields::{Fields, invalid};

/// A client's messages, in order.
#[derive(Default)]
pub(crate) struct Conversation {
    messages: Vec<Message>,
    /// The ids of all calls.
    call_ids: HashSet<String>,
    /// The ids of the calls of each tool, in order, for wires on which results name only the tool.
    unnamed_calls: HashMap<String, VecDeque<String>>,
}

/// The maximum number of calls in a request.
const MAX_CALLS: usize = 10_000;

enum Message {
    System(String),
    User(Vec<Part>),
    Assistant(String),
    Call(ToolCall),
    Result { call_id: String, content: Content, is_error: bool },
}

impl Conversation {
    pub(crate) fn push_system(&mut self, text: String) {
        if !text.trim().is_empty() {
            self.messages.push(Message::System(text));
        }
    }

    pub(crate) fn push_user(&mut self, parts: Vec<Part>) {
        if !parts.is_empty() {
            self.messages.push(Message::User(parts));
        }
    }

    pub(crate) fn push_assistant(&mut self, text: String) {
        if !text.trim().is_empty() {
            self.messages.push(Message::Assistant(text));
        }
    }

    /// Adds a call of the assistant. `path` is the place of its id in the request.
    pub(crate) fn push_call(&mut self, call: ToolCall, path: &str) -> Result<(), Error> {
        if self.call_ids.len() >= MAX_CALLS {
            return Err(invalid(path, &format!("a request may have at most {MAX_CALLS} calls")));
        }
        if !self.call_ids.insert(call.call_id.clone()) {
            return Err(invalid(path, "this id belongs to an earlier call already"));
        }
        let of_tool = self.unnamed_calls.entry(call.name.clone()).or_default();
        of_tool.push_back(call.call_id.clone());
        self.messages.push(Message::Call(call));
        Ok(())
    }

    pub(crate) fn push_result(&mut self, call_id: String, content: Content, is_error: bool) {
        self.messages.push(Message::Result { call_id, content, is_error });
    }

    /// Takes the id of the next call of this tool, for wires on which results name only the tool.
    pub(crate) fn take_unnamed_call(&mut self, name: &str) -> Option<String> {
        self.unnamed_calls.get_mut(name)?.pop_front()
    }

    /// Returns an id for a call that has none. It is the same when the messages are sent again.
    pub(crate) fn new_call_id(&self) -> String {
        let mut ids = (self.messages.len()..).map(|number| format!("unnamed_call_{number}"));
        // Invariant: each id differs, and the messages contain finitely many.
        ids.find(|id| !self.call_ids.contains(id)).unwrap_or_default()
    }

    /// Takes the results whose calls are not in these messages.
    pub(crate) fn take_other_results(&mut self) -> Vec<(String, Content, bool)> {
        let calls = &self.call_ids;
        let is_other = |message: &mut Message| match message {
            Message::Result { call_id, .. } => !calls.contains(call_id),
            _ => false,
        };
        let taken = self.messages.extract_if(.., is_other);
        let result = |message| match message {
            Message::Result { call_id, content, is_error } => Some((call_id, content, is_error)),
            _ => None,
        };
        taken.filter_map(result).collect()
    }

    /// Converts the messages to the items of a history. Calls of tools that the client has declared
    /// are calls. All other calls and results are only text, so that a client cannot pretend that a
    /// tool of the agent has run.
    ///
    /// # Errors
    ///
    /// Returns an error if a result has no call.
    pub(crate) fn into_items(self, client_tools: &HashSet<String>) -> Result<Vec<Item>, Error> {
        let mut names = HashMap::new();
        let mut items = Vec::with_capacity(self.messages.len());
        for message in self.messages {
            items.push(match message {
                Message::System(text) => Item::system(text),
                Message::User(parts) => Item::user(user_content(parts)),
                Message::Assistant(text) => Item::text(text),
                Message::Call(call) => {
                    names.insert(call.call_id.clone(), call.clone());
                    match client_tools.contains(&call.name) {
                        true => Item::new(ItemKind::ToolCall(call)),
                        false => {
                            let ToolCall { name, arguments, .. } = call;
                            Item::text(format!("(Call of the tool {name}: {arguments})"))
                        }
                    }
                }
                Message::Result { call_id, content, is_error } => {
                    let Some(call) = names.get(&call_id) else {
                        let message = format!("the result of the call {call_id} has no call");
                        return Err(invalid("", &message));
                    };
                    let kind = if is_error { ResultKind::Error } else { ResultKind::Ok };
                    match client_tools.contains(&call.name) {
                        true => Item::tool_result(ToolResult::for_call(call, kind, content)),
                        false => {
                            let text = content.text();
                            Item::user(format!("(Result of the tool {}: {text})", call.name))
                        }
                    }
                }
            });
        }
        Ok(items)
    }
}

/// The content of a message: a text, or several parts.
fn user_content(parts: Vec<Part>) -> Content {
    match <[Part; 1]>::try_from(parts) {
        Ok([Part::Text { text }]) => Content::Text(text),
        Ok(part) => Content::Parts(part.into()),
        Err(parts) => Content::Parts(parts),
    }
}

/// Reads the parts of a message: a string, or a list of parts that `read` reads.
pub(crate) fn read_parts(
    message: &mut Fields,
    name: &str,
    limits: &ClientLimits,
    read: fn(Fields, &ClientLimits) -> Result<Part, Error>,
) -> Result<Vec<Part>, Error> {
    let path = message.path(name);
    let parts = match message.take(name) {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![text.as_str().into()]),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(invalid(&path, "this must be a string or a list")),
    };
    if parts.len() > limits.max_parts {
        let message = format!("a message may have at most {} parts", limits.max_parts);
        return Err(invalid(&path, &message));
    }
    let read = |(n, part)| read(Fields::of(part, format!("{path}[{n}]"))?, limits);
    parts.into_iter().enumerate().map(read).collect()
}

/// The content of a tool's result.
pub(crate) fn result_content(parts: Vec<Part>) -> Content {
    match parts.iter().all(|part| part.as_text().is_some()) {
        true => text_of(&parts).into(),
        false => Content::Parts(parts),
    }
}

/// The texts of the parts, in order.
pub(crate) fn text_of(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::as_text).collect()
}

/// Creates the part for an attached file, from its Base64 data.
pub(crate) fn file_part(
    media_type: &str,
    data: &str,
    limits: &ClientLimits,
    path: &str,
) -> Result<Part, Error> {
    let max = limits.max_file_bytes;
    if data.len() / 4 * 3 > max.saturating_add(2) {
        let message = format!("a file may have at most {max} bytes");
        return Err(invalid(path, &message).with_status(413));
    }
    // Some clients use the URL-safe alphabet.
    let data = data.replace('-', "+").replace('_', "/");
    if STANDARD.decode(&data).is_err() {
        return Err(invalid(path, "this is not valid Base64"));
    }
    Ok(media_part(media_type, MediaSource::Data(data.into())))
}

/// Creates the part for a file at an address, or in a `data:` URL.
pub(crate) fn url_part(
    media_type: Option<&str>,
    url: &str,
    limits: &ClientLimits,
    path: &str,
) -> Result<Part, Error> {
    if let Some(inline) = url.strip_prefix("data:") {
        let Some((media_type, data)) = inline.split_once(";base64,") else {
            return Err(invalid(path, "a data URL must contain Base64"));
        };
        let media_type = media_type.split(';').next().unwrap_or_default();
        return file_part(media_type, data, limits, path);
    }
    if !limits.allow_urls {
        let message = "files are accepted as data only, not as addresses";
        return Err(invalid(path, message));
    }
    let media_type = media_type.unwrap_or("image/*");
    Ok(media_part(media_type, MediaSource::Url(url.into())))
}

fn media_part(media_type: &str, source: MediaSource) -> Part {
    match media_type.starts_with("image/") {
        true => Part::image(media_type, source),
        false => Part::file(media_type, source),
    }
}
