//! The command line.

use std::path::PathBuf;

use super::child;
use super::location::StoreLocation;
use super::parent::{self, ServerKills};
use super::store_kind::StoreKind;

const HELP: &str = "\
crash [--store STORE] [--kills N] [--seed S] [--server-kills N --restart-server COMMAND]

    --store STORE    where the session is stored:";

const OTHER_FLAGS: &str = "
    --kills N        how many times the process is killed (200)
    --seed S         the seed of the random numbers, which determine when the process is killed (1)
    --server-kills N how many times the store's server is killed while a process uses it (0)
    --restart-server COMMAND
                     the shell command that kills the store's server and starts it again

The last line is `kills N, lost L, doubled D`: the numbers of kills, of lost items, and of items or
effects that exist twice. N is less than requested if the program could not continue. Exit code: 0 if
nothing was lost or doubled, 2 for bad usage, else 1.
";

/// The command line's mode and its arguments.
enum Command<K> {
    Help,
    Parent {
        kind: K,
        kills: u32,
        seed: u64,
        server: Option<ServerKills>,
    },
    /// Run as the child that the parent starts and kills.
    Child {
        place: StoreLocation<K>,
        seed: u64,
    },
}

/// Runs the program with the arguments of its command line, and returns the exit code.
pub async fn run<K: StoreKind>(arguments: impl Iterator<Item = String>) -> i32 {
    match parse_args::<K>(arguments) {
        Ok(Command::Help) => {
            print!("{HELP} {}{OTHER_FLAGS}", K::VALUES);
            0
        }
        Ok(Command::Parent { kind, kills, seed, server }) => {
            parent::run(kind, kills, seed, server).await
        }
        Ok(Command::Child { place, seed }) => match child::run(place, seed).await {
            Ok(never) => match never {},
            Err(error) => {
                eprintln!("child: {error}");
                1
            }
        },
        Err(message) => {
            eprintln!("error: {message}");
            2
        }
    }
}

fn parse_args<K: StoreKind>(
    mut arguments: impl Iterator<Item = String>,
) -> Result<Command<K>, String> {
    let (mut store, mut kills, mut seed, mut folder) = (None, 200, 1, None);
    let (mut server_kills, mut restart) = (0, None);
    while let Some(argument) = arguments.next() {
        if argument == "--help" {
            return Ok(Command::Help);
        }
        let mut value = || arguments.next().ok_or_else(|| format!("`{argument}` needs a value"));
        let not_a_number = |_| format!("`{argument}` needs a number");
        match argument.as_str() {
            "--store" => store = Some(value()?),
            "--kills" => kills = value()?.parse().map_err(not_a_number)?,
            "--seed" => seed = value()?.parse().map_err(not_a_number)?,
            "--server-kills" => server_kills = value()?.parse().map_err(not_a_number)?,
            "--restart-server" => restart = Some(value()?),
            "--child" => folder = Some(PathBuf::from(value()?)),
            _ => return Err(format!("there is no flag `{argument}`; see --help")),
        }
    }
    let server = match (server_kills, restart) {
        (0, _) => None,
        (kills, Some(restart)) => Some(ServerKills { kills, restart }),
        (_, None) => return Err("`--server-kills` needs `--restart-server`".to_owned()),
    };
    let kind = K::parse(store.as_deref())?;
    Ok(match folder {
        Some(folder) => Command::Child { place: StoreLocation { kind, folder }, seed },
        None => Command::Parent { kind, kills, seed, server },
    })
}
