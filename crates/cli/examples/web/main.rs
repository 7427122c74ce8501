//! A chat in the browser. A run continues when its page is closed, and a page that returns
//! continues to read it.
//!
//! ```text
//! cargo run --example web
//! ```
//!
//! Without an API key it uses the offline model, whose replies are scripted. `--help` lists all
//! flags. Besides the page, the server supports AI SDK clients (`/api/chat`) and AG-UI clients
//! (`/ag-ui`).

mod agent;
mod flags;
mod page_files;
mod server;

use std::env;
use std::process::ExitCode;

use turnstream_cli::{args, provider, session, tools};

use flags::Command;

#[tokio::main]
async fn main() -> ExitCode {
    let served = match flags::parse(env::args_os().skip(1)) {
        Ok(Command::Serve(flags)) => server::run(&flags).await,
        Ok(Command::Help) => {
            print!("{}", flags::HELP);
            Ok(())
        }
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.message());
            ExitCode::FAILURE
        }
    }
}
