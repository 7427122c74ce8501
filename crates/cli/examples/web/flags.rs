//! The command line: the server's own flags. The others are those of the program `turnstream`.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use turnstream::usage::Price;

use crate::args::{self, Args};

pub(crate) const USUAL_PORT: u16 = 8600;

pub(crate) const HELP: &str = "\
A chat in the browser with an agent that can read the working directory. The agent writes a file there
only if you approve it. A run continues when its page is closed.

    web [FLAGS]

    --port N              the port; by default 8600, or a free port if 8600 is taken
    --host ADDRESS        the address to listen on (127.0.0.1). On an address that other machines can reach,
                          a browser has to open the printed link, which works once, and programs have to
                          send `authorization: Bearer …` with the value of TURNSTREAM_WEB_TOKEN. If that
                          variable is set, the same holds for any address
    --allow-host NAME     a name under which clients reach the server, besides IP addresses and localhost
    --allow-origin URL    the origin of another page that may use the server, for example http://localhost:3000
    --session PATH        stores the conversations: as JSON lines in a folder, or in SQLite in a file whose
                          extension is .db or .sqlite (feature `sqlite`). By default they are in memory
    --store postgres://…  stores the conversations in PostgreSQL (feature `postgres`), instead of --session. In a
                          password, write `/`, `@`, `#`, `%` and `:` as `%2F`, `%40`, `%23`, `%25` and `%3A`
    --events redis://…    shares runs with all processes that have the same --store and --events, through Redis or
                          Valkey (feature `redis`): any process shows, steers and stops the runs of the others, and
                          continues the runs of a process that was killed. On addresses that other machines can
                          reach, all processes need the same TURNSTREAM_WEB_TOKEN
    --busy queue|refuse   what happens to a message while a run is active: it is queued, or refused with status
                          409 (queue). A queued message also waits while calls wait for approval
    --keep-events SECONDS how long a page that reconnects can read the events of a run that has ended (60)
    --price IN,OUT        the prices of a million input and output tokens, in any currency, for the costs on the page
    --max-cost N          the maximum cost of a run, in the same currency; needs --price
    --provider, --base-url, --dialect, --plain-http, --model, --system, --max-turns, --no-tools, --offline-delay
                          as in `turnstream --help`; keys are read from the same environment variables
    --help                prints this text

Ctrl-C or SIGTERM stops the server: active runs have two seconds to end, and are then interrupted. With
--session or --store, the received part of an interrupted turn is stored; queued messages are not. Pressing
Ctrl-C twice ends the program immediately.
";

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

/// The handling of a message to a session whose run is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    Queue,
    Refuse,
}

/// Parses the words after the program's name. An error is one line for the user.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut flags = Flags {
        host: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: None,
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        session_path: None,
        store: None,
        events: None,
        busy: Busy::Queue,
        keep_events: Duration::from_mins(1),
        price: None,
        max_cost: None,
        agent: Args::default(),
    };
    let mut others = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default().to_owned();
        let (flag, value) = match text.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (text, None),
        };
        let mut given = || match value.clone() {
            Some(value) => Ok(value),
            None => match words.next().map(OsString::into_string) {
                Some(Ok(value)) if !value.starts_with("--") => Ok(value),
                _ => Err(format!("`{flag}` needs a value")),
            },
        };
        match flag.as_str() {
            "--host" => flags.host = parse_with(&flag, &given()?, "an address such as 0.0.0.0")?,
            "--port" => flags.port = Some(parse_with(&flag, &given()?, "a number up to 65535")?),
            "--allow-host" => flags.allowed_hosts.push(given()?.to_lowercase()),
            "--allow-origin" => flags.allowed_origins.push(parse_origin(&given()?)?),
            "--session" => {
                let path = given()?;
                crate::session::check_file_format(&path)?;
                flags.session_path = Some(path);
            }
            "--store" => {
                flags.store = Some(parse_url(&flag, &given()?, &["postgres", "postgresql"])?);
            }
            "--events" => {
                let url = parse_url(&flag, &given()?, &["redis", "rediss", "valkey", "valkeys"])?;
                flags.events = Some(url);
            }
            "--busy" => {
                flags.busy = match given()?.as_str() {
                    "queue" => Busy::Queue,
                    "refuse" => Busy::Refuse,
                    other => return Err(format!("`--busy` takes queue or refuse, not `{other}`")),
                }
            }
            "--keep-events" => {
                let seconds = parse_with(&flag, &given()?, "a number of seconds")?;
                flags.keep_events = Duration::from_secs(seconds);
            }
            "--price" => flags.price = Some(parse_price(&given()?)?),
            "--max-cost" => flags.max_cost = Some(parse_with(&flag, &given()?, "a number")?),
            "--yes" | "--json" | "--mcp" | "--mcp-config" => {
                return Err(format!("`{flag}` is for `turnstream`"));
            }
            _ => others.push(word),
        }
    }
    match args::parse(others)? {
        args::Command::Help => return Ok(Command::Help),
        args::Command::Run(args) => flags.agent = args,
    }
    if let Some(prompt) = &flags.agent.prompt {
        return Err(format!("`{prompt}` is not a flag; prompts are written on the page"));
    }
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

fn parse_with<T: std::str::FromStr>(flag: &str, value: &str, wanted: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| format!("`{flag}` needs {wanted}, not `{value}`"))
}

/// Parses the address of a server. It may contain a password, so errors do not repeat it.
fn parse_url(flag: &str, value: &str, schemes: &[&str]) -> Result<String, String> {
    let scheme = value.split_once("://").map(|(scheme, _)| scheme);
    match scheme.is_some_and(|scheme| schemes.contains(&scheme)) {
        true => Ok(value.to_owned()),
        false => Err(format!("`{flag}` needs an address that begins with {}://", schemes[0])),
    }
}

/// Parses an origin as browsers send it: a scheme, a host, and a port unless it is the default one.
fn parse_origin(value: &str) -> Result<String, String> {
    let origin = value.trim().trim_end_matches('/').to_lowercase();
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    match host {
        Some(host) if !host.is_empty() && !host.contains(['/', '*', '?', '#', '@', ' ']) => {
            Ok(origin)
        }
        _ => Err(format!(
            "`--allow-origin` needs an origin such as http://localhost:3000, not `{value}`"
        )),
    }
}

fn parse_price(value: &str) -> Result<Price, String> {
    let wrong = || format!("`--price` needs two numbers such as 3,15, not `{value}`");
    let (input, output) = value.split_once(',').ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
    let (input, output) = (number(input)?, number(output)?);
    let price = Price { input, output, cache_read: input, cache_write: input };
    if price.is_valid() { Ok(price) } else { Err(wrong()) }
}
