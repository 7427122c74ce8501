//! Who speaks: which provider, under which address, with which key and model.

use std::sync::Arc;

use turnstream::http::HttpClient;
use turnstream::provider::{Anthropic, Gemini, OpenAiChat, OpenAiResponses, Provider};
use turnstream::stream::TurnStream;
use turnstream::testing::ModelServer;
use turnstream::{Error, ErrorKind, Request};

use crate::args::Args;
use crate::offline;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Name {
    Offline,
    Anthropic,
    OpenAi,
    OpenAiResponses,
    Gemini,
}

/// What is known of a provider without asking anybody.
struct Entry {
    name: Name,
    written: &'static str,
    model: &'static str,
    /// The environment variables of its key and its address; empty for none.
    key: &'static str,
    base_url: &'static str,
}

/// The order is that in which keys are looked for.
const TABLE: &[Entry] = &[
    Entry {
        name: Name::Anthropic,
        written: "anthropic",
        model: "claude-sonnet-4-5",
        key: "ANTHROPIC_API_KEY",
        base_url: "ANTHROPIC_BASE_URL",
    },
    Entry {
        name: Name::OpenAi,
        written: "openai",
        model: "gpt-5-mini",
        key: "OPENAI_API_KEY",
        base_url: "OPENAI_BASE_URL",
    },
    Entry {
        name: Name::OpenAiResponses,
        written: "openai-responses",
        model: "gpt-5-mini",
        key: "OPENAI_API_KEY",
        base_url: "OPENAI_BASE_URL",
    },
    Entry {
        name: Name::Gemini,
        written: "gemini",
        model: "gemini-2.5-flash",
        key: "GEMINI_API_KEY",
        base_url: "GEMINI_BASE_URL",
    },
    Entry { name: Name::Offline, written: "offline", model: "offline", key: "", base_url: "" },
];

impl Name {
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        let Some(entry) = TABLE.iter().find(|entry| entry.written == word) else {
            let names: Vec<_> = TABLE.iter().map(|entry| entry.written).collect();
            return Err(format!("there is no provider `{word}`; there are {}", names.join(", ")));
        };
        Ok(entry.name)
    }

    pub(crate) fn as_str(self) -> &'static str {
        self.entry().map_or("?", |entry| entry.written)
    }

    fn entry(self) -> Option<&'static Entry> {
        TABLE.iter().find(|entry| entry.name == self)
    }
}

/// The providers are told the same things, each by methods of its own.
macro_rules! configured {
    ($provider:expr, $base_url:expr, $key:expr) => {{
        let mut provider = $provider;
        if let Some(url) = $base_url {
            provider = provider.with_base_url(url)?;
        }
        if let Some(key) = $key {
            provider = provider.with_api_key(key);
        }
        Ok(Arc::new(provider))
    }};
}

/// Whom to ask, decided.
#[derive(PartialEq)]
pub(crate) struct Choice {
    pub(crate) name: Name,
    pub(crate) model: String,
    base_url: Option<String>,
    key: Option<String>,
}

impl Choice {
    /// Decides. `env` gives environment variables; empty ones count as unset.
    pub(crate) fn new(args: &Args, env: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let env = |name: &str| {
            let value = (!name.is_empty()).then(|| env(name)).flatten()?;
            let value = value.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let with_key = || TABLE.iter().find(|entry| env(entry.key).is_some());
        let name = match (args.provider, &args.base_url) {
            (Some(name), _) => name,
            (None, Some(_)) => Name::OpenAi,
            (None, None) => with_key().map_or(Name::Offline, |entry| entry.name),
        };
        if name == Name::Offline && args.base_url.is_some() {
            return Err("the offline model has no `--base-url`".to_owned());
        }
        let entry = name.entry().ok_or("there is no such provider")?;
        Ok(Self {
            name,
            model: args.model.clone().unwrap_or_else(|| entry.model.to_owned()),
            base_url: args.base_url.clone().or_else(|| env(entry.base_url)),
            key: env(entry.key),
        })
    }

    /// Makes the provider. Nothing is asked yet; only the offline model starts its server here.
    pub(crate) async fn connect(self) -> Result<Arc<dyn Provider>, Error> {
        let Self { name, model, base_url, key } = self;
        match name {
            Name::Offline => Ok(Arc::new(Offline::start(&model).await?)),
            Name::Anthropic => configured!(Anthropic::new(model), base_url, key),
            Name::OpenAi => configured!(OpenAiChat::new(model), base_url, key),
            Name::OpenAiResponses => configured!(OpenAiResponses::new(model), base_url, key),
            Name::Gemini => configured!(Gemini::new(model), base_url, key),
        }
    }
}

/// A scripted model behind a server of its own, so that the whole path runs without a network.
struct Offline {
    client: Anthropic,
    /// Dropping it closes its connections.
    _server: ModelServer,
}

impl Offline {
    async fn start(model: &str) -> Result<Self, Error> {
        let server =
            ModelServer::anthropic(|body, _| offline::reply(body)).await.map_err(|error| {
                let message = format!("the offline model's server cannot start: {error}");
                Error::new(ErrorKind::Connect, message).with_source(error)
            })?;
        let client = Anthropic::new(model)
            .with_base_url(server.url())?
            // The loopback device is behind no proxy, whatever the environment says.
            .with_http(HttpClient::without_proxy());
        Ok(Self { client, _server: server })
    }
}

impl Provider for Offline {
    fn stream_turn(&self, request: Request) -> TurnStream {
        self.client.stream_turn(request)
    }

    fn model(&self) -> &str {
        self.client.model()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(args: &Args, env: &[(&str, &str)]) -> Result<Choice, String> {
        let get = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Choice::new(args, get)
    }

    fn check(
        args: &Args,
        env: &[(&str, &str)],
        expected: (Name, &str, Option<&str>, Option<&str>),
    ) {
        let Ok(choice) = choose(args, env) else { panic!("{args:?} is bad usage") };
        let base_url = choice.base_url.as_deref();
        let found = (choice.name, choice.model.as_str(), base_url, choice.key.as_deref());
        assert_eq!(found, expected, "{args:?} {env:?}");
    }

    #[test]
    fn the_flag_comes_first_then_the_address_then_the_keys() {
        let none = Args::default();
        let keys = [("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a"), ("GEMINI_API_KEY", "g")];
        check(&none, &[], (Name::Offline, "offline", None, None));
        check(&none, &keys, (Name::Anthropic, "claude-sonnet-4-5", None, Some("a")));
        check(&none, &keys[..1], (Name::OpenAi, "gpt-5-mini", None, Some("o")));
        check(&none, &keys[2..], (Name::Gemini, "gemini-2.5-flash", None, Some("g")));
        let url = Args { base_url: Some("u".to_owned()), ..Args::default() };
        check(&url, &keys, (Name::OpenAi, "gpt-5-mini", Some("u"), Some("o")));
        check(&url, &[], (Name::OpenAi, "gpt-5-mini", Some("u"), None));
        let offline = Args { provider: Some(Name::Offline), ..Args::default() };
        check(&offline, &keys, (Name::Offline, "offline", None, None));
        let both = Args { provider: Some(Name::Anthropic), ..url };
        check(&both, &keys, (Name::Anthropic, "claude-sonnet-4-5", Some("u"), Some("a")));
    }

    #[test]
    fn an_address_of_the_environment_is_for_its_provider_only() {
        let env = [("OPENAI_BASE_URL", "o"), ("ANTHROPIC_BASE_URL", "a")];
        check(&Args::default(), &env, (Name::Offline, "offline", None, None));
        let args = Args { provider: Some(Name::OpenAi), ..Args::default() };
        check(&args, &env, (Name::OpenAi, "gpt-5-mini", Some("o"), None));
        let args = Args { base_url: Some("flag".to_owned()), ..args };
        check(&args, &env, (Name::OpenAi, "gpt-5-mini", Some("flag"), None));
        let args = Args { provider: Some(Name::Anthropic), ..Args::default() };
        check(&args, &env, (Name::Anthropic, "claude-sonnet-4-5", Some("a"), None));
    }

    #[test]
    fn an_empty_variable_is_unset() {
        let env = [("ANTHROPIC_API_KEY", ""), ("OPENAI_API_KEY", " o\n"), ("OPENAI_BASE_URL", " ")];
        check(&Args::default(), &env, (Name::OpenAi, "gpt-5-mini", None, Some("o")));
    }

    #[test]
    fn a_named_model_is_taken() {
        let args = Args { model: Some("m".to_owned()), ..Args::default() };
        check(&args, &[], (Name::Offline, "m", None, None));
    }

    #[test]
    fn responses_are_asked_for_by_name_and_have_the_vendors_key() {
        let env = [("OPENAI_API_KEY", "o"), ("OPENAI_BASE_URL", "u")];
        let args = Args { provider: Some(Name::OpenAiResponses), ..Args::default() };
        check(&args, &env, (Name::OpenAiResponses, "gpt-5-mini", Some("u"), Some("o")));
    }

    #[test]
    fn what_there_is_not_is_bad_usage() {
        assert!(Name::parse("acme").unwrap_err().contains("there are anthropic, openai, "));
        let args = Args {
            provider: Some(Name::Offline),
            base_url: Some("u".to_owned()),
            ..Args::default()
        };
        assert!(choose(&args, &[]).is_err());
    }
}
