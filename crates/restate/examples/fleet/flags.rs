//! The command line.

use std::ffi::OsString;

pub(crate) const HELP: &str = "\
A chat in the browser with an agent that runs on a fleet of processes: Restate, two workers and a front end, with
Redis and PostgreSQL if they are installed. You can kill any of them while a run is active.

    fleet [FLAGS]

    --port N            the port of the page; by default 8600, or a free port if 8600 is taken
    --without SERVER    does not start this server, redis or postgres; may be repeated
    --model NAME        the model, for example claude-sonnet-4-5 or vendor:model; by default, a model of the vendor
                        whose key is set, such as ANTHROPIC_API_KEY or OPENAI_API_KEY
    --scripted          a model whose words are scripted; the default if no key is set
    --help              prints this text

The Restate server is the program that TURNSTREAM_RESTATE_SERVER names, or the one that
crates/restate/tests/install.sh installs. Ctrl-C stops all processes and removes Restate's files.
";

/// A parsed command line.
pub(crate) enum Command {
    Help,
    /// Starts all processes.
    Supervise(Flags),
    /// Performs runs.
    Work(Flags),
    /// Serves the page.
    ServePage(Flags),
    /// Runs a program for as long as the guard's own standard input is open.
    Guard(Vec<OsString>),
}

#[derive(Clone, Default)]
pub(crate) struct Flags {
    pub(crate) port: Option<u16>,
    pub(crate) without_redis: bool,
    pub(crate) without_postgres: bool,
    pub(crate) model: Option<String>,
    pub(crate) is_scripted: bool,
}

/// Parses the words after the program's name. An error is one line for the user.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let role = words.first().and_then(|word| word.to_str()).unwrap_or_default().to_owned();
    let make_command: fn(Flags) -> Command = match role.as_str() {
        "guard" => return Ok(Command::Guard(words.split_off(1))),
        "worker" => Command::Work,
        "front-end" => Command::ServePage,
        _ => Command::Supervise,
    };
    let has_role = matches!(role.as_str(), "worker" | "front-end");
    let mut words = words.into_iter().skip(usize::from(has_role));
    let mut flags = Flags::default();
    while let Some(word) = words.next() {
        let flag = word.to_string_lossy().into_owned();
        let mut value = || match words.next().map(OsString::into_string) {
            Some(Ok(value)) => Ok(value),
            _ => Err(format!("`{flag}` needs a value")),
        };
        match flag.as_str() {
            "--help" => return Ok(Command::Help),
            "--port" => flags.port = Some(parse_port(&value()?)?),
            "--without" => match value()?.as_str() {
                "redis" => flags.without_redis = true,
                "postgres" => flags.without_postgres = true,
                other => return Err(format!("`--without` takes redis or postgres, not `{other}`")),
            },
            "--model" => flags.model = Some(value()?),
            "--scripted" => flags.is_scripted = true,
            _ => return Err(format!("`{flag}` is not a flag; see --help")),
        }
    }
    Ok(make_command(flags))
}

fn parse_port(value: &str) -> Result<u16, String> {
    value.parse().map_err(|_| format!("`--port` needs a number, not `{value}`"))
}
