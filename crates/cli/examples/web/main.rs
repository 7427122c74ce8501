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

use std::{env, process};

use turnstream_cli::{args, provider, session, tools};

#[tokio::main]
async fn main() {
    let ended = match flags::parse(env::args_os().skip(1)) {
        Ok(Some(flags)) => server::run(&flags).await.map_err(|error| (1, error.to_string())),
        Ok(None) => {
            print!("{}", include_str!("help.txt"));
            Ok(0)
        }
        Err(message) => Err((2, message)),
    };
    let exit_code = ended.unwrap_or_else(|(exit_code, message)| {
        eprintln!("error: {message}");
        exit_code
    });
    // A tool that still runs on a thread is not waited for.
    process::exit(exit_code);
}
