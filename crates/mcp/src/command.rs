//! The command that starts a server's process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;

use turnstream::http::{Secret, is_secret_name};

/// The environment variables that each server inherits from this process, in addition to `LC_*`.
/// These variables tell a server where to find programs and the user's folders and which time zone
/// applies. They contain no API keys.
#[cfg(not(windows))]
const INHERITED_VARIABLES: &[&str] =
    &["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];
#[cfg(windows)]
const INHERITED_VARIABLES: &[&str] = &[
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
];

/// The command that starts an MCP server, which communicates over its standard input and output.
///
/// The server's environment contains only `PATH`, `HOME` and similar variables, plus the variables
/// that you set with [`env`](Self::env) and [`inherit_env`](Self::inherit_env). The server does not
/// receive API keys for model providers from this process's environment unless you name the
/// variables that contain the keys.
///
/// ```
/// use turnstream_mcp::ServerCommand;
///
/// let files = ServerCommand::new("npx").args(["-y", "@modelcontextprotocol/server-filesystem", "."]);
/// let github = ServerCommand::new("github-mcp-server").arg("stdio").inherit_env("GITHUB_TOKEN");
/// # drop((files, github));
/// ```
#[derive(Clone)]
pub struct ServerCommand {
    program: OsString,
    args: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    inherited: Vec<OsString>,
    working_dir: Option<PathBuf>,
}

impl ServerCommand {
    /// Creates a command that runs `program` without arguments. The program is looked up in `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            inherited: Vec::new(),
            working_dir: None,
        }
    }

    /// Adds an argument. The argument is passed to the program unchanged, without a shell.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments. The arguments are passed to the program unchanged, without a shell.
    pub fn args<T: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable in the server's environment. The value is not shown in `Debug` output or
    /// errors.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Passes one of this process's environment variables to the server, if the variable is set
    /// when the server starts.
    pub fn inherit_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.inherited.push(name.as_ref().to_owned());
        self
    }

    /// Sets the server's working directory. The default is this process's working directory.
    pub fn current_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.working_dir = Some(folder.into());
        self
    }

    /// Returns the program's name as a string, for use in messages.
    pub(crate) fn program(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    /// Returns the arguments as strings.
    pub(crate) fn args_as_text(&self) -> impl Iterator<Item = String> {
        self.args.iter().map(|arg| arg.to_string_lossy().into_owned())
    }

    /// Returns the values to mask in messages: the values of the variables that were set or named
    /// explicitly, and of arguments whose names suggest a key, such as `--api-key` or `--token=…`.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        let is_long = |value: &String| value.len() >= 8;
        let granted = self.granted_env().map(|(_, value)| value.to_string_lossy().into_owned());
        let args: Vec<String> = self.args_as_text().collect();
        let is_key =
            |flag: &str| flag.starts_with('-') && is_secret_name(flag.trim_start_matches('-'));
        let joined = args.iter().filter_map(|arg| arg.split_once('='));
        let joined = joined.filter(|(flag, _)| is_key(flag)).map(|(_, value)| value.to_owned());
        let apart = args.windows(2).filter(|pair| is_key(&pair[0])).map(|pair| pair[1].clone());
        granted.chain(joined).chain(apart).filter(is_long).map(Secret::new).collect()
    }

    /// Converts this command into a tokio command with piped streams and a process group of its
    /// own.
    pub(crate) fn to_tokio(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| is_usual(name)))
            .envs(self.granted_env())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(folder) = &self.working_dir {
            command.current_dir(folder);
        }
        #[cfg(unix)]
        command.process_group(0);
        command
    }

    /// Returns the variables that were set with [`env`](Self::env) or named with
    /// [`inherit_env`](Self::inherit_env), with their values.
    fn granted_env(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let inherited =
            self.inherited.iter().filter_map(|name| Some((name.clone(), std::env::var_os(name)?)));
        inherited.chain(self.env.iter().map(|(name, value)| (name.clone(), value.clone())))
    }
}

/// Returns whether servers inherit this variable by default.
fn is_usual(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let is_listed = |known: &&str| match cfg!(windows) {
        true => known.eq_ignore_ascii_case(&name),
        false => *known == name,
    };
    INHERITED_VARIABLES.iter().any(is_listed) || name.starts_with("LC_")
}

impl fmt::Debug for ServerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.keys().chain(&self.inherited).collect();
        f.debug_struct("ServerCommand")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &names)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env_of(command: &ServerCommand) -> Vec<String> {
        let command = command.to_tokio();
        let set = command.as_std().get_envs().filter(|(_, value)| value.is_some());
        set.map(|(name, _)| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn only_default_and_named_variables_are_passed_to_a_server() {
        // Cargo sets these for every test.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = ServerCommand::new("server").env("TOKEN", "t");
        let names = env_of(&command);
        assert!(names.iter().all(|name| name == "TOKEN" || is_usual(OsStr::new(name))));
        assert!(names.contains(&"TOKEN".to_owned()) && names.contains(&"PATH".to_owned()));
        assert!(
            env_of(&command.inherit_env("CARGO_MANIFEST_DIR"))
                .contains(&"CARGO_MANIFEST_DIR".into())
        );
        for key in
            ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "AWS_SECRET_ACCESS_KEY"]
        {
            assert!(!is_usual(OsStr::new(key)));
        }
    }

    #[test]
    fn the_debug_output_of_a_command_hides_environment_values_and_arguments() {
        let command = ServerCommand::new("server").arg("--key=abc").env("TOKEN", "secret-value");
        let shown = format!("{command:?}");
        assert!(
            shown.contains("TOKEN") && !shown.contains("secret-value") && !shown.contains("abc")
        );
        let secrets = command.secrets();
        assert_eq!(secrets.iter().map(Secret::expose).collect::<Vec<_>>(), ["secret-value"]);
    }
}
