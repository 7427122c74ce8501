//! The example `web` as a process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::model::Model;

/// The example `web` in a folder of its own. Dropping it kills the process.
pub(crate) struct Server {
    child: Child,
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    flags: Vec<String>,
}

impl Server {
    /// Starts it with a model that the test controls.
    pub(crate) async fn start(model: &Model) -> Self {
        let flags = ["--provider", "openai", "--base-url", &model.url(), "--model", "m"];
        Self::start_with(&flags, 0).await
    }

    /// Starts it with the offline model, in the project's folder.
    pub(crate) async fn start_offline() -> Self {
        let mut server = Self::prepare(&["--provider", "offline"]);
        server.folder = project();
        server.spawn(0).await;
        server
    }

    /// Starts it with these flags, on a free port or this one.
    pub(crate) async fn start_with(flags: &[&str], port: u16) -> Self {
        let mut server = Self::prepare(flags);
        server.spawn(port).await;
        server
    }

    fn prepare(flags: &[&str]) -> Self {
        let folder = create_folder("web");
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        Self { child: Command::new("true").spawn().unwrap(), folder, port: 0, flags }
    }

    async fn spawn(&mut self, port: u16) {
        let program = std::env::var_os("TURNSTREAM_WEB").expect("TURNSTREAM_WEB is set by run.sh");
        let mut child = Command::new(program)
            .args(&self.flags)
            .args(["--port", &port.to_string()])
            .current_dir(&self.folder)
            .env_remove("TURNSTREAM_WEB_TOKEN")
            .env("OPENAI_API_KEY", "key")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("the server prints its address");
        self.port = line.rsplit(':').next().unwrap().trim().parse().unwrap();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        self.child = child;
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Kills the process, as a crash does.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Starts it again, at the same address.
    pub(crate) async fn start_again(&mut self) {
        self.spawn(self.port).await;
    }

    /// The server's response to a `GET`.
    pub(crate) async fn get(&self, path: &str) -> Value {
        request(self.port, "GET", path, "").await
    }

    /// The server's response to a `POST`.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        request(self.port, "POST", path, &body.to_string()).await
    }

    /// The items of a session.
    pub(crate) async fn items(&self, session: &str) -> Vec<Value> {
        let mut answer = self.get(&format!("/sessions/{session}/messages")).await;
        let messages = answer["messages"].as_array_mut().unwrap();
        messages.iter_mut().map(|message| message["entry"].take()).collect()
    }

    /// Waits until the server's counts satisfy a condition.
    pub(crate) async fn wait_for_health(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..10 {
            if let Some(health) = self.health_soon(&is_so).await {
                return health;
            }
        }
        panic!("the server stays at {}", self.get("/health").await);
    }

    /// The server's counts, if they satisfy a condition within a second.
    pub(crate) async fn health_soon(&self, is_so: impl Fn(&Value) -> bool) -> Option<Value> {
        for _ in 0..40 {
            let health = self.get("/health").await;
            if is_so(&health) {
                return Some(health);
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        if self.folder.starts_with(env!("CARGO_TARGET_TMPDIR")) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Sends a request to the server at a port, and returns the JSON of its response.
pub(crate) async fn request(port: u16, method: &str, path: &str, body: &str) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

/// Creates an empty folder for a process.
pub(crate) fn create_folder(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{name}-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The project's folder.
pub(crate) fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}
