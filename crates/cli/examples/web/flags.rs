//! The command line: the server's own flags, and those of the program `turnstream`.

use std::ffi::OsString;
use std::net::IpAddr;

use turnstream::usage::Price;
use turnstream_server::{AllowedSites, Busy};

use crate::args::{Args, Command, parse_address, parse_value, parse_with};

#[derive(Default)]
pub(crate) struct Flags {
    pub(crate) host: Option<IpAddr>,
    pub(crate) port: Option<u16>,
    pub(crate) sites: AllowedSites,
    pub(crate) store: Option<String>,
    pub(crate) events: Option<String>,
    pub(crate) busy: Busy,
    /// For how many seconds the events of a run that has ended can be read.
    pub(crate) keep_secs: Option<u64>,
    pub(crate) price: Option<Price>,
    pub(crate) max_cost: Option<f64>,
    /// The flags of the program `turnstream`.
    pub(crate) agent: Args,
}

/// Parses the words after the program's name. Returns `None` if they ask for help. An error is one
/// line for the user.
pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Result<Option<Flags>, String> {
    let mut flags = Flags::default();
    let (mut hosts, mut origins): (Vec<String>, Vec<String>) = Default::default();
    let refused = ["--yes", "--json", "--mcp", "--mcp-config"];
    let command = parse_with(words, &refused, |flag, value| {
        match flag {
            "--host" => flags.host = Some(parse_value(flag, &value()?, "an address")?),
            "--port" => flags.port = Some(parse_value(flag, &value()?, "a number up to 65535")?),
            "--allow-host" => hosts.push(value()?),
            "--allow-origin" => origins.push(value()?),
            "--store" if cfg!(feature = "postgres") => {
                flags.store = Some(parse_address(flag, value()?, &["postgres", "postgresql"])?);
            }
            "--events" if cfg!(feature = "redis") => {
                let schemes = ["redis", "rediss", "valkey", "valkeys"];
                flags.events = Some(parse_address(flag, value()?, &schemes)?);
            }
            "--store" | "--events" => return Err(format!("`{flag}` needs a feature; see --help")),
            "--busy" => {
                flags.busy = match &*value()? {
                    "queue" => Busy::Queue,
                    "refuse" => Busy::Refuse,
                    other => return Err(format!("`--busy` takes queue or refuse, not `{other}`")),
                }
            }
            "--keep-events" => flags.keep_secs = Some(parse_value(flag, &value()?, "a number")?),
            "--price" => flags.price = Some(parse_price(&value()?)?),
            "--max-cost" => flags.max_cost = Some(parse_value(flag, &value()?, "a number")?),
            _ => return Err(format!("there is no flag `{flag}`; see --help")),
        }
        Ok(())
    })?;
    let Command::Run(agent) = command else { return Ok(None) };
    let sites = origins.iter().try_fold(AllowedSites::of_hosts(hosts), AllowedSites::with_origin);
    flags.sites = sites.map_err(|error| format!("`--allow-origin` needs an origin: {error}"))?;
    if let Some(prompt) = &agent.prompt {
        return Err(format!("`{prompt}` is not a flag; prompts are written on the page"));
    }
    let conflicts = [
        (flags.store.is_some() && agent.session_file.is_some(), "`--store` excludes `--session`"),
        (flags.events.is_some() && flags.store.is_none(), "`--events` needs a shared `--store`"),
        (flags.max_cost.is_some() && flags.price.is_none(), "`--max-cost` needs `--price`"),
    ];
    match conflicts.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, message)) => Err(message.to_owned()),
        None => Ok(Some(Flags { agent, ..flags })),
    }
}

fn parse_price(value: &str) -> Result<Price, String> {
    let numbers = value.split_once(',').and_then(|(input, output)| {
        let (input, output) = (input.trim().parse().ok()?, output.trim().parse().ok()?);
        Some(Price { input, output, cache_read: input, cache_write: input })
    });
    let error = || format!("`--price` needs two numbers such as 3,15, not `{value}`");
    numbers.filter(Price::is_valid).ok_or_else(error)
}
