//! Reads a server's resources and prompts, so that a program can add them to a conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use turnstream::error::{Error, ErrorKind};
use turnstream::item::{Content, Item};

use crate::answering::{answer_questions, question_count, repeated};
use crate::content::{content_of, part_of, resource_part};
use crate::listing::{ListBudget, fetch_pages};
use crate::sdk::connection::Connection;
use crate::{Client, ServerInfo};

/// Data that an MCP server offers under an address, such as a file, or a template for such
/// addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resource {
    /// The resource's address. The address of a [template](Client::resource_templates), such as
    /// `file:///{path}`, contains names in braces. The address of a [resource](Client::resources)
    /// can be passed to [`read_resource`](Client::read_resource) unchanged.
    pub uri: String,
    /// The resource's name.
    pub name: String,
    /// The resource's description.
    pub description: Option<String>,
    /// The resource's media type, for example `text/markdown`.
    pub media_type: Option<String>,
}

/// A prompt that a server offers, for example as a slash command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prompt {
    /// The name of the prompt.
    pub name: String,
    /// The prompt's description.
    pub description: Option<String>,
    /// The arguments that the prompt accepts.
    pub arguments: Vec<PromptArgument>,
}

/// An argument to a [`Prompt`], whose value a program usually asks the user for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptArgument {
    /// The argument's name.
    pub name: String,
    /// The argument's description.
    pub description: Option<String>,
    /// Whether the prompt requires this argument.
    pub is_required: bool,
}

impl Client {
    /// Lists the server's resources, sorted by address. Returns an empty list if the server does
    /// not support resources.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`toolkit`](Self::toolkit).
    pub async fn resources(&self) -> Result<Vec<Resource>, Error> {
        self.list_all(
            "resources/list",
            "resources",
            |info| info.has_resources,
            |json| Resource::from_json(json, "uri"),
            |resource| &resource.uri,
        )
        .await
    }

    /// Lists the server's resource templates, sorted by address. Each template's address contains
    /// names in braces.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`toolkit`](Self::toolkit).
    pub async fn resource_templates(&self) -> Result<Vec<Resource>, Error> {
        let method = "resources/templates/list";
        self.list_all(
            method,
            "resourceTemplates",
            |info| info.has_resources,
            |json| Resource::from_json(json, "uriTemplate"),
            |template| &template.uri,
        )
        .await
    }

    /// Reads a resource and returns it as content for a user message. A resource with the content
    /// of a text file is text, even if the server sends the file as base64. Dropping the returned
    /// future cancels the request.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the server has no such
    /// resource, an [`Unsupported`](ErrorKind::Unsupported) error if the server asks too many
    /// questions or asks for input that the client cannot provide, such as a model's response, or
    /// any error that [`toolkit`](Self::toolkit) returns.
    pub async fn read_resource(&self, uri: &str) -> Result<Content, Error> {
        let params = Map::from_iter([("uri".to_owned(), uri.into())]);
        let read = self.request_with_input("resources/read", params).await?;
        let contents = self.array_of(&read, "contents")?;
        let parts = contents.iter().map(|resource| resource_part(resource, self.media()));
        Ok(content_of(&parts.collect::<Vec<_>>()))
    }

    /// Lists the server's prompts, sorted by name. Returns an empty list if the server does not
    /// support prompts.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`toolkit`](Self::toolkit).
    pub async fn prompts(&self) -> Result<Vec<Prompt>, Error> {
        self.list_all(
            "prompts/list",
            "prompts",
            |info| info.has_prompts,
            Prompt::from_json,
            |prompt| &prompt.name,
        )
        .await
    }

    /// Requests a prompt with the given arguments and returns it as a list of items that can [start
    /// a run](turnstream::Agent::run). Dropping the returned future cancels the request.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the server has no such
    /// prompt or an argument is missing, an [`Unsupported`](ErrorKind::Unsupported) error if the
    /// server asks too many questions or asks for input that the client cannot provide, such as a
    /// model's response, or any error that [`toolkit`](Self::toolkit) returns.
    pub async fn prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
    ) -> Result<Vec<Item>, Error> {
        let params = [("name".to_owned(), name.into()), ("arguments".to_owned(), json!(arguments))];
        let prompt = self.request_with_input("prompts/get", Map::from_iter(params)).await?;
        let messages = self.array_of(&prompt, "messages")?;
        Ok(messages.iter().map(|message| self.item_of(message)).collect())
    }

    /// Sends a request. The server may ask the user questions before it returns the result.
    async fn request_with_input(
        &self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, Error> {
        let params = &params;
        let request = |connection| self.request_with_input_over(connection, method, params);
        self.shared().over_current_session(request).await
    }

    async fn request_with_input_over(
        &self,
        connection: Arc<Connection>,
        method: &str,
        params: &Map<String, Value>,
    ) -> Result<Value, Error> {
        let shared = self.shared();
        let mut sent_params = params.clone();
        let mut questions_left = shared.settings.limits.input_rounds;
        loop {
            let result = connection.request(method, Value::Object(sent_params)).await?;
            if result["resultType"] != "input_required" {
                return Ok(result);
            }
            let Some(left) = questions_left.checked_sub(question_count(&result)) else { break };
            questions_left = left;
            let Some(answers) = answer_questions(shared, &result).await else { break };
            sent_params = repeated(params.clone(), &result, answers);
        }
        let message =
            format!("the MCP server `{}` asks for more input than it is given", self.name());
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    fn item_of(&self, message: &Value) -> Item {
        let content = match &message["content"] {
            Value::Array(blocks) => blocks.as_slice(),
            block => std::slice::from_ref(block),
        };
        let parts = content.iter().map(|block| part_of(block, self.media()));
        let content = content_of(&parts.collect::<Vec<_>>());
        match message["role"].as_str() {
            Some("assistant") => Item::text(content.text()),
            _ => Item::user(content),
        }
    }

    /// Fetches all pages of a list, and sorts the entries by the key that `key` returns. An entry
    /// that is listed twice is returned once.
    async fn list_all<T: PartialEq>(
        &self,
        method: &str,
        field: &'static str,
        is_offered: impl Fn(&ServerInfo) -> bool,
        read: impl Fn(&Value) -> Option<T>,
        key: impl Fn(&T) -> &str,
    ) -> Result<Vec<T>, Error> {
        let (is_offered, read) = (&is_offered, &read);
        let list = |connection: Arc<Connection>| async move {
            let mut listed = Vec::new();
            if !is_offered(&connection.info) {
                return Ok((listed, None));
            }
            let mut budget = ListBudget::new(self.name(), field, &self.shared().settings.limits);
            let end_note = fetch_pages(&connection, method, &mut budget, |_, page| {
                for entry in page.iter().filter_map(read) {
                    if !listed.contains(&entry) {
                        listed.push(entry);
                    }
                }
                Ok(())
            });
            let end_note = end_note.await?;
            Ok((listed, end_note))
        };
        let (mut listed, end_note) = self.shared().over_current_session(list).await?;
        self.shared().set_end_note(field, end_note);
        listed.sort_by(|a, b| key(a).cmp(key(b)));
        Ok(listed)
    }

    fn array_of<'a>(&self, result: &'a Value, field: &str) -> Result<&'a [Value], Error> {
        result[field].as_array().map(Vec::as_slice).ok_or_else(|| {
            let message = format!("the MCP server `{}` answered without `{field}`", self.name());
            Error::new(ErrorKind::Protocol, message)
        })
    }
}

impl Resource {
    fn from_json(json: &Value, address: &str) -> Option<Self> {
        let uri = json[address].as_str()?.to_owned();
        let name = json["name"].as_str().unwrap_or(&uri).to_owned();
        let media_type = text(&json["mimeType"]);
        Some(Self { uri, name, description: text(&json["description"]), media_type })
    }
}

impl Prompt {
    fn from_json(json: &Value) -> Option<Self> {
        let arguments = json["arguments"].as_array().map_or(&[][..], Vec::as_slice);
        let argument = |json: &Value| {
            Some(PromptArgument {
                name: text(&json["name"])?,
                description: text(&json["description"]),
                is_required: json["required"] == true,
            })
        };
        Some(Self {
            name: text(&json["name"])?,
            description: text(&json["description"]),
            arguments: arguments.iter().filter_map(argument).collect(),
        })
    }
}

fn text(json: &Value) -> Option<String> {
    json.as_str().map(str::to_owned)
}
