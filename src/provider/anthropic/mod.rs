//! Anthropic Messages, <https://docs.anthropic.com/en/api/messages-streaming>.

mod decode;
mod encode;
mod wire;

pub use decode::Decoder;
pub use encode::encode;

#[cfg(feature = "http")]
pub use value::Anthropic;

/// The name of this wire in provider data.
const NAME: &str = "anthropic";

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

    /// Where requests go unless told otherwise.
    const BASE_URL: &str = "https://api.anthropic.com";
    const PATH: &str = "/v1/messages";
    /// The version of the wire that this was written for.
    const HEADERS: &[(&str, &str)] = &[("anthropic-version", "2023-06-01")];

    /// A model behind the Anthropic Messages wire. Cheap to clone.
    ///
    /// Without a key it sends no key header.
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
            Self { model: model.into(), caller: Caller::new(endpoint) }
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
            const HEADER: &str = "anthropic-beta";
            let name = name.as_ref();
            // "To use multiple beta features, separate their names with commas."
            match self.caller.headers.iter_mut().find(|(header, _)| *header == HEADER) {
                Some((_, names)) => *names = format!("{names},{name}"),
                None => self.caller.headers.push((HEADER, name.to_owned())),
            }
            self
        }
    }

    transport_settings!(Anthropic);

    impl Provider for Anthropic {
        fn stream_turn(&self, request: Request) -> TurnStream {
            let model = request.model.clone().unwrap_or_else(|| self.model.to_string());
            let history = request.history.clone();
            let (retries, asked) = (request.retries.clone(), model.clone());
            let decoder = move || Decoder::new(&asked);
            let encode = move || encode(&request, &model);
            let key_header = |key: &Secret| ("x-api-key", key.expose().to_owned());
            let caller = self.caller.clone();
            seal(&history, caller.ask(HEADERS, key_header, encode, decoder, retries))
        }

        fn model(&self) -> &str {
            &self.model
        }
    }
}
