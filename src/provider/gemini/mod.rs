//! Gemini's `generateContent` as a stream, <https://ai.google.dev/api/generate-content>.

mod calls;
mod contents;
mod decode;
mod encode;
mod finish;
mod model;
mod partial_args;
mod wire;

pub use decode::Decoder;
pub use encode::encode;

#[cfg(feature = "http")]
pub use value::Gemini;

/// The name of this wire in provider data.
const NAME: &str = "gemini";

#[cfg(feature = "http")]
mod value {
    use std::sync::Arc;

    use super::{Decoder, encode, model};
    use crate::error::Error;
    use crate::http::{Endpoint, Secret};
    use crate::provider::Provider;
    use crate::provider::exchange::{Caller, transport_settings};
    use crate::request::Request;
    use crate::stream::{TurnStream, seal};
    use crate::turn::TurnBuilder;

    /// Where requests go unless told otherwise.
    const BASE_URL: &str = "https://generativelanguage.googleapis.com";
    /// What comes before the name of the model.
    const PATH: &str = "/v1beta";
    const ACTION: &str = ":streamGenerateContent";
    /// Without it the answer is one long JSON array.
    const AS_EVENTS: (&str, &str) = ("alt", "sse");

    /// A model behind the Gemini wire. Cheap to clone.
    ///
    /// Without a key it sends no key header; at the vendor's own address that is an error of the turn.
    ///
    /// ```
    /// use turnstream::provider::Gemini;
    ///
    /// let model = Gemini::new("gemini-3-flash-preview").with_api_key("AIza…");
    /// assert!(!format!("{model:?}").contains("AIza"));
    /// ```
    #[derive(Clone, Debug)]
    pub struct Gemini {
        model: Arc<str>,
        caller: Caller,
    }

    impl Gemini {
        /// A model by its name, at the vendor's own address, without a key.
        ///
        /// The name is part of the address. One with a `/`, such as `tunedModels/mine`, is used as
        /// it is; any other stands below `models/`. One that cannot be part of an address is an
        /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) when it is asked.
        ///
        /// # Panics
        ///
        /// Never: the vendor's address is a valid one.
        pub fn new(model: impl Into<Arc<str>>) -> Self {
            // Law: `BASE_URL` is an http URL, as every test that makes a value shows.
            let endpoint = Endpoint::new(BASE_URL, PATH).expect("a valid base URL");
            Self { model: model.into(), caller: Caller::new(endpoint) }
        }

        /// Sets the key, sent as `x-goog-api-key`.
        pub fn with_api_key(mut self, key: impl AsRef<str>) -> Self {
            self.caller.key = Some(Secret::new(key));
            self
        }

        /// Sets the address, without `/v1beta`, as the vendor's SDKs take it. What stands in its
        /// query is sent with every request.
        ///
        /// # Errors
        ///
        /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if it is no http or https URL.
        pub fn with_base_url(mut self, url: impl AsRef<str>) -> Result<Self, Error> {
            self.caller.endpoint = Endpoint::new(url.as_ref(), PATH)?;
            Ok(self)
        }
    }

    transport_settings!(Gemini);

    impl Provider for Gemini {
        fn stream_turn(&self, request: Request) -> TurnStream {
            let model = request.model.clone().unwrap_or_else(|| self.model.to_string());
            let turn = TurnBuilder::from(&request);
            let (retries, asked) = (request.retries.clone(), model.clone());
            let decoder = move || Decoder::new(&asked);
            let mut caller = self.caller.clone();
            let path = model::path(&model, ACTION);
            if let Ok(path) = &path {
                let segments = path.iter().map(String::as_str);
                caller.endpoint = caller.endpoint.below(segments, AS_EVENTS);
            }
            // Nothing is sent where the body or the address cannot be written.
            let encode = move || path.and_then(|_| encode(&request, &model));
            let key_header = |key: &Secret| ("x-goog-api-key", key.expose().to_owned());
            seal(turn, caller.ask(&[], key_header, encode, decoder, retries))
        }

        fn model(&self) -> &str {
            &self.model
        }
    }
}
