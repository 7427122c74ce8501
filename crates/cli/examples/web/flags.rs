//! The command line: the server's own flags. The others are those of the program `turnstream`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use turnstream::usage::Price;
use turnstream_server::Busy;

use crate::args::{self, Args};
use crate::session::check_file_format;

pub(crate) const HELP: &str = include_str!("help.txt");

/// The server's own flags. Each has a value.
const OWN_FLAGS: [&str; 11] = [
    "--host",
    "--port",
    "--allow-host",
    "--allow-origin",
    "--session",
    "--store",
    "--events",
    "--busy",
    "--keep-events",
    "--price",
    "--max-cost",
];

/// A parsed command line.
#[derive(Debug)]
pub(crate) enum Command {
    Help,
    Serve(Box<Flags>),
}

#[derive(Debug)]
pub(crate) struct Flags {
    pub(crate) host: IpAddr,
    pub(crate) port: Option<u16>,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) allowed_origins: Vec<String>,
    pub(crate) session_path: Option<String>,
    pub(crate) store: Option<String>,
    pub(crate) events: Option<String>,
    pub(crate) busy: Busy,
    /// How long the events of a run that has ended can be read.
    pub(crate) keep_events: Duration,
    pub(crate) price: Option<Price>,
    pub(crate) max_cost: Option<f64>,
    /// The flags of the program `turnstream`.
    pub(crate) agent: Args,
}

/// Parses the words after the program's name. An error is one line for the user.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let (mut own, mut others): (Vec<(String, String)>, Vec<OsString>) = Default::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default().to_owned();
        let (flag, value) = text.split_once('=').map_or((&*text, None), |(a, b)| (a, Some(b)));
        match value {
            _ if ["--yes", "--json", "--mcp", "--mcp-config"].contains(&flag) => {
                return Err(format!("`{flag}` is for `turnstream`"));
            }
            _ if !OWN_FLAGS.contains(&flag) => others.push(word),
            Some(value) => own.push((flag.to_owned(), value.to_owned())),
            None => match words.next().map(OsString::into_string) {
                Some(Ok(value)) if !value.starts_with("--") => own.push((flag.to_owned(), value)),
                _ => return Err(format!("`{flag}` needs a value")),
            },
        }
    }
    let agent = match args::parse(others)? {
        args::Command::Help => return Ok(Command::Help),
        args::Command::Run(args) => args,
    };
    if let Some(prompt) = &agent.prompt {
        return Err(format!("`{prompt}` is not a flag; prompts are written on the page"));
    }
    let all = |flag: &'static str| own.iter().filter(move |(it, _)| it == flag).map(|(_, it)| it);
    let last = |flag: &'static str| all(flag).next_back();
    let seconds = number(last("--keep-events"), "`--keep-events` needs a number of seconds")?;
    let flags = Flags {
        host: number(last("--host"), "`--host` needs an address such as 0.0.0.0")?
            .unwrap_or(IpAddr::from([127, 0, 0, 1])),
        port: number(last("--port"), "`--port` needs a number up to 65535")?,
        allowed_hosts: all("--allow-host").cloned().collect(),
        allowed_origins: all("--allow-origin").map(|it| origin(it)).collect::<Result<_, _>>()?,
        session_path: last("--session").cloned(),
        store: url(last("--store"), cfg!(feature = "postgres"), &["postgres", "postgresql"])?,
        events: url(
            last("--events"),
            cfg!(feature = "redis"),
            &["redis", "rediss", "valkey", "valkeys"],
        )?,
        busy: match last("--busy").map(String::as_str) {
            None | Some("queue") => Busy::Queue,
            Some("refuse") => Busy::Refuse,
            Some(other) => return Err(format!("`--busy` takes queue or refuse, not `{other}`")),
        },
        keep_events: Duration::from_secs(seconds.unwrap_or(60)),
        price: last("--price").map(|it| price(it)).transpose()?,
        max_cost: number(last("--max-cost"), "`--max-cost` needs a number")?,
        agent,
    };
    flags.session_path.as_deref().map_or(Ok(()), check_file_format)?;
    if flags.store.is_some() && flags.session_path.is_some() {
        return Err("`--store` and `--session` cannot be combined".to_owned());
    }
    if flags.events.is_some() && flags.store.is_none() {
        return Err("`--events` needs `--store`, where the other processes read the conversations"
            .to_owned());
    }
    if flags.max_cost.is_some() && flags.price.is_none() {
        return Err("`--max-cost` needs `--price`".to_owned());
    }
    Ok(Command::Serve(Box::new(flags)))
}

fn number<T: FromStr>(value: Option<&String>, needed: &str) -> Result<Option<T>, String> {
    let Some(value) = value else { return Ok(None) };
    value.trim().parse().map(Some).map_err(|_| format!("{needed}, not `{value}`"))
}

/// Parses the address of a server. It may contain a password, so errors do not repeat it.
fn url(value: Option<&String>, is_built: bool, schemes: &[&str]) -> Result<Option<String>, String> {
    let scheme = value.and_then(|value| value.split_once("://")).map(|(scheme, _)| scheme);
    match value {
        None => Ok(None),
        Some(_) if !scheme.is_some_and(|scheme| schemes.contains(&scheme)) => {
            Err(format!("this flag needs an address that begins with {}://", schemes[0]))
        }
        Some(_) if !is_built => {
            Err(format!("`{0}:` needs the feature `{0}` of this example", schemes[0]))
        }
        Some(url) => Ok(Some(url.clone())),
    }
}

/// Parses an origin as browsers send it: a scheme, a host, and a port unless it is the default one.
fn origin(value: &str) -> Result<String, String> {
    let origin = value.trim().trim_end_matches('/').to_lowercase();
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    let is_origin = |host: &str| !host.is_empty() && !host.contains(['/', '*', '?', '#', '@', ' ']);
    let error =
        || format!("`--allow-origin` needs an origin such as http://localhost:3000, not `{value}`");
    if host.is_some_and(is_origin) { Ok(origin) } else { Err(error()) }
}

fn price(value: &str) -> Result<Price, String> {
    let numbers = value.split_once(',').and_then(|(input, output)| {
        let (input, output) = (input.trim().parse().ok()?, output.trim().parse().ok()?);
        Some(Price { input, output, cache_read: input, cache_write: input })
    });
    let error = || format!("`--price` needs two numbers such as 3,15, not `{value}`");
    numbers.filter(Price::is_valid).ok_or_else(error)
}
