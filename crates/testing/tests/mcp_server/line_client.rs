//! A client that sends and receives raw lines.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use turnstream_testing::mcp::{McpServer, McpServerHandle};

use crate::tools::{initialize, notification};

/// Limits every wait, so that a broken server fails its test. With the paused clock of the tests,
/// the limit is reached as soon as all tasks are idle.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_mins(1), future).await.expect("the server keeps its client waiting")
}

pub(crate) struct LineClient {
    pub(crate) reader: BufReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
    pub(crate) handle: McpServerHandle,
    pub(crate) serving: JoinHandle<io::Result<()>>,
}

impl LineClient {
    pub(crate) fn start(server: McpServer) -> Self {
        let (here, there) = tokio::io::duplex(64 << 10);
        let (reader, writer) = tokio::io::split(here);
        let (server_reader, server_writer) = tokio::io::split(there);
        let handle = server.handle();
        let serving = tokio::spawn(server.serve(server_reader, server_writer));
        Self { reader: BufReader::new(reader), writer, handle, serving }
    }

    /// Starts a server, and a session of the legacy era.
    pub(crate) async fn start_legacy(server: McpServer) -> Self {
        let mut client = Self::start(server);
        let answer = client.ask(initialize("2025-06-18")).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
        client.send(notification("notifications/initialized", json!({}))).await;
        client
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.send_line(&message.to_string()).await;
    }

    pub(crate) async fn send_line(&mut self, line: &str) {
        let line = format!("{line}\n");
        soon(self.writer.write_all(line.as_bytes())).await.expect("the server reads");
    }

    /// Reads a line; empty at the end.
    pub(crate) async fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        soon(self.reader.read_until(b'\n', &mut line)).await.expect("the stream can be read");
        line
    }

    pub(crate) async fn receive(&mut self) -> Value {
        let line = self.line().await;
        let shown = String::from_utf8_lossy(&line);
        serde_json::from_slice(&line).unwrap_or_else(|error| panic!("{error}: {shown:?}"))
    }

    pub(crate) async fn ask(&mut self, message: Value) -> Value {
        self.send(message).await;
        self.receive().await
    }

    /// Sends a ping of the legacy era, or a `discover` of the modern one, and checks that its
    /// answer is the next message, so nothing else was sent before.
    pub(crate) async fn expect_nothing(&mut self, probe: Value) {
        let id = probe["id"].clone();
        let answer = self.ask(probe).await;
        assert_eq!(answer["id"], id, "{answer}");
    }

    /// Closes the client's side. Returns the rest of the output, once the server has ended.
    pub(crate) async fn close(mut self) -> String {
        self.writer.shutdown().await.expect("the stream can be closed");
        let mut rest = String::new();
        soon(self.reader.read_to_string(&mut rest)).await.expect("the rest is text");
        soon(self.serving).await.expect("no panic").expect("no error");
        rest
    }
}
