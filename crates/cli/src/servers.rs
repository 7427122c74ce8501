//! The MCP servers of the command line: started before the first run, closed before the program
//! ends.

use std::fs;

use futures::future::join_all;
use turnstream::tool::ToolSource;
use turnstream::{Agent, Error, ErrorKind};
use turnstream_mcp::{Client, ClientBuilder, ServerCommand};

use crate::args::ServerArg;
use crate::error_context::without_secrets;
use crate::tools::SERVER_SEPARATOR;

/// The longest server name that the library leaves unchanged.
const MAX_NAME_LEN: usize = 24;

/// The servers. Each call of their tools needs approval.
pub(crate) struct Servers {
    servers: Vec<Server>,
}

struct Server {
    client: Client,
    /// The URL on the command line, without credentials.
    url: Option<String>,
}

impl Servers {
    /// Parses the configuration; nothing is started yet. An error is one line for the user.
    pub(crate) fn new(args: &[ServerArg]) -> Result<Self, String> {
        let mut clients: Vec<(ClientBuilder, Option<String>)> = Vec::new();
        for arg in args {
            match arg {
                ServerArg::Url(url) => {
                    let client = Client::http(url).map_err(|error| error.message().to_owned())?;
                    clients.push((client, Some(without_secrets(url))));
                }
                ServerArg::Command(words) => {
                    // Invariant: `args` accepts no command without a program.
                    let Some((program, args)) = words.split_first() else { continue };
                    let command = ServerCommand::new(program).args(args);
                    clients.push((Client::stdio(command), None));
                }
                ServerArg::ConfigFile(file) => {
                    let json = fs::read_to_string(file)
                        .map_err(|error| format!("`{file}` cannot be read: {error}"))?;
                    let listed = Client::from_json(&json)
                        .map_err(|error| format!("`{file}`: {}", error.message()))?;
                    clients.extend(listed.into_iter().map(|client| (client, None)));
                }
            }
        }
        let mut servers: Vec<Server> = Vec::with_capacity(clients.len());
        for (client, url) in clients {
            let name = unique_name(client.name(), &servers);
            servers.push(Server { client: client.with_name(name).build(), url });
        }
        Ok(Self { servers })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Starts all servers, and returns lines about what they offer.
    ///
    /// # Errors
    ///
    /// The error of the first server that cannot be started. The others may be running.
    pub(crate) async fn start(&self) -> Result<Vec<String>, Error> {
        let started = join_all(self.servers.iter().map(Server::describe)).await;
        let lines: Vec<Vec<String>> = started.into_iter().collect::<Result<_, _>>()?;
        Ok(lines.concat())
    }

    pub(crate) fn add_tools(&self, agent: Agent) -> Agent {
        let clients = self.servers.iter().map(|server| server.client.clone());
        clients.fold(agent, Agent::with_tool_source)
    }

    /// Waits until the servers' processes, and all processes that these have started, are gone.
    pub(crate) async fn close(&self) {
        join_all(self.servers.iter().map(|server| server.client.close())).await;
    }
}

impl Server {
    /// Starts the server, and returns lines about what it offers.
    async fn describe(&self) -> Result<Vec<String>, Error> {
        let Self { client, .. } = self;
        let info = client.server_info().await.map_err(|error| self.explain(error))?;
        let list = client.list_tools().await?;
        let prefix = format!("{}{SERVER_SEPARATOR}", client.name());
        let names: Vec<&str> = list
            .tools
            .iter()
            .map(|tool| tool.name().strip_prefix(&prefix).unwrap_or(tool.name()))
            .collect();
        let names = if names.is_empty() { "no tools".to_owned() } else { names.join(", ") };
        let mut lines =
            vec![format!("mcp: {} ({}): {names}", client.name(), info.protocol_version)];
        lines.extend(list.notes.iter().map(|note| format!("mcp: {}: {note}", client.name())));
        Ok(lines)
    }

    /// Adds the URL and the usual mistake to an error of a server that does not speak MCP there.
    fn explain(&self, error: Error) -> Error {
        let Some(url) = &self.url else { return error };
        if !matches!(error.kind(), ErrorKind::Protocol | ErrorKind::InvalidRequest) {
            return error;
        }
        let advice = match url.ends_with("/mcp") {
            true => "",
            false => "; the URL of most MCP servers ends in `/mcp`",
        };
        let message = format!("{}; the request was sent to {url}{advice}", error.message());
        Error::new(error.kind(), message).with_source(error)
    }
}

/// Returns the name with only those characters that the library leaves unchanged, so that the first
/// separator in a tool's name ends the server's name. A number is added if another server has the
/// name.
fn unique_name(wanted: &str, others: &[Server]) -> String {
    let mut name = String::new();
    for c in wanted.chars().take(MAX_NAME_LEN - 4) {
        match c.is_ascii_alphanumeric() {
            true => name.push(c),
            false if name.is_empty() || name.ends_with(['_', '-']) => {}
            false => name.push(if c == '_' { '_' } else { '-' }),
        }
    }
    let name = match name.trim_end_matches(['_', '-']) {
        "" => "server",
        name => name,
    };
    let numbered = (2..).map(|number: usize| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let is_free = |name: &String| others.iter().all(|other| other.client.name() != name);
    // Invariant: there are more numbers than servers.
    names.find(is_free).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: &[&str]) -> Vec<String> {
        let mut named: Vec<Server> = Vec::new();
        for name in wanted {
            let name = unique_name(name, &named);
            let client = Client::stdio(ServerCommand::new("x")).with_name(name).build();
            named.push(Server { client, url: None });
        }
        named.iter().map(|server| server.client.name().to_owned()).collect()
    }

    #[test]
    fn names_are_unique_and_contain_no_separator() {
        let wanted = ["a", "a", "a.b", "a__b", "__", "über_x_", "A", "a-2", &"n".repeat(99)];
        let expected = ["a", "a-2", "a-b", "a_b", "server", "ber_x", "A", "a-2-2", &"n".repeat(20)];
        assert_eq!(names(&wanted), expected);
    }

    #[test]
    fn an_unreadable_configuration_is_named_in_the_error() {
        let file = std::env::temp_dir().join(format!("servers-{}.json", std::process::id()));
        let arg = [ServerArg::ConfigFile(file.display().to_string())];
        let missing = Servers::new(&arg).err().unwrap();
        assert!(missing.contains("cannot be read"), "{missing}");
        for (json, wrong) in [
            ("[", "is not JSON"),
            (r#"{"mcpServers":{"a":{}}}"#, "`a` has neither a `command` nor a `url`"),
        ] {
            fs::write(&file, json).unwrap();
            let error = Servers::new(&arg).err().unwrap();
            assert!(error.contains(wrong) && error.contains("servers-"), "{error}");
        }
        fs::write(&file, r#"{"mcpServers":{"b c":{"command":"b"},"d":{"url":"http://d"}}}"#)
            .unwrap();
        let servers = Servers::new(&arg).unwrap();
        let names: Vec<_> = servers.servers.iter().map(|server| server.client.name()).collect();
        assert_eq!(names, ["b-c", "d"]);
        fs::remove_file(file).unwrap();
        let url = Servers::new(&[ServerArg::Url("http://".to_owned())]).err().unwrap();
        assert!(!url.is_empty() && !url.contains('\n'), "{url}");
    }
}
