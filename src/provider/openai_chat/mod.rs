//! OpenAI's Chat Completions, and every server that speaks them,
//! <https://platform.openai.com/docs/api-reference/chat-streaming>.

mod calls;
mod decode;
mod encode;
mod wire;

pub use decode::Decoder;
pub use encode::{LimitField, encode};

#[cfg(feature = "http")]
pub use value::OpenAiChat;

/// The name of this wire in provider data.
const NAME: &str = "openai_chat";

#[cfg(feature = "http")]
mod value {
    use std::sync::Arc;

    use super::{Decoder, LimitField, encode};
    use crate::error::Error;
    use crate::http::{Endpoint, HttpClient, Secret, Timeouts};
    use crate::provider::Provider;
    use crate::provider::exchange::Caller;
    use crate::request::Request;
    use crate::stream::{TurnStream, seal};

    /// Where requests go unless told otherwise.
    const BASE_URL: &str = "https://api.openai.com/v1";
    const PATH: &str = "/chat/completions";

    /// A model behind the Chat Completions wire, the vendor's or any compatible server's. Cheap to
    /// clone.
    ///
    /// Without a key it sends no authorization header.
    ///
    /// ```
    /// use turnstream::provider::OpenAiChat;
    ///
    /// let model = OpenAiChat::new("llama3").with_base_url("http://localhost:11434/v1")?;
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    #[derive(Clone, Debug)]
    pub struct OpenAiChat {
        model: Arc<str>,
        caller: Caller,
        limit_field: LimitField,
    }

    impl OpenAiChat {
        /// A model by its name, at the vendor's own address, without a key.
        ///
        /// # Panics
        ///
        /// Never: the vendor's address is a valid one.
        pub fn new(model: impl Into<Arc<str>>) -> Self {
            // Law: `BASE_URL` is an http URL, as every test that makes a value shows.
            let endpoint = Endpoint::new(BASE_URL, PATH).expect("a valid base URL");
            let limit_field = LimitField::MaxCompletionTokens;
            Self { model: model.into(), caller: Caller::new(endpoint), limit_field }
        }

        /// Sets the key, sent as `authorization: Bearer …`.
        pub fn with_api_key(mut self, key: impl AsRef<str>) -> Self {
            self.caller.key = Some(Secret::new(key));
            self
        }

        /// Sets the address, with `/v1`, as the vendor's SDKs take it.
        ///
        /// Compatible servers know the output limit as `max_tokens`, so that name is used from here
        /// on; [`with_limit_field`](Self::with_limit_field) says otherwise.
        ///
        /// # Errors
        ///
        /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if it is no http or https URL.
        pub fn with_base_url(mut self, url: impl AsRef<str>) -> Result<Self, Error> {
            self.caller.endpoint = Endpoint::new(url.as_ref(), PATH)?;
            if self.caller.endpoint.host() != "api.openai.com" {
                self.limit_field = LimitField::MaxTokens;
            }
            Ok(self)
        }

        /// Sets the name that the server knows the output limit by.
        pub fn with_limit_field(mut self, field: LimitField) -> Self {
            self.limit_field = field;
            self
        }

        /// Sets the client; the one that all providers share unless set.
        pub fn with_http(mut self, http: HttpClient) -> Self {
            self.caller.http = http;
            self
        }

        /// Sets how long to wait for what.
        pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
            self.caller.timeouts = timeouts;
            self
        }
    }

    impl Provider for OpenAiChat {
        fn stream_turn(&self, request: Request) -> TurnStream {
            let model = request.model.clone().unwrap_or_else(|| self.model.to_string());
            let (history, field) = (request.history.clone(), self.limit_field);
            let decoder = Decoder::new();
            let encode = move || encode(&request, &model, field);
            let key_header = |key: &Secret| ("authorization", format!("Bearer {}", key.expose()));
            seal(&history, self.caller.clone().ask(&[], key_header, encode, decoder))
        }

        fn model(&self) -> &str {
            &self.model
        }
    }
}
