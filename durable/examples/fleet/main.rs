//! Agents on a fleet of processes: a chat in the browser whose runs survive `kill -9` of any of
//! them.
//!
//! ```text
//! cargo run --manifest-path durable/Cargo.toml --example fleet
//! ```
//!
//! The example starts a Restate server, two workers and a front end, and Redis and PostgreSQL if
//! they are installed. The page and the agent are those of the example `web`. Without an API key it
//! uses the offline model, which answers from a script.
//!
//! | module | process |
//! |---|---|
//! | `supervisor` | starts the other processes, and restarts those that have ended |
//! | `servers` | Restate, Redis and PostgreSQL |
//! | `worker` | performs runs |
//! | `app`, `routes`, `session_copy`, `store_events` | the front end |
//! | `events` | the hub of a worker or of the front end |
//! | `guard` | runs a server for as long as the supervisor lives |

mod app;
mod args;
mod events;
mod flags;
mod guard;
mod routes;
mod servers;
mod session_copy;
mod settings;
mod store_events;
mod supervisor;
mod worker;

// Modules of the example `web`.
#[path = "../../../examples/web/access.rs"]
mod access;
#[expect(dead_code, reason = "nothing has a price here")]
#[path = "../../../examples/web/agent.rs"]
mod agent;
#[expect(dead_code, reason = "the front end performs no runs")]
#[path = "../../../examples/web/ended_runs.rs"]
mod ended_runs;
#[expect(dead_code, reason = "the example `web` refuses more")]
#[path = "../../../examples/web/failure.rs"]
mod failure;
#[path = "../../../examples/web/page_files.rs"]
mod page_files;
#[path = "../../../examples/web/requests.rs"]
mod requests;
#[path = "../../../examples/web/response.rs"]
mod response;
#[path = "../../../examples/web/views.rs"]
mod views;

// Modules of the example `agent`.
#[path = "../../../examples/agent/offline/mod.rs"]
mod offline;
#[expect(dead_code, reason = "no dialect is chosen by name")]
#[path = "../../../examples/agent/provider.rs"]
mod provider;
#[expect(dead_code, reason = "the terminal is not written to")]
#[path = "../../../examples/agent/text.rs"]
mod text;
#[expect(dead_code, reason = "the page shows calls in its own way")]
#[path = "../../../examples/agent/tools/mod.rs"]
mod tools;

// Modules of the tests, which start servers.
#[path = "../../../tests/postgres/server.rs"]
mod postgres_server;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use flags::Command;

/// The pause of the offline model between two words. It is long, so that there is time to kill a
/// process.
const PAUSE_BETWEEN_WORDS: Duration = Duration::from_millis(200);

/// The name under which every worker registers the agent.
const AGENT: &str = "chat";

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match flags::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => {
            print!("{}", flags::HELP);
            Ok(())
        }
        Ok(Command::Supervise(flags)) => supervisor::run(&flags).await,
        Ok(Command::Work(flags)) => worker::run(&flags).await,
        Ok(Command::ServePage(flags)) => app::run(&flags).await,
        Ok(Command::Guard(words)) => guard::run(words).await,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.message());
            ExitCode::FAILURE
        }
    }
}
