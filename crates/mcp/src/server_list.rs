//! Reads server configurations in the `mcpServers` JSON format that other clients use.

use serde_json::{Map, Value};
use turnstream::error::{Error, ErrorKind};

use crate::{Client, ClientBuilder, ServerCommand};

impl Client {
    /// Configures a client for each server in the `mcpServers` configuration that other clients
    /// use. The builders are returned in the order in which the servers are listed:
    ///
    /// ```
    /// use turnstream_mcp::Client;
    ///
    /// let servers = Client::from_json(r#"{
    ///     "mcpServers": {
    ///         "files": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."] },
    ///         "tracker": { "url": "https://mcp.example.com/mcp", "headers": { "x-team": "blue" } },
    ///         "old": { "command": "old-server", "disabled": true }
    ///     }
    /// }"#)?;
    /// assert_eq!(servers.len(), 2);
    /// assert_eq!(servers[1].name(), "tracker");
    /// let clients: Vec<Client> = servers.into_iter().map(|server| server.build()).collect();
    /// # drop(clients);
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    ///
    /// A server's entry contains either a `command`, with optional `args`, `env` and `cwd`, or a
    /// `url`, with optional `headers`. The `servers` key is accepted in place of `mcpServers`. In
    /// strings, `${NAME}` and `${NAME:-default}` are replaced with the value of this process's
    /// environment variable `NAME`. Servers that are `disabled` are left out, and unknown fields
    /// are ignored.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if the JSON does not match this format or a
    /// variable is not set; the error includes the position.
    /// [`Unsupported`](ErrorKind::Unsupported) if a server uses `sse`, a transport that was
    /// deprecated in 2025.
    pub fn from_json(json: &str) -> Result<Vec<ClientBuilder>, Error> {
        read_servers(json, &|name| std::env::var(name).ok())
    }
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

fn read_servers(json: &str, variables: Variables<'_>) -> Result<Vec<ClientBuilder>, Error> {
    let json: Value = serde_json::from_str(json)
        .map_err(|error| invalid("the list of servers", &format!("is not JSON: {error}")))?;
    let servers = json.get("mcpServers").or_else(|| json.get("servers"));
    let Some(servers) = servers.and_then(Value::as_object) else {
        return Err(invalid("the list of servers", "has no object `mcpServers`"));
    };
    let mut clients = Vec::with_capacity(servers.len());
    for (name, server) in servers {
        let Some(json) = server.as_object() else {
            return Err(invalid(name, "is not an object"));
        };
        if json.get("disabled") != Some(&Value::Bool(true)) {
            let fields = ServerFields { name, json, variables };
            clients.push(fields.client()?.with_name(name));
        }
    }
    Ok(clients)
}

/// The fields that configure one server.
struct ServerFields<'a> {
    name: &'a str,
    json: &'a Map<String, Value>,
    variables: Variables<'a>,
}

impl ServerFields<'_> {
    fn client(&self) -> Result<ClientBuilder, Error> {
        match (self.text("command")?, self.text("url")?) {
            (Some(command), None) => {
                let mut command = ServerCommand::new(command).args(self.texts("args")?);
                for (name, value) in self.map("env")? {
                    command = command.env(name, value);
                }
                if let Some(folder) = self.text("cwd")? {
                    command = command.current_dir(folder);
                }
                Ok(Client::stdio(command))
            }
            (None, Some(url)) => {
                if self.text("type")?.as_deref() == Some("sse") {
                    let message = format!(
                        "the server `{}` has the type `sse`, a transport that the protocol has \
                         dropped: most such servers have a newer URL, which often ends with `/mcp`",
                        self.name
                    );
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
                let client =
                    Client::http(&url).map_err(|error| invalid(self.name, error.message()))?;
                let headers = self.map("headers")?.into_iter();
                Ok(headers.fold(client, |client, (name, value)| client.with_header(name, value)))
            }
            (Some(_), Some(_)) => Err(invalid(self.name, "has a `command` and a `url`")),
            (None, None) => Err(invalid(self.name, "has neither a `command` nor a `url`")),
        }
    }

    fn text(&self, field: &str) -> Result<Option<String>, Error> {
        self.json.get(field).map(|value| self.expand(field, value)).transpose()
    }

    fn texts(&self, field: &str) -> Result<Vec<String>, Error> {
        match self.json.get(field) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => {
                values.iter().map(|value| self.expand(field, value)).collect()
            }
            Some(_) => Err(invalid(self.name, &format!("has a `{field}` that is not a list"))),
        }
    }

    fn map(&self, field: &str) -> Result<Vec<(String, String)>, Error> {
        match self.json.get(field) {
            None => Ok(Vec::new()),
            Some(Value::Object(values)) => values
                .iter()
                .map(|(name, value)| Ok((name.clone(), self.expand(field, value)?)))
                .collect(),
            Some(_) => Err(invalid(self.name, &format!("has a `{field}` that is not an object"))),
        }
    }

    /// Returns a field's string, with variables replaced by their values.
    fn expand(&self, field: &str, value: &Value) -> Result<String, Error> {
        let Some(mut rest) = value.as_str() else {
            return Err(invalid(self.name, &format!("has a `{field}` that is not text")));
        };
        let mut expanded = String::with_capacity(rest.len());
        while let Some((before, after)) = rest.split_once("${") {
            expanded.push_str(before);
            let Some((variable, after)) = after.split_once('}') else {
                return Err(invalid(
                    self.name,
                    &format!("has a `{field}` with a `${{` without its `}}`"),
                ));
            };
            let (name, default) = match variable.split_once(":-") {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (variable, None),
            };
            let value = (self.variables)(name).filter(|value| !value.is_empty()).or(default);
            let Some(value) = value else {
                let why =
                    format!("needs the variable `{name}` for its `{field}`, and it is not set");
                return Err(invalid(self.name, &why));
            };
            expanded.push_str(&value);
            rest = after;
        }
        expanded.push_str(rest);
        Ok(expanded)
    }
}

fn invalid(server: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("the MCP configuration of `{server}` {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<ClientBuilder>, Error> {
        let variables = |name: &str| (name == "TOKEN").then(|| "secret-token".to_owned());
        read_servers(json, &variables)
    }

    fn message(json: &str) -> String {
        read(json).unwrap_err().message().to_owned()
    }

    #[test]
    fn servers_are_read_in_their_order_with_their_variables() {
        let clients = read(
            r#"{"mcpServers": {
                "z": { "command": "z", "args": ["${TOKEN}", "${MISSING:-x}"], "env": { "A": "1" }, "cwd": "/" },
                "off": { "command": "off", "disabled": true },
                "a": { "type": "http", "url": "https://a.example/mcp", "headers": { "authorization": "Bearer ${TOKEN}" } }
            }}"#,
        );
        let clients = clients.unwrap();
        let names: Vec<_> = clients.iter().map(ClientBuilder::name).collect();
        assert_eq!(names, ["z", "a"]);
        let shown = format!("{clients:?}");
        assert!(!shown.contains("secret-token"), "{shown}");
    }

    #[test]
    fn a_configuration_error_names_its_location() {
        for (json, expected) in [
            ("[", "the MCP configuration of `the list of servers` is not JSON"),
            ("{}", "the MCP configuration of `the list of servers` has no object `mcpServers`"),
            (r#"{"servers":{"a":1}}"#, "the MCP configuration of `a` is not an object"),
            (
                r#"{"servers":{"a":{}}}"#,
                "the MCP configuration of `a` has neither a `command` nor a `url`",
            ),
            (
                r#"{"servers":{"a":{"command":"b","args":"c"}}}"#,
                "`a` has a `args` that is not a list",
            ),
            (
                r#"{"servers":{"a":{"command":"${B}"}}}"#,
                "`a` needs the variable `B` for its `command`",
            ),
            (
                r#"{"servers":{"a":{"command":"${B"}}}"#,
                "`a` has a `command` with a `${` without its `}`",
            ),
            (r#"{"servers":{"a":{"url":"ftp://b"}}}"#, "`a` the URL must begin with http"),
        ] {
            let message = message(json);
            assert!(message.contains(expected), "{message}");
        }
        let sse = r#"{"servers":{"a":{"type":"sse","url":"https://b"}}}"#;
        assert_eq!(read(sse).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
