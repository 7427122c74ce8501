//! The provider value: a model behind this wire.

use std::future::ready;
use std::sync::Arc;

use futures::stream;

use super::dialect::{Dialect, KeyHeader, UserField};
use super::{Decoder, encode};
use crate::error::{Error, ErrorKind};
use crate::http::{Endpoint, Secret};
use crate::provider::Provider;
use crate::provider::exchange::{Caller, transport_settings};
use crate::request::Request;
use crate::stream::{TurnStream, seal};
use crate::turn::TurnBuilder;

const PATH: &str = "/chat/completions";

/// A model behind the Chat Completions wire, the vendor's or any compatible server's. Cheap to
/// clone.
///
/// Without a key it sends no authorization header; at the vendor's own address that is an error of
/// the turn.
///
/// ```
/// use turnstream::provider::OpenAiChat;
/// use turnstream::provider::openai_chat::Dialect;
///
/// let local = OpenAiChat::new("llama3").with_base_url("http://localhost:11434/v1")?;
/// let routed = OpenAiChat::new("anthropic/claude-sonnet-4.5").with_dialect(Dialect::OPENROUTER);
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenAiChat {
    model: Arc<str>,
    caller: Caller,
    dialect: Dialect,
    /// Who said where requests go, and how they look.
    url_is_set: bool,
    dialect_is_set: bool,
    /// Why there is nowhere to send them.
    nowhere: Option<Error>,
}

impl OpenAiChat {
    /// A model by its name, at the vendor's own address, without a key.
    ///
    /// # Panics
    ///
    /// Never: the vendor's address is a valid one.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        let dialect = Dialect::OPENAI;
        // Law: it is an http URL, as every test that makes a value shows.
        let endpoint = Endpoint::new(dialect.base_url, PATH).expect("a valid base URL");
        Self {
            model: model.into(),
            caller: Caller::new(endpoint),
            dialect,
            url_is_set: false,
            dialect_is_set: false,
            nowhere: None,
        }
    }

    /// Sets the key, sent as `authorization: Bearer …` or as the dialect has it.
    pub fn with_api_key(mut self, key: impl AsRef<str>) -> Self {
        self.caller.key = Some(Secret::new(key));
        self
    }

    /// Sets the address, with `/v1`, as the vendor's SDKs take it. A query is kept.
    ///
    /// Compatible servers know the output limit as `max_tokens`, so that name is used from here
    /// on, and instructions go in front; [`with_dialect`](Self::with_dialect) says otherwise, before
    /// or after.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if it is no http or https URL.
    pub fn with_base_url(mut self, url: impl AsRef<str>) -> Result<Self, Error> {
        self.caller.endpoint = Endpoint::new(url.as_ref(), PATH)?;
        (self.url_is_set, self.nowhere) = (true, None);
        if !self.dialect_is_set && self.caller.endpoint.host() != "api.openai.com" {
            let Dialect { limit, system_place, .. } = Dialect::STRICT;
            let user = UserField::User;
            self.dialect = Dialect { limit, user, system_place, ..Dialect::OPENAI };
        }
        Ok(self)
    }

    /// Sets how the server's Chat Completions differ from the vendor's, and with it the address,
    /// unless that is set.
    ///
    /// A dialect without a usual address needs [`with_base_url`](Self::with_base_url), before or
    /// after; until then every turn is an [`InvalidRequest`](ErrorKind::InvalidRequest) error.
    pub fn with_dialect(mut self, dialect: Dialect) -> Self {
        (self.dialect, self.dialect_is_set) = (dialect, true);
        let vendors = Endpoint::new(dialect.base_url, PATH);
        if let Ok(vendor) = &vendors {
            self.caller.set_vendor(vendor);
        }
        if self.url_is_set {
            return self;
        }
        self.nowhere = match dialect.base_url {
            "" => {
                let message = format!("the dialect `{}` has no address of its own", dialect.name);
                let error = Error::new(ErrorKind::InvalidRequest, message);
                Some(error.with_parameter("base_url"))
            }
            _ => match vendors {
                Ok(endpoint) => {
                    self.caller.endpoint = endpoint;
                    None
                }
                Err(error) => Some(error),
            },
        };
        self
    }

    /// How requests look.
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }
}

transport_settings!(OpenAiChat);

impl Provider for OpenAiChat {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let (turn, dialect) = (TurnBuilder::from(&request), self.dialect);
        if let Some(error) = &self.nowhere {
            return seal(turn, stream::once(ready(Err(error.clone()))));
        }
        let model = request.model.clone().unwrap_or_else(|| self.model.to_string());
        let (retries, asked) = (request.retries.clone(), model.clone());
        let decoder = move || Decoder::new(&asked, &dialect);
        let encode = move || encode(&request, &model, &dialect);
        let key_header = match dialect.key {
            KeyHeader::Bearer => {
                |key: &Secret| ("authorization", format!("Bearer {}", key.expose()))
            }
            KeyHeader::ApiKey => |key: &Secret| ("api-key", key.expose().to_owned()),
        };
        let caller = self.caller.clone();
        seal(turn, caller.ask(&[], key_header, encode, decoder, retries))
    }

    fn model(&self) -> &str {
        &self.model
    }
}
