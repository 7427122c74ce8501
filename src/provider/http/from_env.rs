//! Chooses a provider based on the API keys in the environment or on a model name.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::provider::wires::openai_chat::Dialect;
use crate::provider::{Anthropic, Gemini, HttpProvider, Ollama, OpenAiChat, Provider, Wire};

/// A vendor with its environment variables and its default model.
struct Vendor {
    /// The vendor's name, which precedes the colon in `vendor:model`.
    name: &'static str,
    key_variables: &'static [&'static str],
    /// The environment variable that overrides the vendor's base URL, or an empty string if the
    /// vendor has no such variable.
    base_url_variable: &'static str,
    /// The name of the vendor's default model.
    model: &'static str,
    /// The prefixes of model names that only this vendor uses.
    model_prefixes: &'static [&'static str],
    wire: VendorWire,
}

enum VendorWire {
    Anthropic,
    /// The Chat Completions wire, with its dialect, or `None` if the dialect depends on the base
    /// URL.
    OpenAiChat(Option<&'static Dialect>),
    Gemini,
    Ollama,
}

/// The vendors, in the order in which their API keys are looked up.
const VENDORS: &[Vendor] = &[
    Vendor::new("anthropic", "claude-sonnet-4-5", VendorWire::Anthropic)
        .with_key_variables(&["ANTHROPIC_API_KEY"])
        .with_base_url_variable("ANTHROPIC_BASE_URL")
        .with_model_prefixes(&["claude-"]),
    Vendor::new("openai", "gpt-5-mini", VendorWire::OpenAiChat(None))
        .with_key_variables(&["OPENAI_API_KEY"])
        .with_base_url_variable("OPENAI_BASE_URL")
        .with_model_prefixes(&["gpt-4", "gpt-5", "chatgpt-", "o1", "o3", "o4"]),
    Vendor::new("gemini", "gemini-2.5-flash", VendorWire::Gemini)
        .with_key_variables(&["GEMINI_API_KEY", "GOOGLE_API_KEY"])
        .with_base_url_variable("GEMINI_BASE_URL")
        .with_model_prefixes(&["gemini-"]),
    Vendor::new(
        "openrouter",
        "openrouter/auto",
        VendorWire::OpenAiChat(Some(&Dialect::OPENROUTER)),
    )
    .with_key_variables(&["OPENROUTER_API_KEY"])
    .with_model_prefixes(&["openrouter/"]),
    Vendor::new("groq", "openai/gpt-oss-20b", VendorWire::OpenAiChat(Some(&Dialect::GROQ)))
        .with_key_variables(&["GROQ_API_KEY"]),
    Vendor::new("deepseek", "deepseek-chat", VendorWire::OpenAiChat(Some(&Dialect::DEEPSEEK)))
        .with_key_variables(&["DEEPSEEK_API_KEY"])
        .with_model_prefixes(&["deepseek-chat", "deepseek-reasoner"]),
    Vendor::new("mistral", "mistral-small-latest", VendorWire::OpenAiChat(Some(&Dialect::MISTRAL)))
        .with_key_variables(&["MISTRAL_API_KEY"])
        .with_model_prefixes(&["mistral-", "ministral-", "magistral-", "codestral-", "pixtral-"]),
    Vendor::new("together", "openai/gpt-oss-20b", VendorWire::OpenAiChat(Some(&Dialect::TOGETHER)))
        .with_key_variables(&["TOGETHER_API_KEY"]),
    Vendor::new("ollama", "", VendorWire::Ollama).with_base_url_variable("OLLAMA_BASE_URL"),
];

/// Creates a provider for the first API key that is set in the environment. The provider uses this
/// crate's default model for the vendor that the key belongs to.
///
/// Keys are looked up in this order: `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY` (or
/// `GOOGLE_API_KEY`), `OPENROUTER_API_KEY`, `GROQ_API_KEY`, `DEEPSEEK_API_KEY`, `MISTRAL_API_KEY`,
/// `TOGETHER_API_KEY`. Empty variables are treated as unset. `ANTHROPIC_BASE_URL`,
/// `OPENAI_BASE_URL` and `GEMINI_BASE_URL` override the base URLs of the first three vendors.
///
/// # Errors
///
/// Returns an [`Auth`](ErrorKind::Auth) error if no key is set, and an
/// [`InvalidRequest`](ErrorKind::InvalidRequest) error if a base URL is invalid.
///
/// ```
/// use turnstream::{Agent, provider};
///
/// match provider::from_env() {
///     Ok(model) => println!("{:?} is ready", Agent::new(model)),
///     Err(error) => println!("set a key first: {error}"),
/// }
/// ```
pub fn from_env() -> Result<Arc<dyn Provider>, Error> {
    first_vendor_with_key(&|name| std::env::var(name).ok())?.into_provider()
}

/// Creates a provider for a model name, using the vendor's API key from the environment.
///
/// Names such as `claude-…`, `gpt-…`, `o3`, `gemini-…` and `mistral-…` each belong to a single
/// vendor. For a model that several vendors may serve, prefix the name with the vendor and a colon:
/// `groq:openai/gpt-oss-20b`, `openrouter:…`, `together:…`, `ollama:…`.
///
/// For a name such as `ollama:…`, requests are sent to an [`Ollama`] server, which does not need a
/// key. The server's address is read from `OLLAMA_BASE_URL`, or else from `OLLAMA_HOST`, which can
/// have any form that Ollama itself accepts (`192.168.1.5`, `:8080`, `https://example.com`). If
/// neither variable is set, requests are sent to the local machine. If `OLLAMA_API_KEY` is set, its
/// value is sent as the key.
///
/// # Errors
///
/// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the name does not belong to a
/// known vendor or if the base URL is invalid. Returns an [`Auth`](ErrorKind::Auth) error if the
/// vendor's key is not set.
///
/// ```
/// use turnstream::ErrorKind;
/// use turnstream::provider::from_model_name;
///
/// let error = from_model_name("llama-4").err().expect("many serve it");
/// assert_eq!(error.kind(), ErrorKind::InvalidRequest);
/// assert!(error.message().contains("vendor:model"));
/// ```
pub fn from_model_name(model: &str) -> Result<Arc<dyn Provider>, Error> {
    vendor_by_model(model, &|name| std::env::var(name).ok())?.into_provider()
}

/// A vendor, with its settings from the environment and the chosen model.
struct SelectedVendor {
    vendor: &'static Vendor,
    model: String,
    key: Option<String>,
    base_url: Option<String>,
}

type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

fn first_vendor_with_key(env: Environment<'_>) -> Result<SelectedVendor, Error> {
    let vendor = VENDORS.iter().find(|vendor| vendor.key_from_env(env).is_some());
    let vendor = vendor.ok_or_else(|| {
        let keys: Vec<_> =
            VENDORS.iter().filter_map(|vendor| vendor.key_variables.first()).copied().collect();
        Error::new(ErrorKind::Auth, format!("no key is set; one of {}", keys.join(", ")))
    })?;
    Ok(vendor.select(vendor.model, env))
}

fn vendor_by_model(model: &str, env: Environment<'_>) -> Result<SelectedVendor, Error> {
    let named = model.split_once(':').and_then(|(name, model)| {
        let vendor = VENDORS.iter().find(|vendor| vendor.name == name)?;
        (!model.is_empty()).then_some((vendor, model))
    });
    let own = || {
        let begins =
            |vendor: &&Vendor| vendor.model_prefixes.iter().any(|begin| model.starts_with(begin));
        VENDORS.iter().find(begins).map(|vendor| (vendor, model))
    };
    let Some((vendor, model)) = named.or_else(own) else {
        let vendors: Vec<_> = VENDORS.iter().map(|vendor| vendor.name).collect();
        let message = format!(
            "the model `{model}` does not identify a single vendor; write vendor:model, with one \
             of {}",
            vendors.join(", ")
        );
        return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter("model"));
    };
    let picked = vendor.select(model, env);
    if let (None, Some(key)) = (&picked.key, vendor.key_variables.first()) {
        return Err(Error::new(ErrorKind::Auth, format!("{key} is not set")));
    }
    Ok(picked)
}

impl Vendor {
    const fn new(name: &'static str, model: &'static str, wire: VendorWire) -> Self {
        Self { name, key_variables: &[], base_url_variable: "", model, model_prefixes: &[], wire }
    }

    const fn with_key_variables(mut self, keys: &'static [&'static str]) -> Self {
        self.key_variables = keys;
        self
    }

    const fn with_base_url_variable(mut self, variable: &'static str) -> Self {
        self.base_url_variable = variable;
        self
    }

    const fn with_model_prefixes(mut self, begins: &'static [&'static str]) -> Self {
        self.model_prefixes = begins;
        self
    }

    fn key_from_env(&self, env: Environment<'_>) -> Option<String> {
        self.key_variables.iter().find_map(|name| non_empty_variable(env, name))
    }

    fn select(&'static self, model: &str, env: Environment<'_>) -> SelectedVendor {
        let base_url = (!self.base_url_variable.is_empty())
            .then(|| non_empty_variable(env, self.base_url_variable))
            .flatten();
        let (key, base_url) = match self.wire {
            VendorWire::Ollama => {
                (non_empty_variable(env, "OLLAMA_API_KEY"), ollama_base_url(base_url, env))
            }
            _ => (self.key_from_env(env), base_url),
        };
        SelectedVendor { vendor: self, model: model.to_owned(), key, base_url }
    }
}

/// Returns Ollama's base URL. If `OLLAMA_BASE_URL` ends with the path of one of Ollama's APIs, that
/// path is removed: `/v1` for Chat Completions, or `/api` for Ollama's own API.
fn ollama_base_url(base_url: Option<String>, env: Environment<'_>) -> Option<String> {
    let Some(url) = base_url else {
        return non_empty_variable(env, "OLLAMA_HOST").map(|host| ollama_host_url(&host));
    };
    let url = url.trim_end_matches('/');
    let root = ["/v1", "/api"].iter().find_map(|end| url.strip_suffix(end)).unwrap_or(url);
    Some(root.to_owned())
}

/// Converts the value of `OLLAMA_HOST` to a URL. The value has the form
/// `[scheme://]host[:port][/path]`, where all parts are optional. The port defaults to 11434 or, if
/// a scheme is given, to the scheme's usual port. An unspecified address such as `0.0.0.0` becomes
/// a loopback address. <https://github.com/ollama/ollama/blob/main/envconfig/config.go>
fn ollama_host_url(host: &str) -> String {
    let host = host.trim().trim_matches(['"', '\'']).trim();
    let (scheme, rest) = host.split_once("://").unwrap_or(match host {
        "ollama.com" => ("https", host),
        host => ("http", host),
    });
    let port = match scheme {
        "https" => "443",
        _ if host.contains("://") => "80",
        _ => "11434",
    };
    let (address, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let is_bare_ipv6 = address.parse::<std::net::Ipv6Addr>().is_ok();
    let (name, port) = match address.rsplit_once(':') {
        _ if is_bare_ipv6 => (format!("[{address}]"), port),
        Some((name, port)) if !port.ends_with(']') => (name.to_owned(), port),
        _ => (address.to_owned(), port),
    };
    let name = match name.as_str() {
        "" | "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        name => name,
    };
    format!("{scheme}://{name}:{port}{path}")
}

/// Returns the value of an environment variable, or `None` if the variable is unset or blank.
fn non_empty_variable(env: Environment<'_>, name: &str) -> Option<String> {
    let value = env(name)?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

impl SelectedVendor {
    fn into_provider(self) -> Result<Arc<dyn Provider>, Error> {
        match self.vendor.wire {
            VendorWire::Anthropic => self.build_provider(Anthropic::new),
            VendorWire::OpenAiChat(None) => self.build_provider(OpenAiChat::new),
            VendorWire::OpenAiChat(Some(dialect)) => {
                self.build_provider(|model| OpenAiChat::new(model).with_dialect(*dialect))
            }
            VendorWire::Gemini => self.build_provider(Gemini::new),
            VendorWire::Ollama => self.build_provider(Ollama::new),
        }
    }

    fn build_provider<W: Wire>(
        self,
        new: impl FnOnce(String) -> HttpProvider<W>,
    ) -> Result<Arc<dyn Provider>, Error> {
        let provider = new(self.model).with_api_key(self.key.unwrap_or_default());
        Ok(match self.base_url {
            Some(url) => Arc::new(provider.with_base_url(url)?),
            None => Arc::new(provider),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn env(set: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn the_first_key_in_order_decides() {
        let both = env(&[("GEMINI_API_KEY", "g"), ("OPENAI_API_KEY", " "), ("GROQ_API_KEY", "q")]);
        let picked = first_vendor_with_key(&both).unwrap();
        assert_eq!((picked.vendor.name, picked.key.as_deref()), ("gemini", Some("g")));
        let error = first_vendor_with_key(&env(&[])).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Auth);
        assert!(error.message().contains("ANTHROPIC_API_KEY"));
    }

    #[test]
    fn a_model_name_of_a_single_vendor_selects_it() {
        let keys = env(&[
            ("ANTHROPIC_API_KEY", "a"),
            ("OPENAI_API_KEY", "o"),
            ("GOOGLE_API_KEY", "g"),
            ("MISTRAL_API_KEY", "m"),
            ("GROQ_API_KEY", "q"),
            ("OPENAI_BASE_URL", "http://localhost:1/v1"),
        ]);
        let check = |name: &str, vendor: &str, model: &str| {
            let picked =
                vendor_by_model(name, &keys).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((picked.vendor.name, &*picked.model), (vendor, model));
            assert_eq!(picked.into_provider().unwrap().model(), model);
        };
        check("claude-opus-4-5", "anthropic", "claude-opus-4-5");
        check("gpt-5-mini", "openai", "gpt-5-mini");
        check("o3", "openai", "o3");
        check("gemini-2.5-pro", "gemini", "gemini-2.5-pro");
        check("codestral-latest", "mistral", "codestral-latest");
        check("groq:openai/gpt-oss-20b", "groq", "openai/gpt-oss-20b");
        check("ollama:qwen3:8b", "ollama", "qwen3:8b");
    }

    /// Answers requests with an error, and returns their bodies.
    fn receive_bodies(listener: &TcpListener, count: usize) -> Vec<Vec<u8>> {
        let receive = |_| {
            let mut request = BufReader::new(listener.accept().unwrap().0);
            let lines = request.by_ref().lines().map(Result::unwrap);
            let mut length = 0;
            for line in lines.take_while(|line| !line.is_empty()) {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            request.read_exact(&mut body).unwrap();
            let refusal = b"HTTP/1.1 400 \r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            request.get_mut().write_all(refusal).unwrap();
            body
        };
        (0..count).map(receive).collect()
    }

    #[tokio::test]
    async fn openai_with_a_custom_base_url_uses_the_compatible_dialect() {
        use crate::{History, Item, Request};
        use futures::StreamExt;

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let received = tokio::task::spawn_blocking(move || receive_bodies(&listener, 3));
        let env = |name: &str| match name {
            "OPENAI_API_KEY" => Some("o".to_owned()),
            "OPENAI_BASE_URL" => Some(url.clone()),
            _ => None,
        };
        let direct = OpenAiChat::new("gpt-5-mini").with_base_url(&*url).unwrap();
        let items = [Item::user("hi"), Item::system("be short"), Item::user("go on")];
        let mut request = Request::new(History::from_items("h", items));
        request.options.max_output_tokens = Some(100);
        for provider in [
            Arc::new(direct) as Arc<dyn Provider>,
            first_vendor_with_key(&env).unwrap().into_provider().unwrap(),
            vendor_by_model("gpt-5-mini", &env).unwrap().into_provider().unwrap(),
        ] {
            provider.stream_turn(request.clone()).collect::<Vec<_>>().await;
        }
        let bodies = received.await.unwrap();
        assert!(!bodies[0].is_empty());
        assert_eq!((&bodies[0], &bodies[0]), (&bodies[1], &bodies[2]));
    }

    #[test]
    fn ollama_uses_its_environment_variables_and_needs_no_key() {
        #[track_caller]
        fn check(set: &'static [(&str, &str)], url: Option<&str>, key: Option<&str>) {
            let picked = vendor_by_model("ollama:qwen3:8b", &env(set)).unwrap();
            assert_eq!((picked.base_url.as_deref(), picked.key.as_deref()), (url, key), "{set:?}");
            picked.into_provider().unwrap();
        }
        check(&[], None, None);
        check(&[("OLLAMA_API_KEY", "k")], None, Some("k"));
        let host = "http://10.0.0.1:1";
        for url in ["http://10.0.0.1:1", "http://10.0.0.1:1/", "http://10.0.0.1:1/v1"] {
            check(&[("OLLAMA_HOST", "b")], Some("http://b:11434"), None);
            let set: &'static [(&str, &str)] =
                Box::leak(Box::new([("OLLAMA_BASE_URL", url), ("OLLAMA_HOST", "b")]));
            check(set, Some(host), None);
        }
        check(&[("OLLAMA_BASE_URL", "https://ollama.com/api")], Some("https://ollama.com"), None);
    }

    #[test]
    fn ollama_host_is_parsed_in_every_form() {
        for (host, url) in [
            ("example.com", "http://example.com:11434"),
            ("example.com:1234", "http://example.com:1234"),
            (":1234", "http://127.0.0.1:1234"),
            ("http://example.com", "http://example.com:80"),
            ("https://example.com", "https://example.com:443"),
            ("https://example.com:1234/", "https://example.com:1234/"),
            ("https://example.com/ollama", "https://example.com:443/ollama"),
            ("example.com/ollama", "http://example.com:11434/ollama"),
            ("ollama.com", "https://ollama.com:443"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:1234", "http://127.0.0.1:1234"),
            ("[::1]", "http://[::1]:11434"),
            ("[::1]:1234", "http://[::1]:1234"),
            ("::1", "http://[::1]:11434"),
            ("[::]:1234", "http://[::1]:1234"),
            ("\"1.2.3.4\"", "http://1.2.3.4:11434"),
            (" '1.2.3.4' ", "http://1.2.3.4:11434"),
            ("\"\"", "http://127.0.0.1:11434"),
        ] {
            assert_eq!(ollama_host_url(host), url, "{host}");
            assert!(Ollama::new("m").with_base_url(ollama_host_url(host)).is_ok(), "{host}");
        }
        for odd in ["1.2.3.4:70000", "1.2.3.4:x", "ftp://a"] {
            let error = Ollama::new("m").with_base_url(ollama_host_url(odd)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{odd}");
        }
    }

    #[test]
    fn an_ambiguous_model_name_or_a_missing_key_is_an_error() {
        let none = env(&[]);
        for name in ["llama-4", "openai/gpt-oss-20b", "gpt-oss-20b", "qwen3:8b", "groq:", ""] {
            let error = vendor_by_model(name, &none).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{name}");
        }
        let error = vendor_by_model("claude-opus-4-5", &none).err().unwrap();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Auth, "ANTHROPIC_API_KEY is not set")
        );
    }
}
