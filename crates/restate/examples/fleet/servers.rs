//! The third-party servers: where their programs are, and how they are started.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fs};

use tokio::net::TcpStream;
use tokio::process::Command;
use turnstream::{Error, ErrorKind};
use turnstream_test_support::ports::unassigned_port;
use turnstream_test_support::postgres;

use crate::settings::{io_error, variable};
use crate::support::{client, wait_until};

const INSTALL_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/install.sh");

const START_LIMIT: Duration = Duration::from_mins(1);

/// A configured Restate server.
pub(crate) struct Restate {
    program: PathBuf,
    folder: PathBuf,
    ingress: u16,
    admin: u16,
}

impl Restate {
    /// Finds or installs the program, and writes the configuration into this folder.
    pub(crate) async fn prepare(folder: &Path) -> Result<Self, Error> {
        let program = install_restate().await?;
        let [ingress, admin, fabric] = std::array::from_fn(|_| unassigned_port());
        let config = format!(
            r#"node-name = "fleet"
base-dir = "{base_dir}"
bind-ip = "127.0.0.1"
bind-port = {fabric}
listen-mode = "tcp"
default-num-partitions = 4
rocksdb-total-memory-size = "128.0 MiB"
disable-telemetry = true
shutdown-timeout = "1s"

[ingress]
bind-port = {ingress}

[admin]
bind-port = {admin}
disable-web-ui = true
"#,
            base_dir = folder.join("restate").display(),
        );
        let written = fs::write(folder.join("restate.toml"), config);
        written.map_err(|error| io_error("Restate's configuration cannot be written", error))?;
        Ok(Self { program, folder: folder.to_owned(), ingress, admin })
    }

    /// The program and its arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        let config = self.folder.join("restate.toml");
        let words = [self.program.as_path(), Path::new("--config-file"), &config];
        words.map(|word| word.to_string_lossy().into_owned()).into()
    }

    pub(crate) fn ingress_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ingress)
    }

    pub(crate) fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin)
    }

    pub(crate) async fn wait_until_healthy(&self) {
        let urls = [
            format!("{}/restate/health", self.ingress_url()),
            format!("{}/health", self.admin_url()),
        ];
        for url in urls {
            wait_until_ok(&url).await;
        }
    }
}

/// Returns the program that the script prints. If one is set or installed already, the script
/// downloads nothing.
async fn install_restate() -> Result<PathBuf, Error> {
    let mut script = Command::new("bash");
    script.arg(INSTALL_SCRIPT).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = script.output().await;
    let output = output.map_err(|error| io_error("bash cannot be started", error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().last().filter(|_| output.status.success()) {
        Some(path) => Ok(path.into()),
        None => {
            let message = "no Restate server was found; TURNSTREAM_RESTATE_SERVER can name one";
            Err(Error::new(ErrorKind::Other, message))
        }
    }
}

/// A Redis or Valkey server without persistence.
pub(crate) struct Redis {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
}

impl Redis {
    /// `None` if none is installed.
    pub(crate) fn find(folder: &Path) -> Option<Self> {
        let named = variable("TURNSTREAM_REDIS_SERVER").map(PathBuf::from);
        let program = named.or_else(|| find_program(&["redis-server", "valkey-server"], &[]));
        Some(Self { program: program?, folder: folder.to_owned(), port: unassigned_port() })
    }

    pub(crate) fn words(&self) -> Vec<String> {
        let (program, folder) = (self.program.to_string_lossy(), self.folder.to_string_lossy());
        let port = self.port.to_string();
        let words =
            [&*program, "--bind", "127.0.0.1", "--port", &port, "--dir", &*folder, "--save", ""];
        words.map(str::to_owned).into()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) async fn wait_until_it_answers(&self) {
        wait_until("Redis answers", START_LIMIT, async || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.is_ok()
        })
        .await;
    }
}

/// Starts a PostgreSQL server that is removed on drop. `None` if none is installed.
pub(crate) async fn start_postgres() -> Option<postgres::Server> {
    let mut folders: Vec<PathBuf> =
        variable("TURNSTREAM_POSTGRES_BIN").map(PathBuf::from).into_iter().collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    find_program(&["initdb"], &folders)?;
    let started = tokio::task::spawn_blocking(|| postgres::Server::start(&[])).await;
    started.ok()
}

/// Waits until a request to the URL succeeds.
pub(crate) async fn wait_until_ok(url: &str) {
    wait_until(&format!("{url} answers"), START_LIMIT, async || {
        client().get(url).send().await.is_ok_and(|response| response.status().is_success())
    })
    .await;
}

/// Finds the first of these programs on the `PATH` or in these folders.
fn find_program(names: &[&str], folders: &[PathBuf]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = folders.iter().cloned().chain(env::split_paths(&path)).collect();
    let find = |name: &&str| folders.iter().map(|it| it.join(name)).find(|file| file.is_file());
    names.iter().find_map(find)
}
