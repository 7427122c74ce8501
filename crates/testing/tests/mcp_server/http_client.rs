//! A client that sends and receives raw HTTP.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use turnstream_testing::mcp::McpHttpServer;

/// Limits every wait, so that a broken server fails its test instead of blocking it.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_secs(20), future).await.expect("the server keeps its client waiting")
}

/// A response whose body is read as it arrives. Dropping it closes the connection.
pub(crate) struct HttpReply {
    stream: BufReader<TcpStream>,
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    text: String,
}

/// The required headers of a message of the modern era.
pub(crate) fn modern_headers(message: &Value) -> Vec<(String, String)> {
    let mut headers = vec![
        ("MCP-Protocol-Version".to_owned(), "2026-07-28".to_owned()),
        ("Mcp-Method".to_owned(), message["method"].as_str().unwrap().to_owned()),
    ];
    let params = &message["params"];
    if let Some(name) = params["name"].as_str().or(params["uri"].as_str()) {
        headers.push(("Mcp-Name".to_owned(), name.to_owned()));
    }
    headers
}

pub(crate) fn legacy_headers(session: &str) -> Vec<(String, String)> {
    vec![
        ("MCP-Protocol-Version".to_owned(), "2025-06-18".to_owned()),
        ("Mcp-Session-Id".to_owned(), session.to_owned()),
    ]
}

pub(crate) async fn post(
    server: &McpHttpServer,
    mut headers: Vec<(String, String)>,
    message: &Value,
) -> HttpReply {
    for (name, value) in
        [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]
    {
        if !headers.iter().any(|(known, _)| known == name) {
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    send(server, "POST /mcp", &headers, &message.to_string()).await
}

/// Sends a message of the modern era with its required headers.
pub(crate) async fn post_modern(server: &McpHttpServer, message: &Value) -> HttpReply {
    post(server, modern_headers(message), message).await
}

pub(crate) async fn send(
    server: &McpHttpServer,
    start: &str,
    headers: &[(String, String)],
    body: &str,
) -> HttpReply {
    let stream = send_only(server, start, headers, body).await;
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        soon(stream.read_line(&mut line)).await.unwrap();
        assert!(!line.is_empty(), "the connection closed in the head: {lines:?}");
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &String| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_lowercase(), value.to_owned())
    };
    let headers = lines[1..].iter().map(header).collect();
    HttpReply { stream, status, headers, text: String::new() }
}

/// Sends a request without reading the response.
pub(crate) async fn send_only(
    server: &McpHttpServer,
    start: &str,
    headers: &[(String, String)],
    body: &str,
) -> TcpStream {
    let address = server.http_server().url().replace("http://", "");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let headers: String = headers.iter().flat_map(|(n, v)| [n, ": ", v, "\r\n"]).collect();
    let request =
        format!("{start} HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

impl HttpReply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Reads a chunk. Returns `None` at the end of the body, and an error if the body is
    /// incomplete.
    pub(crate) async fn chunk(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut size = String::new();
        soon(self.stream.read_line(&mut size)).await?;
        let size = usize::from_str_radix(size.trim_end(), 16)
            .map_err(|_| std::io::Error::other("the body is cut off"))?;
        let mut chunk = vec![0; size + 2];
        soon(self.stream.read_exact(&mut chunk)).await?;
        chunk.truncate(size);
        Ok((size > 0).then_some(chunk))
    }

    /// Reads the message of the next event; `None` at the end of the body.
    pub(crate) async fn event(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                let message = serde_json::from_str(data.expect("an event has data")).unwrap();
                let end = self.text.len() - rest.len();
                self.text.drain(..end);
                return Some(message);
            }
            let chunk = self.chunk().await.unwrap()?;
            self.text.push_str(&String::from_utf8(chunk).unwrap());
        }
    }

    /// Reads the body to its end.
    pub(crate) async fn body(&mut self) -> String {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await.unwrap() {
            body.extend(chunk);
        }
        String::from_utf8(body).unwrap()
    }

    /// Reads a body that is one message.
    pub(crate) async fn json(&mut self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_str(&self.body().await).unwrap()
    }
}
