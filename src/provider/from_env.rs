//! Which provider a key, or the name of a model, stands for.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::provider::openai_chat::Dialect;
use crate::provider::{Anthropic, Gemini, HttpProvider, OpenAiChat, Provider, Wire};

/// A vendor as the environment knows it.
struct Vendor {
    /// As it stands before the colon of `vendor:model`.
    name: &'static str,
    keys: &'static [&'static str],
    /// Where its address is, if not at the vendor's own.
    base_url: &'static str,
    /// What is asked unless a model is named.
    model: &'static str,
    /// How the names of its own models begin, where no other vendor's begin so.
    begins: &'static [&'static str],
    wire: VendorWire,
}

enum VendorWire {
    Anthropic,
    Chat(&'static Dialect),
    Gemini,
}

/// In the order in which keys are looked for.
const VENDORS: &[Vendor] = &[
    Vendor {
        name: "anthropic",
        keys: &["ANTHROPIC_API_KEY"],
        base_url: "ANTHROPIC_BASE_URL",
        model: "claude-sonnet-4-5",
        begins: &["claude-"],
        wire: VendorWire::Anthropic,
    },
    Vendor {
        name: "openai",
        keys: &["OPENAI_API_KEY"],
        base_url: "OPENAI_BASE_URL",
        model: "gpt-5-mini",
        begins: &["gpt-4", "gpt-5", "chatgpt-", "o1", "o3", "o4"],
        wire: VendorWire::Chat(&Dialect::OPENAI),
    },
    Vendor {
        name: "gemini",
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        base_url: "GEMINI_BASE_URL",
        model: "gemini-2.5-flash",
        begins: &["gemini-"],
        wire: VendorWire::Gemini,
    },
    Vendor {
        name: "openrouter",
        keys: &["OPENROUTER_API_KEY"],
        base_url: "",
        model: "openrouter/auto",
        begins: &["openrouter/"],
        wire: VendorWire::Chat(&Dialect::OPENROUTER),
    },
    Vendor {
        name: "groq",
        keys: &["GROQ_API_KEY"],
        base_url: "",
        model: "openai/gpt-oss-20b",
        begins: &[],
        wire: VendorWire::Chat(&Dialect::GROQ),
    },
    Vendor {
        name: "deepseek",
        keys: &["DEEPSEEK_API_KEY"],
        base_url: "",
        model: "deepseek-chat",
        begins: &["deepseek-chat", "deepseek-reasoner"],
        wire: VendorWire::Chat(&Dialect::DEEPSEEK),
    },
    Vendor {
        name: "mistral",
        keys: &["MISTRAL_API_KEY"],
        base_url: "",
        model: "mistral-small-latest",
        begins: &["mistral-", "ministral-", "magistral-", "codestral-", "pixtral-"],
        wire: VendorWire::Chat(&Dialect::MISTRAL),
    },
    Vendor {
        name: "together",
        keys: &["TOGETHER_API_KEY"],
        base_url: "",
        model: "openai/gpt-oss-20b",
        begins: &[],
        wire: VendorWire::Chat(&Dialect::TOGETHER),
    },
    Vendor {
        name: "ollama",
        keys: &[],
        base_url: "OLLAMA_BASE_URL",
        model: "",
        begins: &[],
        wire: VendorWire::Chat(&Dialect::OLLAMA),
    },
];

/// Makes the provider that the environment has a key for, with a small model of that vendor.
///
/// Keys are looked for in this order: `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY` (or
/// `GOOGLE_API_KEY`), `OPENROUTER_API_KEY`, `GROQ_API_KEY`, `DEEPSEEK_API_KEY`, `MISTRAL_API_KEY`,
/// `TOGETHER_API_KEY`. An empty variable counts as unset. `ANTHROPIC_BASE_URL`, `OPENAI_BASE_URL`
/// and `GEMINI_BASE_URL` say where the first three are.
///
/// # Errors
///
/// [`Auth`](ErrorKind::Auth) if there is no key, [`InvalidRequest`](ErrorKind::InvalidRequest) if
/// an address is none.
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
    first(&|name| std::env::var(name).ok())?.provider()
}

/// Makes the provider of a model by the model's name, with the key of the environment.
///
/// `claude-…`, `gpt-…`, `o3`, `gemini-…`, `mistral-…` and the like belong to one vendor. A name that
/// several vendors may serve needs the vendor before a colon: `groq:openai/gpt-oss-20b`,
/// `openrouter:…`, `together:…`, `ollama:…`.
///
/// # Errors
///
/// [`InvalidRequest`](ErrorKind::InvalidRequest) if the name belongs to no vendor or an address is
/// none, [`Auth`](ErrorKind::Auth) if the vendor's key is not set.
///
/// ```
/// use turnstream::ErrorKind;
/// use turnstream::provider::named;
///
/// let error = named("llama-4").err().expect("many serve it");
/// assert_eq!(error.kind(), ErrorKind::InvalidRequest);
/// assert!(error.message().contains("vendor:model"));
/// ```
pub fn named(model: &str) -> Result<Arc<dyn Provider>, Error> {
    by_name(model, &|name| std::env::var(name).ok())?.provider()
}

/// A vendor, its model and what the environment says of it.
struct Picked {
    vendor: &'static Vendor,
    model: String,
    key: Option<String>,
    base_url: Option<String>,
}

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

fn first(env: Env<'_>) -> Result<Picked, Error> {
    let vendor = VENDORS.iter().find(|vendor| vendor.key(env).is_some());
    let vendor = vendor.ok_or_else(|| {
        let keys: Vec<_> =
            VENDORS.iter().filter_map(|vendor| vendor.keys.first()).copied().collect();
        Error::new(ErrorKind::Auth, format!("no key is set; one of {}", keys.join(", ")))
    })?;
    Ok(vendor.picked(vendor.model, env))
}

fn by_name(model: &str, env: Env<'_>) -> Result<Picked, Error> {
    let named = model.split_once(':').and_then(|(name, model)| {
        let vendor = VENDORS.iter().find(|vendor| vendor.name == name)?;
        (!model.is_empty()).then_some((vendor, model))
    });
    let own = || {
        let begins = |vendor: &&Vendor| vendor.begins.iter().any(|begin| model.starts_with(begin));
        VENDORS.iter().find(begins).map(|vendor| (vendor, model))
    };
    let Some((vendor, model)) = named.or_else(own) else {
        let vendors: Vec<_> = VENDORS.iter().map(|vendor| vendor.name).collect();
        let message = format!(
            "the model `{model}` belongs to no one vendor; write vendor:model, with one of {}",
            vendors.join(", ")
        );
        return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter("model"));
    };
    let picked = vendor.picked(model, env);
    if let (None, Some(key)) = (&picked.key, vendor.keys.first()) {
        return Err(Error::new(ErrorKind::Auth, format!("{key} is not set")));
    }
    Ok(picked)
}

impl Vendor {
    fn key(&self, env: Env<'_>) -> Option<String> {
        self.keys.iter().find_map(|name| set(env, name))
    }

    fn picked(&'static self, model: &str, env: Env<'_>) -> Picked {
        let base_url = (!self.base_url.is_empty()).then(|| set(env, self.base_url)).flatten();
        Picked { vendor: self, model: model.to_owned(), key: self.key(env), base_url }
    }
}

/// The value of a variable; one of white space counts as unset.
fn set(env: Env<'_>, name: &str) -> Option<String> {
    let value = env(name)?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

impl Picked {
    fn provider(self) -> Result<Arc<dyn Provider>, Error> {
        match self.vendor.wire {
            VendorWire::Anthropic => self.ready(Anthropic::new),
            VendorWire::Chat(dialect) => {
                self.ready(|model| OpenAiChat::new(model).with_dialect(*dialect))
            }
            VendorWire::Gemini => self.ready(Gemini::new),
        }
    }

    fn ready<W: Wire>(
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
        let picked = first(&both).unwrap();
        assert_eq!((picked.vendor.name, picked.key.as_deref()), ("gemini", Some("g")));
        let error = first(&env(&[])).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Auth);
        assert!(error.message().contains("ANTHROPIC_API_KEY"));
    }

    #[test]
    fn a_name_that_belongs_to_one_vendor_finds_it() {
        let keys = env(&[
            ("ANTHROPIC_API_KEY", "a"),
            ("OPENAI_API_KEY", "o"),
            ("GOOGLE_API_KEY", "g"),
            ("MISTRAL_API_KEY", "m"),
            ("GROQ_API_KEY", "q"),
            ("OPENAI_BASE_URL", "http://localhost:1/v1"),
        ]);
        let check = |name: &str, vendor: &str, model: &str| {
            let picked = by_name(name, &keys).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((picked.vendor.name, &*picked.model), (vendor, model));
            assert_eq!(picked.provider().unwrap().model(), model);
        };
        check("claude-opus-4-5", "anthropic", "claude-opus-4-5");
        check("gpt-5-mini", "openai", "gpt-5-mini");
        check("o3", "openai", "o3");
        check("gemini-2.5-pro", "gemini", "gemini-2.5-pro");
        check("codestral-latest", "mistral", "codestral-latest");
        check("groq:openai/gpt-oss-20b", "groq", "openai/gpt-oss-20b");
        check("ollama:qwen3:8b", "ollama", "qwen3:8b");
    }

    #[test]
    fn a_name_that_several_serve_or_a_key_that_is_not_set_is_an_error() {
        let none = env(&[]);
        for name in ["llama-4", "openai/gpt-oss-20b", "gpt-oss-20b", "qwen3:8b", "groq:", ""] {
            let error = by_name(name, &none).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{name}");
        }
        let error = by_name("claude-opus-4-5", &none).err().unwrap();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Auth, "ANTHROPIC_API_KEY is not set")
        );
    }
}
