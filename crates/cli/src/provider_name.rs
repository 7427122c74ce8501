//! The names of providers and dialects on the command line, and their defaults.

use turnstream::provider::openai_chat::Dialect;

/// The providers of the flag `--provider`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProviderName {
    /// The offline model, whose replies are scripted.
    Offline,
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's Chat Completions, in any dialect.
    OpenAi,
    /// OpenAI's Responses API.
    OpenAiResponses,
    /// The Gemini API.
    Gemini,
    /// Ollama's own protocol.
    Ollama,
}

/// The built-in defaults of a provider.
pub(crate) struct ProviderDefaults {
    pub(crate) name: ProviderName,
    pub(crate) cli_name: &'static str,
    pub(crate) model: &'static str,
    /// The environment variables of its key and its address; empty for none.
    pub(crate) key_variable: &'static str,
    pub(crate) base_url_variable: &'static str,
}

/// Environment variables are searched for keys in this order. Ollama, which needs no key, has no
/// rank.
pub(crate) const PROVIDERS: &[ProviderDefaults] = &[
    ProviderDefaults {
        name: ProviderName::Anthropic,
        cli_name: "anthropic",
        model: "claude-sonnet-4-5",
        key_variable: "ANTHROPIC_API_KEY",
        base_url_variable: "ANTHROPIC_BASE_URL",
    },
    ProviderDefaults {
        name: ProviderName::OpenAi,
        cli_name: "openai",
        model: "gpt-5-mini",
        key_variable: "OPENAI_API_KEY",
        base_url_variable: "OPENAI_BASE_URL",
    },
    ProviderDefaults {
        name: ProviderName::OpenAiResponses,
        cli_name: "openai-responses",
        model: "gpt-5-mini",
        key_variable: "OPENAI_API_KEY",
        base_url_variable: "OPENAI_BASE_URL",
    },
    ProviderDefaults {
        name: ProviderName::Gemini,
        cli_name: "gemini",
        model: "gemini-2.5-flash",
        key_variable: "GEMINI_API_KEY",
        base_url_variable: "GEMINI_BASE_URL",
    },
    ProviderDefaults {
        name: ProviderName::Ollama,
        cli_name: "ollama",
        model: "qwen3:8b",
        key_variable: "OLLAMA_API_KEY",
        base_url_variable: "OLLAMA_BASE_URL",
    },
    ProviderDefaults {
        name: ProviderName::Offline,
        cli_name: "offline",
        model: "offline",
        key_variable: "",
        base_url_variable: "",
    },
];

/// The defaults of dialect vendors other than OpenAI: the variable of the key, and a model name.
pub(crate) const DIALECT_VENDORS: &[(&Dialect, &str, &str)] = &[
    (&Dialect::AZURE, "AZURE_OPENAI_API_KEY", "gpt-5-mini"),
    (&Dialect::OPENROUTER, "OPENROUTER_API_KEY", "openrouter/auto"),
    (&Dialect::GROQ, "GROQ_API_KEY", "openai/gpt-oss-20b"),
    (&Dialect::DEEPSEEK, "DEEPSEEK_API_KEY", "deepseek-chat"),
    (&Dialect::MISTRAL, "MISTRAL_API_KEY", "mistral-small-latest"),
    (&Dialect::TOGETHER, "TOGETHER_API_KEY", "openai/gpt-oss-20b"),
];

/// Further hosts of vendors, besides the usual address of their dialect. A leading dot includes all
/// subdomains.
const DIALECT_HOSTS: &[(&str, &Dialect)] = &[
    (".openai.azure.com", &Dialect::AZURE),
    (".cognitiveservices.azure.com", &Dialect::AZURE),
    (".services.ai.azure.com", &Dialect::AZURE),
    ("api.together.ai", &Dialect::TOGETHER),
];

/// The dialect with this name.
pub(crate) fn parse_dialect(word: &str) -> Result<&'static Dialect, String> {
    let word = word.trim().to_lowercase().replace('-', "_");
    // OpenAI's own dialect has the same name as its provider.
    let name = if word == "openai" { Dialect::OPENAI.name } else { &word };
    Dialect::ALL.iter().find(|dialect| dialect.name == name).ok_or_else(|| {
        let names: Vec<_> = Dialect::ALL.iter().map(|dialect| dialect.name).collect();
        format!("there is no dialect `{word}`; there are {}", names.join(", "))
    })
}

/// The dialect of the server at an address, if its host is known.
pub(crate) fn dialect_for_url(url: &str) -> Option<&'static Dialect> {
    let host = host_and_port(url)?;
    let is_usual = |dialect: &&Dialect| host_and_port(dialect.base_url).as_ref() == Some(&host);
    let known = |(name, _): &&(&str, &Dialect)| match name.starts_with('.') {
        true => host.ends_with(name),
        false => host == *name,
    };
    let usual = Dialect::ALL.iter().find(is_usual);
    usual.or_else(|| DIALECT_HOSTS.iter().find(known).map(|(_, dialect)| *dialect))
}

/// The host of an address, and its port if it has one.
fn host_and_port(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?.rsplit('@').next()?.to_lowercase();
    let authority = authority.trim_end_matches(":443").trim_end_matches('.');
    Some(match authority.strip_prefix("127.0.0.1") {
        Some(port) => format!("localhost{port}"),
        None => authority.to_owned(),
    })
}

impl ProviderName {
    /// Finds the provider with this name on the command line.
    pub fn parse(word: &str) -> Result<Self, String> {
        let Some(entry) = PROVIDERS.iter().find(|entry| entry.cli_name == word) else {
            let names: Vec<_> = PROVIDERS.iter().map(|entry| entry.cli_name).collect();
            return Err(format!("there is no provider `{word}`; there are {}", names.join(", ")));
        };
        Ok(entry.name)
    }

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        self.defaults().map_or("?", |entry| entry.cli_name)
    }

    pub(crate) fn defaults(self) -> Option<&'static ProviderDefaults> {
        PROVIDERS.iter().find(|entry| entry.name == self)
    }
}
