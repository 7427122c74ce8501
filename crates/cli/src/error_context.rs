//! Explains errors in terms of the command line and of the URL of the requests.

use turnstream::provider::{
    Anthropic, Gemini, HttpProvider, Ollama, OpenAiChat, OpenAiResponses, Provider, Wire,
};
use turnstream::{Error, ErrorKind};

use crate::provider::{ProviderChoice, ProviderName, describe_error};

/// The facts about the selected provider that explain its errors.
pub(crate) struct ErrorContext {
    /// The environment variable of the API key; empty for none.
    key_variable: &'static str,
    /// `None` for the offline model.
    url: Option<RequestUrl>,
}

/// The URL of the requests, without credentials and without a query.
struct RequestUrl {
    url: String,
    /// The usual mistake in such a URL.
    advice: &'static str,
}

/// The form of the base URLs of a protocol.
#[derive(Clone, Copy)]
enum BaseUrlForm {
    /// They usually end in `/v1`.
    Versioned,
    /// They do not: the version is in the path below.
    Unversioned,
}

impl ErrorContext {
    pub(crate) fn new(choice: &ProviderChoice) -> Self {
        use BaseUrlForm::{Unversioned, Versioned};
        let model = choice.model.as_str();
        let base = choice.base_url.as_deref();
        let url = match choice.name {
            ProviderName::Offline => None,
            ProviderName::Anthropic => {
                Some(RequestUrl::new(&Anthropic::new(model), base, Unversioned))
            }
            ProviderName::OpenAi => {
                let chat = OpenAiChat::new(model);
                let chat = match choice.dialect {
                    Some(dialect) => chat.with_dialect(*dialect),
                    None => chat,
                };
                Some(RequestUrl::new(&chat, base, Versioned))
            }
            ProviderName::OpenAiResponses => {
                Some(RequestUrl::new(&OpenAiResponses::new(model), base, Versioned))
            }
            ProviderName::Gemini => Some(RequestUrl::new(&Gemini::new(model), base, Unversioned)),
            ProviderName::Ollama => Some(RequestUrl::new(&Ollama::new(model), base, Unversioned)),
        };
        Self { key_variable: choice.key_variable, url }
    }

    /// Describes an error. If the server may have nothing at the URL of the requests, the
    /// description names the URL and the usual mistake.
    pub(crate) fn describe(&self, error: &Error) -> String {
        let message = describe_error(error, self.key_variable);
        match &self.url {
            Some(RequestUrl { url, advice }) if may_be_wrong_url(error) => {
                // A server that misses only the model has the URL.
                let is_model = error.parameter() == Some("model");
                let advice = if is_model { "" } else { *advice };
                format!("{message}; the request was sent to {url}{advice}")
            }
            Some(_) | None => message,
        }
    }
}

fn may_be_wrong_url(error: &Error) -> bool {
    match error.status() {
        Some(status) => matches!(status, 404 | 405),
        // A page of HTML, for example.
        None => error.kind() == ErrorKind::Protocol,
    }
}

impl RequestUrl {
    /// `base` overrides the provider's own base URL.
    fn new<W: Wire>(provider: &HttpProvider<W>, base: Option<&str>, form: BaseUrlForm) -> Self {
        let wire = provider.wire();
        let usual = without_secrets(wire.base_url());
        let base = base.map_or_else(|| usual.clone(), without_secrets);
        let advice = match (form, base.ends_with("/v1")) {
            _ if base == usual => "",
            (BaseUrlForm::Versioned, false) => {
                "; with most servers of this kind, the base URL ends in `/v1`"
            }
            (BaseUrlForm::Unversioned, true) => {
                "; with this provider, the base URL does not end in `/v1`"
            }
            (BaseUrlForm::Versioned, true) | (BaseUrlForm::Unversioned, false) => {
                "; check the base URL"
            }
        };
        let model = provider.model();
        let path = without_query(wire.path(model)).replace("{model}", model);
        Self { url: format!("{base}{path}"), advice }
    }
}

fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// The scheme, host, port and path of a URL, without a slash at the end.
pub(crate) fn without_secrets(url: &str) -> String {
    let url = without_query(url.trim()).trim_end_matches('/');
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;

    /// The description of an error of requests to this base URL.
    fn describe(name: ProviderName, base_url: Option<&str>, error: &Error) -> String {
        let args = Args {
            provider: Some(name),
            base_url: base_url.map(str::to_owned),
            model: Some("m".to_owned()),
            ..Args::default()
        };
        let choice = ProviderChoice::from_args(&args, |_| None);
        ErrorContext::new(&choice.unwrap_or_else(|error| panic!("{error}"))).describe(error)
    }

    fn not_found() -> Error {
        Error::new(ErrorKind::InvalidRequest, "status 404").with_status(404)
    }

    #[test]
    fn an_unknown_address_is_reported_with_its_url_and_the_usual_mistake() {
        use ProviderName::{Anthropic, Gemini, Ollama, OpenAi, OpenAiResponses};
        let missing = "; with most servers of this kind, the base URL ends in `/v1`";
        let superfluous = "; with this provider, the base URL does not end in `/v1`";
        for (name, base, url, advice) in [
            (OpenAi, Some("http://h:1"), "http://h:1/chat/completions", missing),
            (OpenAi, Some("http://h/api/"), "http://h/api/chat/completions", missing),
            (OpenAi, Some("http://h/v1/"), "http://h/v1/chat/completions", "; check the base URL"),
            // A vendor whose base URL has no version.
            (
                OpenAi,
                Some("https://api.deepseek.com"),
                "https://api.deepseek.com/chat/completions",
                "",
            ),
            (OpenAi, None, "https://api.openai.com/v1/chat/completions", ""),
            (OpenAiResponses, Some("http://h"), "http://h/responses", missing),
            (Anthropic, Some("http://h/v1"), "http://h/v1/v1/messages", superfluous),
            (Anthropic, Some("http://h"), "http://h/v1/messages", "; check the base URL"),
            (Ollama, Some("http://h/v1"), "http://h/v1/api/chat", superfluous),
            (
                Gemini,
                Some("http://h"),
                "http://h/v1beta/models/m:streamGenerateContent",
                "; check the base URL",
            ),
        ] {
            let expected = format!("status 404; the request was sent to {url}{advice}");
            assert_eq!(describe(name, base, &not_found()), expected);
        }
    }

    #[test]
    fn only_errors_that_may_be_caused_by_the_url_name_it() {
        let base = Some("http://h");
        let page = Error::new(ErrorKind::Protocol, "a page of HTML");
        assert!(describe(ProviderName::OpenAi, base, &page).contains("http://h/chat/completions"));
        let method = Error::new(ErrorKind::InvalidRequest, "status 405").with_status(405);
        assert!(describe(ProviderName::OpenAi, base, &method).contains("ends in `/v1`"));
        for (kind, status) in [(ErrorKind::Auth, 401), (ErrorKind::Server, 500)] {
            let other = Error::new(kind, "other").with_status(status);
            assert_eq!(describe(ProviderName::OpenAi, base, &other), "other");
        }
        let model = not_found().with_parameter("model");
        let expected = "status 404; the request was sent to http://h/chat/completions";
        assert_eq!(describe(ProviderName::OpenAi, base, &model), expected);
        assert_eq!(describe(ProviderName::Offline, None, &not_found()), "status 404");
    }

    #[test]
    fn the_url_in_an_error_contains_no_secrets() {
        let base = Some("https://me:pass@h/v1?key=secret#x");
        let described = describe(ProviderName::OpenAi, base, &not_found());
        assert!(described.contains("sent to https://h/v1/chat/completions;"), "{described}");
    }
}
