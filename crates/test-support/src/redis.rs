//! A Redis or Valkey server for tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ports::unassigned_port;

/// The variable with the program, if it is not `redis-server` or `valkey-server` in `PATH`.
const PROGRAM_ENV: &str = "TURNSTREAM_REDIS_SERVER";

/// A server on a port of its own, which stops when this value is dropped, or when the test process
/// ends in any way.
pub struct Server {
    port: u16,
    folder: PathBuf,
    is_persistent: bool,
    running: Option<Child>,
}

impl Server {
    /// Starts a server without persistence.
    pub fn start() -> Self {
        Self::start_with(false)
    }

    /// Starts a server. If it is persistent, it still has its data after [`kill`](Self::kill).
    pub fn start_with(is_persistent: bool) -> Self {
        let port = unassigned_port();
        let folder = std::env::temp_dir().join(format!("turnstream-redis-{port}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut server = Self { port, folder, is_persistent, running: None };
        server.restart();
        server
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Restarts the server on the same port, after [`kill`](Self::kill).
    pub fn restart(&mut self) {
        assert!(self.running.is_none());
        // The shell kills the server when its own input is closed, at the latest when the test
        // process ends.
        let script = r#""$@" >/dev/null & echo $!; read -r _; kill -9 $! 2>/dev/null; wait"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(program());
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string()]);
        command.arg("--dir").arg(&self.folder).args(["--save", ""]);
        if self.is_persistent {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pid = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        self.running = Some(child);
        let begin = Instant::now();
        while !self.answers() {
            assert!(begin.elapsed() < Duration::from_secs(20), "the server does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    /// Sends a command as another program would, and returns the server's answer.
    pub fn command(&self, parts: &[&str]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "*{}\r\n", parts.len()).unwrap();
        for part in parts {
            write!(stream, "${}\r\n{part}\r\n", part.len()).unwrap();
        }
        let mut answer = vec![0; 1 << 16];
        let length = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut line = String::new();
        stream.write_all(b"PING\r\n").is_ok()
            && BufReader::new(stream).read_line(&mut line).is_ok()
            && line.starts_with("+PONG")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn program() -> PathBuf {
    if let Some(program) = std::env::var_os(PROGRAM_ENV) {
        return program.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let find =
        |name: &str| folders.iter().map(|folder| folder.join(name)).find(|file| is_file(file));
    find("redis-server")
        .or_else(|| find("valkey-server"))
        .expect("crates/redis/tests/install.sh installs it")
}

fn is_file(path: &Path) -> bool {
    path.is_file()
}
