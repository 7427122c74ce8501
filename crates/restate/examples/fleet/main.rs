//! Agents on a fleet of processes: a chat in the browser whose runs survive `kill -9` of any of
//! them.
//!
//! ```text
//! cargo run -p turnstream-restate --example fleet
//! ```
//!
//! The example starts a Restate server, two workers and a front end, and Redis and PostgreSQL if
//! they are installed. The page is that of the example `web`. Without an API key, a scripted model
//! answers.
//!
//! | module | process |
//! |---|---|
//! | `supervisor` | starts the other processes, and restarts those that have ended |
//! | `servers` | Restate, Redis and PostgreSQL |
//! | `worker`, `agent`, `tools`, `scripted_model` | performs runs |
//! | `app`, `routes`, `session_copy`, `store_events` | the front end |
//! | `access`, `failure` | the protocol of the page |
//! | `page_files` | the page of the example `web` |
//! | `requests`, `response`, `views`, `ended_runs` | the parts that are those of the package `turnstream-server` |
//! | `events` | the hub of a worker or of the front end |
//! | `guard` | runs a server for as long as the supervisor lives |

mod access;
mod agent;
mod app;
#[path = "../../../server/src/chat/ended_runs.rs"]
mod ended_runs;
mod events;
mod failure;
mod flags;
mod guard;
#[path = "../../../cli/examples/web/page_files.rs"]
mod page_files;
#[path = "../../../server/src/chat/requests.rs"]
mod requests;
#[path = "../../../server/src/chat/response.rs"]
mod response;
mod routes;
mod scripted_model;
mod servers;
mod session_copy;
mod settings;
mod store_events;
mod supervisor;
// The waiting helpers, temporary folders and clients of the tests.
#[path = "../../tests/support/mod.rs"]
mod support;
mod tools;
#[path = "../../../server/src/chat/views.rs"]
mod views;
mod worker;

use std::env;
use std::process::ExitCode;

use flags::Command;

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
