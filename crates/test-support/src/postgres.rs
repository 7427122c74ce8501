//! A PostgreSQL server that a test starts, kills and restarts.
//!
//! `initdb` and `pg_ctl` are searched for in the folder `TURNSTREAM_POSTGRES_BIN`, on the `PATH`,
//! and in `/usr/lib/postgresql`. They refuse to run as root: then they are run as the user
//! `nobody`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use crate::ports::unassigned_port;

/// The superuser.
pub const OWNER: &str = "owner";
/// The superuser's password. No error may show it.
pub const PASSWORD: &str = "hunter2-is-secret";

/// A server on a free port of the loopback interface. When it is dropped, or the process ends in
/// any way, the server is stopped and its folder removed.
pub struct Server {
    folder: PathBuf,
    port: u16,
    /// A shell that waits for the end of its input, and then cleans up.
    guard: Child,
}

impl Server {
    /// Starts a server with lines for `postgresql.conf`.
    pub fn start(settings: &[&str]) -> Self {
        let folder = create_folder();
        let password_file = folder.join("password");
        fs::write(&password_file, PASSWORD).unwrap();
        let data = folder.join("data");
        let initdb = tool("initdb");
        let mut command = as_user(&initdb);
        command.args(["--no-sync", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]);
        command.arg("--pgdata").arg(&data).args(["--username", OWNER]);
        command.arg(format!("--pwfile={}", password_file.display()));
        run(&mut command);
        let port = unassigned_port();
        let mut config = format!(
            "port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n\
             logging_collector = off\nmax_connections = 200\nlog_min_messages = error\n",
            folder.display()
        );
        for line in settings {
            writeln!(config, "{line}").unwrap();
        }
        let mut file =
            fs::OpenOptions::new().append(true).open(data.join("postgresql.conf")).unwrap();
        file.write_all(config.as_bytes()).unwrap();
        let clean_up = "read -r _; \"$1\" stop -D \"$2/data\" -m immediate -s; rm -rf \"$2\"";
        let mut guard = as_user(Path::new("sh"));
        guard.args(["-c", clean_up, "sh"]).arg(tool("pg_ctl")).arg(&folder);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let guard = guard.process_group(0).spawn().unwrap();
        let server = Self { folder, port, guard };
        server.start_again();
        server
    }

    /// Restarts the server after [`kill`](Self::kill).
    pub fn start_again(&self) {
        let mut command = as_user(&tool("pg_ctl"));
        command.arg("start").arg("-D").arg(self.data()).args(["-w", "-s", "-t", "60", "-l"]);
        command.arg(self.folder.join("log")).stderr(Stdio::null());
        // A process of the killed server that was just starting ends on its own, and blocks a
        // restart until then.
        let is_started = (0..100).any(|_| succeeds(&mut command));
        assert!(is_started, "{command:?}: {}", self.log());
    }

    /// Kills all its processes at the same time, as a crash of the machine would.
    pub fn kill(&self) {
        let mut pids = self.pids();
        // Some may have ended.
        succeeds(Command::new("kill").arg("-9").args(&pids).stderr(Stdio::null()));
        while !pids.is_empty() {
            pids.retain(|pid| Path::new(&format!("/proc/{pid}")).exists() && !is_zombie(pid));
        }
    }

    /// Stops all its processes, so that they answer nothing, or lets them continue.
    pub fn signal(&self, signal: &str) {
        run(Command::new("kill").arg(format!("-{signal}")).args(self.pids()));
    }

    /// The port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of its data.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A URL for the superuser.
    pub fn url(&self) -> String {
        self.url_as(OWNER, PASSWORD)
    }

    /// A URL for this user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("postgres://{user}:{password}@127.0.0.1:{}/postgres", self.port)
    }

    /// A URL for the superuser and a database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{OWNER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// The server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn pids(&self) -> Vec<String> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let Some(first) = file.lines().next() else { return Vec::new() };
        let output = Command::new("ps").args(["-o", "pid=", "--ppid", first]).output().unwrap();
        let others = String::from_utf8(output.stdout).unwrap();
        let pids = [first].into_iter().chain(others.split_whitespace()).map(String::from);
        pids.filter(|pid| Path::new(&format!("/proc/{pid}")).exists()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Creates a file that only the server's user can read, as the server requires of a key.
pub fn give_to_server(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    if is_root() {
        let (user, group) = server_user();
        chown(path, Some(user), Some(group)).unwrap();
    }
}

/// A command that runs a program as the server's user.
pub fn as_user(program: &Path) -> Command {
    let mut command = match is_root() {
        true => Command::new("runuser"),
        false => return Command::new(program),
    };
    command.args(["-u", "nobody", "--"]).arg(program).current_dir("/");
    command
}

/// The path of one of PostgreSQL's programs.
pub fn tool(name: &str) -> PathBuf {
    if let Some(folder) = env::var_os("TURNSTREAM_POSTGRES_BIN") {
        return Path::new(&folder).join(name);
    }
    let on_path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&on_path).collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| {
        panic!("there is no `{name}`: crates/postgres/tests/install.sh installs it")
    })
}

fn create_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("turnstream-postgres-{}-{number}", process::id());
    let folder = env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    if is_root() {
        let (user, group) = server_user();
        chown(&folder, Some(user), Some(group)).unwrap();
    }
    folder
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// The user that runs the server, if this process runs as root.
fn server_user() -> (u32, u32) {
    let id = |option: &str| {
        let output = Command::new("id").args([option, "nobody"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    (id("-u"), id("-g"))
}

fn is_zombie(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

fn run(command: &mut Command) {
    assert!(succeeds(command), "{command:?}");
}

fn succeeds(command: &mut Command) -> bool {
    // Not `output`: the server would inherit the pipes and keep them open for as long as it runs.
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success()
}
