//! A pseudoterminal, created by `script`, with a program on it.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A program on a pseudoterminal.
pub struct Terminal {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    output: Vec<u8>,
    /// The length of the output up to the last match.
    consumed_len: usize,
}

impl Terminal {
    /// Starts the program on a terminal whose width is unknown.
    pub fn start(program: &Command) -> Self {
        Self::start_after("", program)
    }

    /// Starts the program on a terminal with this number of columns.
    pub fn start_with_columns(columns: u16, program: &Command) -> Self {
        Self::start_after(&format!("stty columns {columns} rows 24 && "), program)
    }

    /// Starts the program after the shell command `before`, which ends in `&&`.
    fn start_after(before: &str, program: &Command) -> Self {
        let arguments = std::iter::once(program.get_program()).chain(program.get_args());
        let quoted: Vec<_> =
            arguments.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        // Limits the time of a wait for a text that never appears.
        let mut script = Command::new("timeout");
        // Without `exec` the shell would be interrupted as well, and its exit code would be
        // returned.
        let line = format!("{before}exec {}", quoted.join(" "));
        script.args(["120", "script", "-qec", &line, "/dev/null"]);
        script.env("SHELL", "/bin/sh").env("NO_COLOR", "1");
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        if let Some(directory) = program.get_current_dir() {
            script.current_dir(directory);
        }
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        for needed in ["script", "timeout"] {
            let found = Command::new(needed).arg("--version").output();
            assert!(found.is_ok(), "the program `{needed}` is not installed");
        }
        let mut child = script.spawn().unwrap();
        let (keyboard, screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin: keyboard, stdout: screen, output: Vec::new(), consumed_len: 0 }
    }

    /// Waits until the text is displayed, and returns the output since the last wait, up to and
    /// including the text.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let found = self.wait_for_text_or_exit(text);
        found.unwrap_or_else(|| panic!("no `{text}`: {}", String::from_utf8_lossy(&self.output)))
    }

    /// Like [`wait_for`](Self::wait_for); `None` if the program ends without the text.
    pub fn wait_for_text_or_exit(&mut self, text: &str) -> Option<String> {
        while !String::from_utf8_lossy(&self.output[self.consumed_len..]).contains(text) {
            let mut byte = [0];
            self.stdout.read_exact(&mut byte).ok()?;
            self.output.push(byte[0]);
        }
        let since = String::from_utf8_lossy(&self.output[self.consumed_len..]).into_owned();
        self.consumed_len = self.output.len();
        Some(since)
    }

    /// Sends these characters to the program as keys.
    pub fn type_keys(&mut self, keys: &str) {
        self.stdin.write_all(keys.as_bytes()).unwrap();
    }

    /// All output, and the exit code.
    pub fn wait_for_exit(mut self) -> (String, i32) {
        let _ = self.stdout.read_to_end(&mut self.output);
        let code = self.child.wait().unwrap().code().unwrap();
        (String::from_utf8_lossy(&self.output).into_owned(), code)
    }
}
