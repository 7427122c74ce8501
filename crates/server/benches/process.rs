//! Servers and clients as processes of a bench's own program.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process of this program. Dropping it ends the process.
pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(words: &[&str]) -> Self {
        let program = std::env::current_exe().expect("the path of the program");
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, output }
    }

    /// Waits for a line of the process's output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "the process has ended");
        line.trim().to_owned()
    }

    /// A file of the process in `/proc`.
    pub(crate) fn status_file(&self, name: &str) -> String {
        let path = format!("/proc/{}/{name}", self.child.id());
        std::fs::read_to_string(path).expect("the status of the process")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Completes when the process that has started this one ends, or drops its [`Process`].
pub(crate) async fn end_of_input() {
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    drop(ended.await);
}

/// Prints how many descriptors a process may have.
pub(crate) fn print_descriptor_limit() {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let descriptors = limits.lines().find(|line| line.starts_with("Max open files"));
    println!("{}", descriptors.unwrap_or("the descriptor limit is unknown"));
}
