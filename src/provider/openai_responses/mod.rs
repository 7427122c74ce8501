//! OpenAI's Responses, <https://platform.openai.com/docs/api-reference/responses-streaming>.
//!
//! Hosted tools are declared by [`extra`](crate::request::Options::extra). What they give, and
//! everything else that is not text, reasoning or a function call, is kept whole as the provider's
//! own item and sent back to the model that wrote it. Those of them that wait for an answer of the
//! client, for example `custom_tool_call` or `local_shell_call`, are answered by a provider's own
//! item that holds the answer.

mod call;
mod decode;
mod encode;
mod finish;
mod input;
mod items;
mod keep;
mod parallel;
mod slot;
mod wire;
mod words;

pub use decode::Decoder;
pub use encode::encode;

#[cfg(feature = "http")]
pub use value::OpenAiResponses;

/// The name of this wire in provider data.
const NAME: &str = "openai_responses";

#[cfg(feature = "http")]
mod value {
    use std::sync::Arc;

    use super::{Decoder, encode};
    use crate::error::Error;
    use crate::http::{Endpoint, Secret};
    use crate::provider::Provider;
    use crate::provider::exchange::{Caller, transport_settings};
    use crate::request::Request;
    use crate::stream::{TurnStream, seal};
    use crate::turn::TurnBuilder;

    /// Where requests go unless told otherwise.
    const BASE_URL: &str = "https://api.openai.com/v1";
    const PATH: &str = "/responses";

    /// A model behind the Responses wire, the vendor's or any compatible server's. Cheap to clone.
    ///
    /// Nothing is stored by the provider: each request holds the whole input. Without a key it
    /// sends no authorization header; at the vendor's own address that is an error of the turn.
    ///
    /// ```
    /// use turnstream::provider::OpenAiResponses;
    ///
    /// let model = OpenAiResponses::new("gpt-5.1").with_api_key("sk-…");
    /// assert!(!format!("{model:?}").contains("sk-"));
    /// ```
    #[derive(Clone, Debug)]
    pub struct OpenAiResponses {
        model: Arc<str>,
        caller: Caller,
    }

    impl OpenAiResponses {
        /// A model by its name, at the vendor's own address, without a key.
        ///
        /// # Panics
        ///
        /// Never: the vendor's address is a valid one.
        pub fn new(model: impl Into<Arc<str>>) -> Self {
            // Law: `BASE_URL` is an http URL, as every test that makes a value shows.
            let endpoint = Endpoint::new(BASE_URL, PATH).expect("a valid base URL");
            Self { model: model.into(), caller: Caller::new(endpoint) }
        }

        /// Sets the key, sent as `authorization: Bearer …`.
        pub fn with_api_key(mut self, key: impl AsRef<str>) -> Self {
            self.caller.key = Some(Secret::new(key));
            self
        }

        /// Sets the address, with `/v1`, as the vendor's SDKs take it.
        ///
        /// # Errors
        ///
        /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if it is no http or https URL.
        pub fn with_base_url(mut self, url: impl AsRef<str>) -> Result<Self, Error> {
            self.caller.endpoint = Endpoint::new(url.as_ref(), PATH)?;
            Ok(self)
        }
    }

    transport_settings!(OpenAiResponses);

    impl Provider for OpenAiResponses {
        fn stream_turn(&self, request: Request) -> TurnStream {
            let model = request.model.clone().unwrap_or_else(|| self.model.to_string());
            let turn = TurnBuilder::from(&request);
            let (retries, asked) = (request.retries.clone(), model.clone());
            let tools = Arc::clone(&request.tools);
            let decoder = move || {
                Decoder::new(&asked).with_tools(tools.iter().map(|tool| tool.name.as_str()))
            };
            let encode = move || encode(&request, &model);
            let key_header = |key: &Secret| ("authorization", format!("Bearer {}", key.expose()));
            let caller = self.caller.clone();
            seal(turn, caller.ask(&[], key_header, encode, decoder, retries))
        }

        fn model(&self) -> &str {
            &self.model
        }
    }
}
