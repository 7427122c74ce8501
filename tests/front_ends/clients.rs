//! The clients, which run in a Node process.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// Sends requests to the clients as lines of JSON, and reads their replies.
pub(crate) struct Clients {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    asked: u64,
}

impl Clients {
    /// Starts the process. `tests/front_ends/run.sh` sets its path.
    pub(crate) fn start() -> Self {
        let folder = env::var_os("TURNSTREAM_FRONT_ENDS").expect("tests/front_ends/run.sh sets it");
        let node = env::var_os("TURNSTREAM_NODE").expect("tests/front_ends/run.sh sets it");
        let mut process = Command::new(node)
            .arg(Path::new(&folder).join("clients.mjs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Node starts");
        let requests = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        Self { process, requests, answers, asked: 0 }
    }

    pub(crate) fn ask(&mut self, mut request: Value) -> Value {
        self.asked += 1;
        request["id"] = json!(self.asked);
        let requests = self.requests.as_mut().expect("it was not ended");
        writeln!(requests, "{request}").expect("the process reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the process answers");
        let answer: Value = serde_json::from_str(&line).expect("an answer is a line of JSON");
        assert_eq!(answer["id"], request["id"], "{answer}");
        answer
    }

    /// Returns the message that a client builds from a body, starting from an existing message or a
    /// new one.
    pub(crate) fn read(&mut self, client: &str, body: &str, message: Option<&Value>) -> Value {
        let mut request = json!({ "do": "read", "client": client, "body": body });
        if let Some(message) = message {
            request["message"] = message.clone();
        }
        self.ask(request)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // The process ends when its input is closed.
        self.requests = None;
        let _ = self.process.wait();
    }
}
