//! Anthropic Messages, <https://docs.anthropic.com/en/api/messages-streaming>.

mod decode;
mod encode;
mod transformations;
mod wire;

pub use decode::Decoder;
pub use encode::encode;
pub use transformations::{InputTransformation, input_transformations};

#[cfg(feature = "http")]
pub use value::Anthropic;

/// The name of this wire in provider data.
const NAME: &str = "anthropic";

#[cfg(feature = "http")]
mod value {
    use std::sync::Arc;

    use super::Decoder;
    use super::encode::{ChangedPrefix, encode_with};
    use crate::error::Error;
    use crate::http::{Endpoint, Secret};
    use crate::provider::Provider;
    use crate::provider::exchange::{Caller, Encoded, transport_settings};
    use crate::request::Request;
    use crate::stream::{TurnStream, seal};
    use crate::turn::TurnBuilder;

    /// Where requests go unless told otherwise.
    const BASE_URL: &str = "https://api.anthropic.com";
    /// "To use multiple beta features, separate their names with commas."
    const BETA: &str = "anthropic-beta";
    const PATH: &str = "/v1/messages";
    /// The version of the wire that this was written for.
    const HEADERS: &[(&str, &str)] = &[("anthropic-version", "2023-06-01")];

    /// A model behind the Anthropic Messages wire. Cheap to clone.
    ///
    /// Without a key it sends no key header; at the vendor's own address that is an error of the turn.
    ///
    /// ```
    /// use turnstream::provider::Anthropic;
    ///
    /// let model = Anthropic::new("claude-sonnet-4-5").with_api_key("sk-ant-…");
    /// assert!(!format!("{model:?}").contains("sk-ant"));
    /// ```
    #[derive(Clone, Debug)]
    pub struct Anthropic {
        model: Arc<str>,
        caller: Caller,
        changed_prefix: ChangedPrefix,
    }

    impl Anthropic {
        /// A model by its name, at the vendor's own address, without a key.
        ///
        /// # Panics
        ///
        /// Never: the vendor's address is a valid one.
        pub fn new(model: impl Into<Arc<str>>) -> Self {
            // Law: `BASE_URL` is an http URL, as every test that makes a value shows.
            let endpoint = Endpoint::new(BASE_URL, PATH).expect("a valid base URL");
            let (caller, changed_prefix) = (Caller::new(endpoint), ChangedPrefix::DropThoughts);
            Self { model: model.into(), caller, changed_prefix }
        }

        /// Sets the key, sent as `x-api-key`.
        pub fn with_api_key(mut self, key: impl AsRef<str>) -> Self {
            self.caller.key = Some(Secret::new(key));
            self
        }

        /// Sets the address, without `/v1`, as the vendor's SDKs take it.
        ///
        /// # Errors
        ///
        /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if it is no http or https URL.
        pub fn with_base_url(mut self, url: impl AsRef<str>) -> Result<Self, Error> {
            self.caller.endpoint = Endpoint::new(url.as_ref(), PATH)?;
            Ok(self)
        }

        /// Leaves it to the vendor what becomes of thoughts whose prefix has changed.
        ///
        /// The newest models bind each block of thoughts to all that stood before it, and refuse a
        /// request in which something before a block is another than when it was written: a tool, a
        /// system prompt, a message that was compacted. At the vendor's own address, a request that
        /// has such blocks therefore asks for `drop_block`: those that do not fit any more are not
        /// shown to the model. [`input_transformations`](crate::provider::anthropic::input_transformations)
        /// tells which ones.
        ///
        /// With this setting nothing is asked for, and the vendor refuses such a request.
        pub fn without_drop_block(mut self) -> Self {
            self.changed_prefix = ChangedPrefix::Unsaid;
            self
        }

        /// Asks for a feature that is not for everybody yet, by the name that its documentation
        /// gives for `anthropic-beta`. Several may be asked for, one after the other.
        ///
        /// A name that no header can hold is an
        /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) of the turn.
        ///
        /// ```
        /// use turnstream::provider::Anthropic;
        ///
        /// let model = Anthropic::new("claude-sonnet-4-5").with_beta("compact-2026-01-12");
        /// ```
        pub fn with_beta(mut self, name: impl AsRef<str>) -> Self {
            self.caller.add_header(BETA, name.as_ref());
            self
        }
    }

    transport_settings!(Anthropic);

    impl Provider for Anthropic {
        fn stream_turn(&self, request: Request) -> TurnStream {
            let model = request.model.clone().unwrap_or_else(|| self.model.to_string());
            let turn = TurnBuilder::from(&request);
            let (retries, asked) = (request.retries.clone(), model.clone());
            let decoder = move || Decoder::new(&asked);
            let changed_prefix = match self.caller.is_at_vendor() {
                true => self.changed_prefix,
                false => ChangedPrefix::Unsaid,
            };
            let encode = move || {
                let (body, beta) = encode_with(&request, &model, changed_prefix)?;
                let header = beta.map(|beta| (BETA, beta.to_owned()));
                Ok(Encoded { body, header })
            };
            let key_header = |key: &Secret| ("x-api-key", key.expose().to_owned());
            let caller = self.caller.clone();
            seal(turn, caller.ask(HEADERS, key_header, encode, decoder, retries))
        }

        fn model(&self) -> &str {
            &self.model
        }
    }
}
