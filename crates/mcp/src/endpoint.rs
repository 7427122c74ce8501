//! Describes where a server runs and how to reach it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use turnstream::error::{Error, ErrorKind};
use turnstream::http::{Credential, HttpClient, Secret, is_secret_name, secrets_in_header};

use crate::ServerCommand;
use crate::address::Address;
use crate::lock::lock_ignoring_poison;

/// How to reach a server: as a process on this machine, over a pair of streams, or at an address.
#[derive(Clone)]
pub(crate) enum Endpoint {
    Stdio(ServerCommand),
    Streams(Arc<OpenStreams>),
    Http(Arc<HttpEndpoint>),
}

/// The streams for a connection: the first carries messages from the server, and the second carries
/// messages to the server.
pub(crate) type Streams = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

pub(crate) type OpenStreams = dyn Fn() -> BoxFuture<'static, io::Result<Streams>> + Send + Sync;

/// A header's name and value.
type Header = (Cow<'static, str>, String);

/// A server's address, with the headers and settings for requests to it.
#[derive(Clone)]
pub(crate) struct HttpEndpoint {
    pub(crate) address: Address,
    pub(crate) headers: Vec<Header>,
    pub(crate) credential: Option<Credential>,
    pub(crate) http_client: HttpClient,
    /// The keys and tokens that were sent most recently.
    sent_secrets: Arc<Mutex<VecDeque<Secret>>>,
}

/// The maximum number of sent keys and tokens to remember.
const MAX_SENT_SECRETS: usize = 8;

impl Endpoint {
    /// Returns the secrets that must be masked in error messages.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        match self {
            Self::Stdio(command) => command.secrets(),
            Self::Streams(_) => Vec::new(),
            Self::Http(http) => {
                let headers = http.headers.iter();
                let in_headers = headers.flat_map(|(name, value)| secrets_in_header(name, value));
                let sent = lock_ignoring_poison(&http.sent_secrets).clone();
                http.address.secrets().into_iter().chain(in_headers).chain(sent).collect()
            }
        }
    }

    /// Returns the server's default name, derived from its command or address.
    pub(crate) fn default_name(&self) -> String {
        let name = match self {
            Self::Stdio(command) => name_of_command(command),
            Self::Streams(_) => String::new(),
            Self::Http(http) => name_of_host(http.address.host_name()),
        };
        if name.is_empty() { "server".to_owned() } else { name }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio(command) => command.fmt(f),
            Self::Streams(_) => f.write_str("Streams"),
            Self::Http(http) => http.fmt(f),
        }
    }
}

impl HttpEndpoint {
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        Ok(Self {
            address: Address::parse(url)?,
            headers: Vec::new(),
            credential: None,
            http_client: HttpClient::shared(),
            sent_secrets: Arc::default(),
        })
    }

    /// Records the secrets sent in an authorized request, so that they can be masked in error
    /// messages.
    pub(crate) fn remember_secrets(&self, secrets: &[Secret]) {
        let mut sent = lock_ignoring_poison(&self.sent_secrets);
        for secret in secrets {
            if sent.iter().all(|known| known.expose() != secret.expose()) {
                sent.push_back(secret.clone());
            }
        }
        let surplus = sent.len().saturating_sub(MAX_SENT_SECRETS);
        sent.drain(..surplus);
    }

    /// Returns an error if a key would be sent unencrypted with these settings.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let has_key = self.credential.is_some()
            || self.address.has_credentials()
            || self.headers.iter().any(|(name, value)| is_secret_name(name) && !value.is_empty());
        if has_key && self.address.is_plain_http() && !self.address.is_loopback() {
            let message = format!(
                "a key is not sent to {} over plain http, where others can read it: use https",
                self.address.host_and_port()
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter("url"));
        }
        Ok(())
    }
}

impl fmt::Debug for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpEndpoint")
            .field("host", &self.address.host_and_port())
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

/// Programs whose first argument is the name of another program to run.
const RUNNERS: &[&str] = &[
    "bun", "bunx", "deno", "docker", "node", "npm", "npx", "pipx", "pnpm", "podman", "python",
    "python3", "uv", "uvx", "yarn",
];

/// Subcommands that come between one of the [`RUNNERS`] and the name of the program to run.
const RUNNER_WORDS: &[&str] = &["dlx", "exec", "run", "tool", "x"];

fn name_of_command(command: &ServerCommand) -> String {
    let program = stem(&command.program());
    if !RUNNERS.contains(&program.as_str()) {
        return server_word(&program);
    }
    let is_word = |arg: &String| !arg.starts_with('-') && !RUNNER_WORDS.contains(&arg.as_str());
    let name = command.args_as_text().find(is_word).map(|arg| server_word(&stem(&arg)));
    name.unwrap_or(program)
}

/// Returns the last component of a path or package name, without its extension or version.
fn stem(path: &str) -> String {
    let last = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let last = last.split_once('@').map_or(last, |(name, _version)| name);
    let endings = [".exe", ".cmd", ".js", ".mjs", ".cjs", ".ts", ".py"];
    let without = endings.iter().find_map(|ending| last.strip_suffix(ending));
    without.unwrap_or(last).to_owned()
}

/// Returns the distinctive part of a server's name, such as `git` in `mcp-server-git`.
fn server_word(name: &str) -> String {
    let parts = name.split(['-', '_']).filter(|part| !matches!(*part, "mcp" | "server" | ""));
    let word = parts.collect::<Vec<_>>().join("-");
    if word.is_empty() { name.to_owned() } else { word }
}

fn name_of_host(host: &str) -> String {
    if host.parse::<std::net::IpAddr>().is_ok() || host.starts_with('[') {
        return String::new();
    }
    let mut labels: Vec<_> = host.split('.').collect();
    if labels.len() > 1 {
        labels.pop();
    }
    let is_general = |label: &&str| matches!(*label, "mcp" | "www" | "api");
    labels.iter().find(|label| !is_general(label)).copied().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_after_its_program_package_or_host() {
        let of_command = |words: &str| {
            let mut words = words.split(' ');
            let command = ServerCommand::new(words.next().unwrap()).args(words);
            Endpoint::Stdio(command).default_name()
        };
        for (command, name) in [
            ("npx -y @modelcontextprotocol/server-filesystem@2026.8.31 .", "filesystem"),
            ("uvx mcp-server-git --repository .", "git"),
            ("/usr/local/bin/github-mcp-server stdio", "github"),
            ("node dist/index.js stdio", "index"),
            ("uv run server.py", "server"),
            ("mcp-server", "mcp-server"),
            ("npx", "npx"),
        ] {
            assert_eq!(of_command(command), name, "{command}");
        }
        for (url, name) in [
            ("https://mcp.linear.app/mcp", "linear"),
            ("https://api.example.com/", "example"),
            ("http://127.0.0.1:80/mcp", "server"),
            ("http://[::1]:80/mcp", "server"),
            ("http://localhost:80/mcp", "localhost"),
        ] {
            let endpoint = Endpoint::Http(HttpEndpoint::new(url).unwrap().into());
            assert_eq!(endpoint.default_name(), name, "{url}");
        }
    }

    #[test]
    fn a_key_is_not_sent_over_plain_http_to_another_machine() {
        let with_key = |url: &str| {
            let mut endpoint = HttpEndpoint::new(url).unwrap();
            endpoint.headers.push(("authorization".into(), "Bearer abc".into()));
            endpoint.validate()
        };
        assert!(with_key("https://a.example/mcp").is_ok());
        assert!(with_key("http://127.0.0.1/mcp").is_ok());
        assert_eq!(with_key("http://a.example/mcp").unwrap_err().kind(), ErrorKind::InvalidRequest);
        assert!(HttpEndpoint::new("http://a.example/mcp").unwrap().validate().is_ok());
    }

    #[test]
    fn the_eight_keys_that_were_sent_last_are_secrets() {
        let http = HttpEndpoint::new("https://a.example/mcp").unwrap();
        for n in 0..9 {
            http.remember_secrets(&[Secret::new(format!("key-number-{n}"))]);
        }
        let secrets = Endpoint::Http(http.into()).secrets();
        let secrets: Vec<&str> = secrets.iter().map(Secret::expose).collect();
        assert_eq!((secrets.len(), secrets[0], secrets[7]), (8, "key-number-1", "key-number-8"));
    }
}
