//! Servers that are functions of the messages that they receive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use turnstream_mcp::{Client, ClientBuilder};

/// The output of a raw server, one message per line. Dropping all clones breaks the connection.
#[derive(Clone)]
pub(crate) struct Out(mpsc::UnboundedSender<Option<String>>);

impl Out {
    pub(crate) fn send(&self, message: &Value) {
        let _ = self.0.send(Some(message.to_string()));
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers have just created it")]
    pub(crate) fn result(&self, request: &Value, result: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    }

    /// Ends the connection after the pending output.
    pub(crate) fn end(&self) {
        let _ = self.0.send(None);
    }
}

/// A client of a server that is a function of the connection's number and a message.
pub(crate) fn raw_client<F>(react: F) -> Client
where
    F: Fn(usize, Value, &Out) + Send + Sync + 'static,
{
    raw_builder(react).build()
}

/// The settings of a client of a server that is a function of the connection's number and a
/// message.
pub(crate) fn raw_builder<F>(react: F) -> ClientBuilder
where
    F: Fn(usize, Value, &Out) + Send + Sync + 'static,
{
    let (react, connections) = (Arc::new(react), Arc::new(AtomicUsize::new(0)));
    let client = Client::streams(move || {
        let react = react.clone();
        let number = connections.fetch_add(1, Ordering::SeqCst);
        async move {
            let (here, there) = tokio::io::duplex(64 << 10);
            let (reader, mut writer) = tokio::io::split(there);
            let (sender, mut lines) = mpsc::unbounded_channel();
            tokio::spawn(async move {
                let out = Out(sender);
                let mut reader = BufReader::new(reader).lines();
                loop {
                    tokio::select! {
                        line = reader.next_line() => {
                            let Ok(Some(line)) = line else { return };
                            react(number, serde_json::from_str(&line).unwrap(), &out);
                        }
                        line = lines.recv() => {
                            let Some(Some(line)) = line else { return };
                            let line: String = line + "\n";
                            if writer.write_all(line.as_bytes()).await.is_err() {
                                return;
                            }
                        }
                    }
                }
            });
            Ok(tokio::io::split(here))
        }
    });
    client.with_name("s")
}

pub(crate) fn discovered() -> Value {
    json!({
        "resultType": "complete", "supportedVersions": ["2026-07-28"],
        "capabilities": { "tools": { "listChanged": true } },
        "ttlMs": 0, "cacheScope": "private",
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "raw", "version": "1" } },
    })
}

pub(crate) fn initialized() -> Value {
    json!({
        "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
        "serverInfo": { "name": "raw", "version": "1" },
    })
}

pub(crate) fn listed(tools: &Value) -> Value {
    json!({ "resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private" })
}

/// A client of a server with one tool, whose calls have this result.
pub(crate) fn client_of_one_tool(tool: Value, result: Value) -> Client {
    builder_of_one_tool(tool, result).build()
}

/// The settings of such a client.
pub(crate) fn builder_of_one_tool(tool: Value, result: Value) -> ClientBuilder {
    raw_builder(move |_, message, out| match message["method"].as_str() {
        Some("server/discover") => out.result(&message, discovered()),
        Some("tools/list") => out.result(&message, listed(&json!([tool]))),
        Some("tools/call") => out.result(&message, result.clone()),
        _ => {}
    })
}

/// A tool without arguments, as a server lists it.
pub(crate) fn listed_tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

/// Answers each connection with one raw HTTP response.
pub(crate) async fn http_answers(
    respond: impl Fn(&str) -> String + Send + Sync + 'static,
) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let respond = Arc::new(respond);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let respond = respond.clone();
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.into_split();
                let (mut bytes, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
                while let Ok(len @ 1..) = reader.read(&mut chunk).await {
                    bytes.extend_from_slice(&chunk[..len]);
                    let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
                    let Some(end) = text.find("\r\n\r\n") else { continue };
                    let body = text
                        .split("content-length: ")
                        .nth(1)
                        .and_then(|rest| rest.split("\r\n").next()?.parse().ok())
                        .unwrap_or(0usize);
                    if bytes.len() >= end + 4 + body {
                        let _ = writer
                            .write_all(respond(&String::from_utf8_lossy(&bytes)).as_bytes())
                            .await;
                        return;
                    }
                }
            });
        }
    });
    url
}

/// A response with a JSON document, after which the connection is closed.
pub(crate) fn http_json(status: &str, headers: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         {headers}connection: close\r\n\r\n{body}"
    )
}

/// A response without a body, after which the connection is closed.
pub(crate) fn http_empty(status: &str, headers: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n{headers}connection: close\r\n\r\n")
}

/// The message in the body of a request.
pub(crate) fn http_message(request: &str) -> Value {
    let body = request.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_default()
}

/// A successful answer to a message.
pub(crate) fn answer(message: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })
}
