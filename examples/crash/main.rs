//! Kills a process in the middle of a session, again and again, and checks whether anything was
//! lost or done twice.
//!
//! ```text
//! cargo run --example crash
//! cargo run --example crash --features sqlite -- --store sqlite --kills 200 --seed 1
//! ```
//!
//! The program starts itself as a child process that continues an endless session and prints a line
//! for each item that its runs report, and kills the child at a random moment. Each printed item
//! must be in the store, and a tool that is not idempotent must not have run twice for one call.
//! Failures do not end the campaign. The last line has the number of kills, lost items and
//! duplicates; the exit code is 0 if nothing was lost or duplicated.

mod child;
mod dice;
mod parent;
mod place;

use std::path::PathBuf;

use parent::ServerKills;
use place::{StoreKind, StoreLocation};

const HELP: &str = "\
crash [--store jsonl|sqlite|postgres://…] [--kills N] [--seed S] [--server-kills N --restart-server COMMAND]

    --store STORE    where the session is stored (jsonl); sqlite and postgres need the features of these names
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
enum Command {
    Help,
    Parent {
        kind: StoreKind,
        kills: u32,
        seed: u64,
        server: Option<ServerKills>,
    },
    /// Run as the child that the parent starts and kills.
    Child {
        place: StoreLocation,
        seed: u64,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let code = match parse_args(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            print!("{HELP}");
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
    };
    std::process::exit(code);
}

fn parse_args(mut words: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut kind, mut kills, mut seed, mut folder) = (StoreKind::JsonLines, 200, 1, None);
    let (mut server_kills, mut restart) = (0, None);
    while let Some(word) = words.next() {
        if word == "--help" {
            return Ok(Command::Help);
        }
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        let not_a_number = |_| format!("`{word}` needs a number");
        match word.as_str() {
            "--store" => kind = StoreKind::parse(&value()?)?,
            "--kills" => kills = value()?.parse().map_err(not_a_number)?,
            "--seed" => seed = value()?.parse().map_err(not_a_number)?,
            "--server-kills" => server_kills = value()?.parse().map_err(not_a_number)?,
            "--restart-server" => restart = Some(value()?),
            "--child" => folder = Some(PathBuf::from(value()?)),
            _ => return Err(format!("there is no flag `{word}`; see --help")),
        }
    }
    let server = match (server_kills, restart) {
        (0, _) => None,
        (kills, Some(restart)) => Some(ServerKills { kills, restart }),
        (_, None) => return Err("`--server-kills` needs `--restart-server`".to_owned()),
    };
    Ok(match folder {
        Some(folder) => Command::Child { place: StoreLocation { kind, folder }, seed },
        None => Command::Parent { kind, kills, seed, server },
    })
}
