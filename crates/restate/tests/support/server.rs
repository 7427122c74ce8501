//! A Restate server process.

use super::ingress::client;
use super::temp_dir::TempDir;
use super::wait::wait_for;
use reqwest::Response;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use turnstream_test_support::ports::unassigned_port;

pub(super) const START_LIMIT: Duration = Duration::from_mins(1);
/// Another process may take a port after it was chosen and before the server starts.
const START_ATTEMPTS: usize = 3;
const MAX_PRINTED_LINES: usize = 80;

/// A Restate server with an empty base directory and free ports on the loopback interface.
///
/// Dropping this value kills the process by its id and removes its files. If that happens in a
/// panic, for example of a failed wait, it prints the end of the server's log first.
///
/// The server sends no telemetry. Version 1.7.12 requests the latest release number from
/// api.github.com at each start, which cannot be turned off; if that fails, it logs an error of
/// `octocrab` and works as usual.
#[derive(Debug)]
pub(crate) struct RestateServer {
    dir: TempDir,
    ports: Ports,
    /// None while the server is killed.
    process: Option<Child>,
}

/// Free ports that were found by binding port 0.
#[derive(Clone, Copy, Debug)]
struct Ports {
    ingress: u16,
    admin: u16,
    fabric: u16,
}

/// Additions to the configuration that [`RestateServer::start`] writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// TOML before the first table. If it is not empty, it has to set `node-name`.
    pub(crate) common: String,
    /// TOML tables other than `admin` and `ingress`.
    pub(crate) tables: String,
}

impl RestateServer {
    /// The server's program, if the environment variable `TURNSTREAM_RESTATE_SERVER` names one.
    pub(crate) fn binary() -> Option<PathBuf> {
        let path = std::env::var_os("TURNSTREAM_RESTATE_SERVER").filter(|path| !path.is_empty())?;
        // The server gets another working directory.
        Some(std::path::absolute(path).expect("the working directory exists"))
    }

    /// Starts a server, and waits until ingress and admin API report that they are healthy.
    pub(crate) async fn start() -> Self {
        Self::start_with(Settings::default()).await
    }

    /// Like [`start`](Self::start), with further settings.
    pub(crate) async fn start_with(settings: Settings) -> Self {
        for _ in 1..START_ATTEMPTS {
            let mut server = Self::spawn(&settings);
            if server.becomes_healthy().await {
                return server;
            }
            // The log shows whether a port was taken.
            server.print_log();
        }
        let mut server = Self::spawn(&settings);
        server.wait_until_healthy().await;
        server
    }

    /// Starts a server that is not healthy yet.
    pub(super) fn spawn(settings: &Settings) -> Self {
        let mut server = Self::reserve();
        server.configure(settings);
        server.start_process();
        server
    }

    /// Reserves a folder and ports for a server that is not configured yet.
    pub(super) fn reserve() -> Self {
        Self { dir: TempDir::new(), ports: Ports::find(), process: None }
    }

    /// Writes the configuration.
    pub(super) fn configure(&self, settings: &Settings) {
        let Settings { common, tables } = settings;
        let Ports { ingress, admin, fabric } = self.ports;
        let base_dir = self.base_dir();
        let base_dir = base_dir.to_str().expect("the path is UTF-8");
        let common = if common.is_empty() { "node-name = \"node-1\"" } else { common };
        let config = format!(
            r#"{common}
base-dir = "{base_dir}"
bind-ip = "127.0.0.1"
bind-port = {fabric}
listen-mode = "tcp"
default-num-partitions = 4
rocksdb-total-memory-size = "128.0 MiB"
disable-telemetry = true
log-format = "compact"
log-disable-ansi-codes = true
shutdown-timeout = "1s"

[ingress]
bind-port = {ingress}

[admin]
bind-port = {admin}
disable-web-ui = true

{tables}
"#
        );
        fs::write(self.dir.path().join("restate.toml"), config).expect("the config can be written");
    }

    /// Starts the configured process.
    pub(super) fn start_process(&mut self) {
        assert!(self.process.is_none(), "the server runs already");
        self.process = Some(self.run());
    }

    /// Kills the process with SIGKILL. Its files stay, and [`restart`](Self::restart) reads them.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Fails only if the process has ended.
            let _ = process.kill();
            process.wait().expect("a child of ours can be waited for");
        }
    }

    /// Kills the server if it runs, starts it again with the same ports and files, and waits until
    /// it is healthy.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.start_process();
        self.wait_until_healthy().await;
    }

    /// Waits until ingress and admin API report that they are healthy.
    pub(crate) async fn wait_until_healthy(&mut self) {
        assert!(self.becomes_healthy().await, "the server ended on its own");
    }

    /// The URL of the ingress, without a slash at its end.
    pub(crate) fn ingress_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.ingress)
    }

    /// The URL of the admin API, without a slash at its end.
    pub(crate) fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.admin)
    }

    /// The URL at which other nodes reach this one.
    pub(super) fn fabric_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.fabric)
    }

    /// The id of the process. Panics if it was killed.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("the server runs").id()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// The folder with the server's data.
    pub(crate) fn base_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The server's log, over restarts.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    fn run(&self) -> Child {
        let binary = Self::binary().expect(
            "TURNSTREAM_RESTATE_SERVER names no server; crates/restate/tests/install.sh prints one",
        );
        let open = || -> std::io::Result<File> {
            File::options().create(true).append(true).open(self.log_path())
        };
        Command::new(&binary)
            .arg("--no-logo")
            .arg("--config-file")
            .arg(self.dir.path().join("restate.toml"))
            .current_dir(self.dir.path())
            // `RESTATE_*` and `RUST_LOG` would change the configuration.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(open().expect("the log can be opened"))
            .stderr(open().expect("the log can be opened"))
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", binary.display()))
    }

    /// Waits until the server is healthy. False if its process ended first.
    async fn becomes_healthy(&mut self) -> bool {
        let urls = [
            format!("{}/restate/health", self.ingress_url()),
            format!("{}/health", self.admin_url()),
        ];
        let process = self.process.as_mut().expect("the server was started");
        wait_for("the server is healthy", START_LIMIT, async || {
            if process.try_wait().expect("a child's status can be read").is_some() {
                return Ok(false);
            }
            for url in &urls {
                let response = client().get(url).send().await;
                response.and_then(Response::error_for_status).map_err(|e| format!("{e:?}"))?;
            }
            Ok(true)
        })
        .await
    }

    fn print_log(&self) {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(MAX_PRINTED_LINES)..];
        eprintln!("---- log of the server at {} ----\n{}", self.admin_url(), last.join("\n"));
    }
}

impl Drop for RestateServer {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            self.print_log();
        }
    }
}

impl Ports {
    fn find() -> Self {
        let [ingress, admin, fabric] = std::array::from_fn(|_| unassigned_port());
        Self { ingress, admin, fabric }
    }
}
