//! Runs a server for as long as the supervisor lives, however the supervisor ends.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::oneshot;
use turnstream::{Error, ErrorKind};

use crate::settings::{ENDS_WITH_INPUT, io_error, variable};

/// Runs a program until it ends or the standard input is closed. Prints its process id first. The
/// first word is the path of its log.
pub(crate) async fn run(words: Vec<OsString>) -> Result<(), Error> {
    let [log, program, words @ ..] = &*words else {
        return Err(Error::new(ErrorKind::InvalidRequest, "there is no program to guard"));
    };
    let open = || File::options().create(true).append(true).open(log);
    let cannot = |error| io_error("the log cannot be written", error);
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    command.stdout(open().map_err(cannot)?).stderr(open().map_err(cannot)?);
    let started = command.kill_on_drop(true).spawn();
    let mut child = started
        .map_err(|error| io_error(&format!("{} cannot be started", program.display()), error))?;
    println!("{}", child.id().unwrap_or_default());
    let (sender, input_ended) = oneshot::channel();
    // A thread that blocks on input does not keep the process running, as a blocking task of the
    // runtime would.
    std::thread::spawn(move || {
        wait_for_end_of_input();
        // The receiver is dropped if the program has ended.
        let _ = sender.send(());
    });
    tokio::select! {
        _ = child.wait() => {}
        _ = input_ended => {
            // Fails only if the program has ended.
            let _ = child.kill().await;
        }
    }
    Ok(())
}

/// Ends this process when its standard input is closed, if the supervisor has started it.
pub(crate) fn end_with_input() {
    if variable(ENDS_WITH_INPUT).is_some() {
        std::thread::spawn(|| {
            wait_for_end_of_input();
            std::process::exit(0);
        });
    }
}

fn wait_for_end_of_input() {
    // An error also ends the input.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
