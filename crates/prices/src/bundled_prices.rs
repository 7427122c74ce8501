//! The bundled data as a source of prices and of context windows.

use std::fmt;
use std::sync::Arc;

use genai_prices::Calculator;
use turnstream::context::ContextWindows;
use turnstream::usage::{Cost, NameMatch, PriceSource, PricedRequest};
use turnstream::{Error, ErrorKind};

use crate::priced_usage::{Listed, PricedUsage};

/// The published prices and context windows of models, in US dollars. Cheap to clone.
///
/// By default, the name of a model determines the provider: `gpt-5` is OpenAI's model, and
/// `claude-opus-4-6` is Anthropic's. For models that another provider serves, whose prices may
/// differ, use [`of_provider`](Self::of_provider).
///
/// ```
/// use turnstream::context::ContextWindows;
/// use turnstream_prices::BundledPrices;
///
/// let prices = BundledPrices::new();
/// assert_eq!(prices.context_window("claude-opus-4-6"), Some(1_000_000));
/// assert_eq!(prices.context_window("my-model"), None);
///
/// let groq = BundledPrices::new().of_provider("groq")?;
/// assert_eq!(groq.context_window("openai/gpt-oss-120b"), Some(131_072));
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Clone)]
pub struct BundledPrices {
    data: Data,
    /// The id of the provider that serves all models. If it is `None`, the name of a model
    /// determines the provider.
    provider: Option<Arc<str>>,
}

#[derive(Clone)]
enum Data {
    Bundled(&'static Calculator),
    Loaded(Arc<Calculator>),
}

impl Data {
    fn calculator(&self) -> &Calculator {
        match self {
            Self::Bundled(calculator) => calculator,
            Self::Loaded(calculator) => calculator,
        }
    }
}

impl BundledPrices {
    /// Creates the source from the data that is part of the crate. The first call in a process
    /// decodes the data, which takes some tens of milliseconds.
    pub fn new() -> Self {
        Self { data: Data::Bundled(Calculator::bundled()), provider: None }
    }

    /// Creates the source from a newer file of
    /// [genai-prices](https://github.com/pydantic/genai-prices): the content of
    /// `prices/new_data/v2/data.json`, however you get it.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the file is not valid.
    pub fn from_json(data: impl AsRef<[u8]>) -> Result<Self, Error> {
        match Calculator::from_json(data) {
            Ok(calculator) => Ok(Self { data: Data::Loaded(Arc::new(calculator)), provider: None }),
            Err(error) => {
                let message = "the price data is not valid";
                Err(Error::new(ErrorKind::InvalidRequest, message).with_source(error))
            }
        }
    }

    /// Uses the prices of one provider for all models, such as `azure`, `groq` or `openrouter`. See
    /// the [list of
    /// providers](https://github.com/pydantic/genai-prices/tree/main/prices/providers).
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the data has no such
    /// provider.
    pub fn of_provider(mut self, provider: &str) -> Result<Self, Error> {
        let found = self.data.calculator().find_provider(Some(provider), None);
        match found.ok().flatten().map(|found| Arc::from(found.id())) {
            Some(id) => {
                self.provider = Some(id);
                Ok(self)
            }
            None => {
                let message = format!("no prices for the provider `{provider}`");
                Err(Error::new(ErrorKind::InvalidRequest, message))
            }
        }
    }

    fn find(&self, model: &str) -> Option<Listed> {
        Listed::find(self.data.calculator(), self.provider.as_deref(), model)
    }
}

impl Default for BundledPrices {
    fn default() -> Self {
        Self::new()
    }
}

impl PriceSource for BundledPrices {
    fn find_name(&self, model: &str) -> Option<NameMatch> {
        match self.find(model)?.model.eq_ignore_ascii_case(model) {
            true => Some(NameMatch::Exact),
            false => Some(NameMatch::ByRule),
        }
    }

    fn cost(&self, request: &PricedRequest<'_>) -> Option<Cost> {
        let listed = self.find(request.model)?;
        PricedUsage::new(self.data.calculator(), request, listed).cost()
    }
}

impl ContextWindows for BundledPrices {
    fn context_window(&self, model: &str) -> Option<u64> {
        let listed = self.find(model)?;
        let calculator = self.data.calculator();
        let found = calculator.find_provider(Some(&listed.provider), None).ok().flatten();
        // Some providers serve the models of others, which are listed there.
        let providers = found.into_iter().chain(calculator.providers());
        let mut models = providers.flat_map(genai_prices::ProviderInfo::models);
        models.find(|model| model.id() == listed.model)?.context_window()
    }
}

impl fmt::Debug for BundledPrices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BundledPrices").field("provider", &self.provider).finish_non_exhaustive()
    }
}
