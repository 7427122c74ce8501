//! The selected provider, with its address, its API key and its model.

use std::sync::Arc;
use std::time::Duration;

use turnstream::error::AuthProblem;
use turnstream::http::HttpClient;
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{Anthropic, Gemini, Ollama, OpenAiChat, OpenAiResponses, Provider};
use turnstream::stream::TurnStream;
use turnstream::{Error, ErrorKind, Request};
use turnstream_testing::ModelServer;

use crate::args::Args;
use crate::offline;
pub use crate::provider_name::ProviderName;
use crate::provider_name::{DIALECT_VENDORS, PROVIDERS, ProviderDefaults, dialect_for_url};

/// Applies the same settings to any provider, through the methods of its own type.
macro_rules! configure_provider {
    ($provider:expr, $base_url:expr, $key:expr, $plain_http:expr) => {{
        let mut provider = $provider;
        if $plain_http {
            provider = provider.allow_plain_http();
        }
        if let Some(url) = $base_url {
            provider = provider.with_base_url(url)?;
        }
        if let Some(key) = $key {
            provider = provider.with_api_key(key);
        }
        Ok(Arc::new(provider))
    }};
}

/// The selected provider and its settings.
#[derive(PartialEq)]
pub struct ProviderChoice {
    /// The provider.
    pub name: ProviderName,
    /// The name of the model.
    pub model: String,
    /// `None` if the server is unknown.
    pub(crate) dialect: Option<&'static Dialect>,
    pub(crate) base_url: Option<String>,
    api_key: Option<String>,
    plain_http: bool,
    /// The environment variable of the key; empty for none.
    pub(crate) key_variable: &'static str,
    /// The offline model's pause after each word.
    pub offline_pause: Duration,
}

impl ProviderChoice {
    /// Selects the provider. `env` returns environment variables; empty ones count as unset.
    pub fn from_args(args: &Args, env: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let env = |name: &str| {
            let value = (!name.is_empty()).then(|| env(name)).flatten()?;
            let value = value.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let decides = |entry: &&ProviderDefaults| {
            entry.name != ProviderName::Ollama && env(entry.key_variable).is_some()
        };
        let with_key = || PROVIDERS.iter().find(decides);
        let is_chat = args.base_url.is_some() || args.dialect.is_some();
        let name = match (args.provider, is_chat) {
            (Some(name), _) => name,
            (None, true) => ProviderName::OpenAi,
            (None, false) => match with_key() {
                Some(entry) => entry.name,
                None if env("OPENAI_BASE_URL").is_some() => ProviderName::OpenAi,
                None => ProviderName::Offline,
            },
        };
        if name == ProviderName::Offline && args.base_url.is_some() {
            return Err("the offline model has no `--base-url`".to_owned());
        }
        let entry = name.defaults().ok_or("there is no such provider")?;
        if name != ProviderName::Offline && args.offline_delay.is_some() {
            let other = entry.cli_name;
            return Err(format!("`--offline-delay` is for `offline`, and not for `{other}`"));
        }
        let base_url = args.base_url.clone().or_else(|| env(entry.base_url_variable));
        let dialect = match (name, args.dialect) {
            (ProviderName::OpenAi, None) => base_url.as_deref().and_then(dialect_for_url),
            (ProviderName::OpenAi, Some(dialect))
                if dialect.base_url.is_empty() && base_url.is_none() =>
            {
                return Err(format!(
                    "the dialect `{}` has no default URL; give `--base-url`",
                    dialect.name
                ));
            }
            (ProviderName::OpenAi, given @ Some(_)) => given,
            (_, None) => None,
            (_, Some(_)) => {
                return Err(format!(
                    "`--dialect` is for `openai`, and not for `{}`",
                    entry.cli_name
                ));
            }
        };
        let vendor =
            DIALECT_VENDORS.iter().find(|(its, ..)| dialect.is_some_and(|of| of.name == its.name));
        let model = vendor.map_or(entry.model, |(_, _, model)| model);
        // One vendor's key must not be sent to another vendor's usual address.
        let elsewhere = base_url.is_none() && vendor.is_some();
        let variable = vendor.map_or(entry.key_variable, |(_, key, _)| key);
        let key = vendor.and_then(|(_, key, _)| env(key));
        Ok(Self {
            name,
            api_key: key.or_else(|| env(entry.key_variable).filter(|_| !elsewhere)),
            model: args.model.clone().unwrap_or_else(|| model.to_owned()),
            dialect,
            base_url,
            plain_http: args.plain_http,
            key_variable: variable,
            offline_pause: args.offline_delay.unwrap_or_default(),
        })
    }

    /// Describes the model for the user.
    pub fn describe(&self) -> String {
        match self.name {
            ProviderName::Offline => "the offline model, whose words are scripted".to_owned(),
            name => format!("{} ({})", self.model, name.as_str()),
        }
    }

    /// Builds the provider. No request is sent; only the offline model starts its server here.
    ///
    /// # Errors
    ///
    /// Describes the error in terms of the command line.
    pub async fn build_provider(self) -> Result<Arc<dyn Provider>, Error> {
        let key_variable = self.key_variable;
        let built = self.build().await;
        built.map_err(|error| {
            let message = describe_error(&error, key_variable);
            Error::new(error.kind(), message).with_source(error)
        })
    }

    async fn build(self) -> Result<Arc<dyn Provider>, Error> {
        let Self {
            name, model, dialect, base_url, api_key: key, plain_http, offline_pause, ..
        } = self;
        match name {
            ProviderName::Offline => {
                Ok(Arc::new(OfflineProvider::start(&model, offline_pause).await?))
            }
            ProviderName::Anthropic => {
                configure_provider!(Anthropic::new(model), base_url, key, plain_http)
            }
            ProviderName::OpenAi => {
                let chat = OpenAiChat::new(model);
                let chat = match dialect {
                    Some(dialect) => chat.with_dialect(*dialect),
                    None => chat,
                };
                configure_provider!(chat, base_url, key, plain_http)
            }
            ProviderName::OpenAiResponses => {
                configure_provider!(OpenAiResponses::new(model), base_url, key, plain_http)
            }
            ProviderName::Gemini => {
                configure_provider!(Gemini::new(model), base_url, key, plain_http)
            }
            ProviderName::Ollama => {
                configure_provider!(Ollama::new(model), base_url, key, plain_http)
            }
        }
    }
}

/// Describes an error in terms of the command line. `variable` is the environment variable of the
/// key.
pub(crate) fn describe_error(error: &Error, variable: &str) -> String {
    let message = error.message().replace("`allow_plain_http`", "`--plain-http`");
    match error.auth_problem() {
        Some(AuthProblem::MissingKey) if !variable.is_empty() => {
            format!("{message}; it is read from `{variable}`")
        }
        _ => message,
    }
}

/// A scripted model on a local server, so that the whole code path runs without a network.
struct OfflineProvider {
    client: Anthropic,
    /// Dropping the server closes its connections.
    _server: ModelServer,
}

impl OfflineProvider {
    async fn start(model: &str, pause: Duration) -> Result<Self, Error> {
        let server = ModelServer::anthropic(move |body, _| offline::reply(body, pause))
            .await
            .map_err(|error| {
                let message = format!("the offline model's server cannot start: {error}");
                Error::new(ErrorKind::Connect, message).with_source(error)
            })?;
        let client = Anthropic::new(model)
            .with_base_url(server.url())?
            // The loopback device needs no proxy, whatever the environment says.
            .with_http_client(HttpClient::without_proxy());
        Ok(Self { client, _server: server })
    }
}

impl Provider for OfflineProvider {
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
    use crate::provider_name::parse_dialect;

    fn choose_provider(args: &Args, env: &[(&str, &str)]) -> Result<ProviderChoice, String> {
        let get = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        ProviderChoice::from_args(args, get)
    }

    fn assert_choice(
        args: &Args,
        env: &[(&str, &str)],
        expected: (ProviderName, &str, Option<&str>, Option<&str>),
    ) {
        let Ok(choice) = choose_provider(args, env) else { panic!("{args:?} is bad usage") };
        let base_url = choice.base_url.as_deref();
        let found = (choice.name, choice.model.as_str(), base_url, choice.api_key.as_deref());
        assert_eq!(found, expected, "{args:?} {env:?}");
    }

    #[test]
    fn the_provider_flag_takes_precedence_over_the_url_and_the_keys() {
        let none = Args::default();
        let keys = [("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a"), ("GEMINI_API_KEY", "g")];
        assert_choice(&none, &[], (ProviderName::Offline, "offline", None, None));
        assert_choice(
            &none,
            &keys,
            (ProviderName::Anthropic, "claude-sonnet-4-5", None, Some("a")),
        );
        assert_choice(&none, &keys[..1], (ProviderName::OpenAi, "gpt-5-mini", None, Some("o")));
        assert_choice(
            &none,
            &keys[2..],
            (ProviderName::Gemini, "gemini-2.5-flash", None, Some("g")),
        );
        let url = Args { base_url: Some("u".to_owned()), ..Args::default() };
        assert_choice(&url, &keys, (ProviderName::OpenAi, "gpt-5-mini", Some("u"), Some("o")));
        assert_choice(&url, &[], (ProviderName::OpenAi, "gpt-5-mini", Some("u"), None));
        let offline = Args { provider: Some(ProviderName::Offline), ..Args::default() };
        assert_choice(&offline, &keys, (ProviderName::Offline, "offline", None, None));
        let both = Args { provider: Some(ProviderName::Anthropic), ..url };
        assert_choice(
            &both,
            &keys,
            (ProviderName::Anthropic, "claude-sonnet-4-5", Some("u"), Some("a")),
        );
    }

    #[test]
    fn a_base_url_variable_applies_only_to_its_provider() {
        let env = [("OPENAI_BASE_URL", "o"), ("ANTHROPIC_BASE_URL", "a")];
        assert_choice(&Args::default(), &env[1..], (ProviderName::Offline, "offline", None, None));
        let args = Args { provider: Some(ProviderName::OpenAi), ..Args::default() };
        assert_choice(&args, &env, (ProviderName::OpenAi, "gpt-5-mini", Some("o"), None));
        let args = Args { base_url: Some("flag".to_owned()), ..args };
        assert_choice(&args, &env, (ProviderName::OpenAi, "gpt-5-mini", Some("flag"), None));
        let args = Args { provider: Some(ProviderName::Anthropic), ..Args::default() };
        assert_choice(&args, &env, (ProviderName::Anthropic, "claude-sonnet-4-5", Some("a"), None));
    }

    #[test]
    fn an_openai_base_url_without_a_key_selects_openai() {
        let none = Args::default();
        let mut env = vec![("OPENAI_BASE_URL", "o"), ("ANTHROPIC_BASE_URL", "a")];
        assert_choice(&none, &env, (ProviderName::OpenAi, "gpt-5-mini", Some("o"), None));
        env.push(("ANTHROPIC_API_KEY", "k"));
        assert_choice(
            &none,
            &env,
            (ProviderName::Anthropic, "claude-sonnet-4-5", Some("a"), Some("k")),
        );
        let offline = Args { provider: Some(ProviderName::Offline), ..none };
        assert_choice(&offline, &env, (ProviderName::Offline, "offline", None, None));
    }

    #[test]
    fn the_dialect_is_taken_from_the_flag_or_the_host() {
        for (url, given, expected) in [
            ("https://api.deepseek.com", None, Some("deepseek")),
            ("https://API.DeepSeek.com/v1/?x=/y", None, Some("deepseek")),
            ("https://openrouter.ai/api/v1", None, Some("openrouter")),
            ("https://api.together.ai/v1", None, Some("together")),
            ("https://mine.openai.azure.com/openai/v1", None, Some("azure")),
            ("https://api.openai.com/v1", None, Some("openai_chat")),
            ("http://127.0.0.1:11434/v1", None, Some("ollama")),
            ("http://localhost:8080", None, Some("llama_cpp")),
            ("http://localhost:9999", None, None),
            ("https://api.deepseek.com.example.org/v1", None, None),
            ("https://example.org/https://api.deepseek.com", None, None),
            ("no url", None, None),
            ("https://api.deepseek.com", Some("LM-Studio"), Some("lm_studio")),
            ("http://localhost:8080", Some("openai"), Some("openai_chat")),
        ] {
            let given = given.map(|name| parse_dialect(name).unwrap());
            let args = Args { base_url: Some(url.to_owned()), dialect: given, ..Args::default() };
            let choice =
                choose_provider(&args, &[]).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(choice.dialect.map(|dialect| dialect.name), expected, "{url}");
            let args = Args { dialect: given, ..Args::default() };
            let choice = choose_provider(&args, &[("OPENAI_BASE_URL", url)])
                .unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(choice.dialect.map(|dialect| dialect.name), expected, "{url}");
        }
    }

    #[test]
    fn a_dialect_has_its_own_url_model_and_key() {
        let args = Args { dialect: Some(&Dialect::DEEPSEEK), ..Args::default() };
        let mut env = vec![("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "o")];
        assert_choice(&args, &env, (ProviderName::OpenAi, "deepseek-chat", None, None));
        let url = "http://localhost:1";
        let proxy = Args { base_url: Some(url.to_owned()), ..args };
        assert_choice(&proxy, &env, (ProviderName::OpenAi, "deepseek-chat", Some(url), Some("o")));
        let args = Args { base_url: None, ..proxy };
        env.push(("DEEPSEEK_API_KEY", "d"));
        assert_choice(&args, &env, (ProviderName::OpenAi, "deepseek-chat", None, Some("d")));
        let nowhere = Args { dialect: Some(&Dialect::LITELLM), ..Args::default() };
        assert!(
            choose_provider(&nowhere, &[]).err().unwrap().contains("`litellm` has no default URL")
        );
        let other = Args { provider: Some(ProviderName::Gemini), ..args };
        assert!(choose_provider(&other, &[]).err().unwrap().contains("not for `gemini`"));
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let env = [("ANTHROPIC_API_KEY", ""), ("OPENAI_API_KEY", " o\n"), ("OPENAI_BASE_URL", " ")];
        assert_choice(
            &Args::default(),
            &env,
            (ProviderName::OpenAi, "gpt-5-mini", None, Some("o")),
        );
    }

    #[test]
    fn a_model_flag_is_used() {
        let args = Args { model: Some("m".to_owned()), ..Args::default() };
        assert_choice(&args, &[], (ProviderName::Offline, "m", None, None));
    }

    #[test]
    fn the_responses_api_is_selected_by_name_and_uses_the_openai_key() {
        let env = [("OPENAI_API_KEY", "o"), ("OPENAI_BASE_URL", "u")];
        let args = Args { provider: Some(ProviderName::OpenAiResponses), ..Args::default() };
        assert_choice(
            &args,
            &env,
            (ProviderName::OpenAiResponses, "gpt-5-mini", Some("u"), Some("o")),
        );
    }

    #[test]
    fn ollama_is_selected_only_by_name_and_needs_no_key() {
        let env = [("OLLAMA_API_KEY", "k"), ("OLLAMA_BASE_URL", "u")];
        assert_choice(&Args::default(), &env, (ProviderName::Offline, "offline", None, None));
        let args = Args { provider: Some(ProviderName::Ollama), ..Args::default() };
        assert_choice(
            &args,
            &[("OPENAI_API_KEY", "o")],
            (ProviderName::Ollama, "qwen3:8b", None, None),
        );
        assert_choice(&args, &env, (ProviderName::Ollama, "qwen3:8b", Some("u"), Some("k")));
    }

    #[test]
    fn only_the_offline_model_can_be_slowed() {
        let pause = Duration::from_millis(20);
        let args = Args { offline_delay: Some(pause), ..Args::default() };
        let choice = choose_provider(&args, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((choice.name, choice.offline_pause), (ProviderName::Offline, pause));
        let error = choose_provider(&args, &[("OPENAI_API_KEY", "o")]).err().unwrap();
        assert_eq!(error, "`--offline-delay` is for `offline`, and not for `openai`");
    }

    #[test]
    fn an_unknown_provider_or_dialect_is_bad_usage() {
        assert!(ProviderName::parse("acme").unwrap_err().contains("there are anthropic, openai, "));
        let args = Args {
            provider: Some(ProviderName::Offline),
            base_url: Some("u".to_owned()),
            ..Args::default()
        };
        assert!(choose_provider(&args, &[]).is_err());
    }
}
