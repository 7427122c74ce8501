//! The command line.

use std::ffi::OsString;

use turnstream::usage::Price;

use crate::args::Args;
use crate::provider::ProviderName;

pub(crate) const HELP: &str = "\
A chat in the browser with an agent that runs on a fleet of processes: Restate, two workers and a front end, with
Redis and PostgreSQL if they are installed. You can kill any of them while a run is active.

    fleet [FLAGS]

    --port N            the port of the page; by default 8600, or a free port if 8600 is taken
    --without SERVER    does not start this server, redis or postgres; may be repeated
    --provider, --base-url, --model, --max-turns
                        as in the example `agent`; keys are read from the same environment variables
    --help              prints this text

The Restate server is the program that TURNSTREAM_RESTATE_SERVER names, or the one that
durable/tests/install.sh installs. Ctrl-C stops all processes and removes Restate's files.
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
    pub(crate) agent: Args,
    // The modules of the example `web` read these fields. They have no flags here.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) allowed_origins: Vec<String>,
    pub(crate) session_path: Option<String>,
    pub(crate) price: Option<Price>,
    pub(crate) max_cost: Option<f64>,
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
            "--port" => flags.port = Some(parse_number(&flag, &value()?)?),
            "--without" => match value()?.as_str() {
                "redis" => flags.without_redis = true,
                "postgres" => flags.without_postgres = true,
                other => return Err(format!("`--without` takes redis or postgres, not `{other}`")),
            },
            "--provider" => flags.agent.provider = Some(ProviderName::parse(&value()?)?),
            "--base-url" => flags.agent.base_url = Some(value()?),
            "--model" => flags.agent.model = Some(value()?),
            "--max-turns" => flags.agent.max_turns = Some(parse_number(&flag, &value()?)?),
            _ => return Err(format!("`{flag}` is not a flag; see --help")),
        }
    }
    Ok(make_command(flags))
}

fn parse_number<T: std::str::FromStr>(flag: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{flag}` needs a number, not `{value}`"))
}
