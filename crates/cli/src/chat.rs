//! The chat: a run for each message of the user.

use std::io::{self, Write};

use tokio::time::Instant;
use turnstream::session::Session;
use turnstream::{Agent, Error};

use crate::ctrl_c::{PressEffect, PromptPresses, QUIT_WINDOW};
use crate::grants::GrantCommand;
use crate::render;
use crate::run::{ExitStatus, UserInterface, drive_run};
use crate::wrap::{print_lines, stderr_columns};

const PROMPT: &str = "> ";

/// Runs the agent once for each message of the user, in one session.
pub(crate) async fn run_chat(
    session: &Session,
    agent: &Agent,
    user: &mut UserInterface,
) -> Result<ExitStatus, Error> {
    print_lines(
        "Text typed during a run is sent to the model. `/grants` lists the calls that you always \
         allow. Ctrl-C interrupts a run, Ctrl-D ends the chat.",
    );
    // Text that the user typed during an earlier run, and that was not sent to the model.
    let mut unsent = std::mem::take(&mut user.undelivered).join("\n");
    while !std::mem::take(&mut user.is_input_ended) {
        let mut message = match read_message(user, std::mem::take(&mut unsent)).await {
            Ok(Entered::Message(text)) => text,
            Ok(Entered::EndOfInput) => return Ok(ExitStatus::Done),
            Ok(Entered::Quit) => return Ok(ExitStatus::Quit),
            Err(error) => {
                render::print_error(&format!("stdin cannot be read: {error}"));
                return Ok(ExitStatus::Failed);
            }
        };
        if let Some(command) = GrantCommand::parse(&message) {
            print_lines(&command.apply_to_session(session).await);
            continue;
        }
        while !message.trim().is_empty() {
            // A line that the user is typing when the run is interrupted is not lost, unless the
            // terminal cannot keep it.
            let guard = match user.can_steer {
                true => user.input.keep_line_on_ctrl_c().ok().flatten(),
                false => None,
            };
            let exit = drive_run(session.run(agent, message.trim()).await?, user).await?;
            drop(guard);
            match exit {
                // Text that came too late for a run starts the next one.
                ExitStatus::Done => message = std::mem::take(&mut user.undelivered).join("\n"),
                ExitStatus::Quit => {
                    print_unsent(&take_unsent(user));
                    return Ok(exit);
                }
                ExitStatus::Failed | ExitStatus::BadUsage => {
                    unsent = take_unsent(user);
                    break;
                }
            }
        }
    }
    print_unsent(&unsent);
    Ok(ExitStatus::Done)
}

fn print_unsent(text: &str) {
    if !text.is_empty() {
        render::print_undelivered(text);
    }
}

/// Takes the text that the user typed during a run that was interrupted or failed, including an
/// incomplete line.
fn take_unsent(user: &mut UserInterface) -> String {
    let mut texts = std::mem::take(&mut user.undelivered);
    if user.can_steer {
        // If the input cannot be read, the next attempt reports it.
        texts.extend(user.input.take_typed().ok().filter(|typed| !typed.trim().is_empty()));
    }
    texts.join("\n")
}

/// The end of the input at the prompt.
enum Entered {
    Message(String),
    EndOfInput,
    /// Ctrl-C was pressed twice.
    Quit,
}

/// Reads a message. `unsent` is in the input line, where the user can edit it.
async fn read_message(user: &mut UserInterface, mut unsent: String) -> io::Result<Entered> {
    let UserInterface { input, ctrl_c, .. } = user;
    let mut presses = PromptPresses::default();
    loop {
        let read = async {
            let mut screen = io::stderr();
            if unsent.is_empty() {
                let _ = write!(screen, "\n{PROMPT}").and_then(|()| screen.flush());
                return input.next_entry().await;
            }
            print_lines("\nThis text was not sent. Edit it, or press Enter to send it:");
            let unsent = std::mem::take(&mut unsent);
            input.edit_entry(PROMPT, unsent, stderr_columns(), &mut screen).await
        };
        tokio::select! {
            biased;
            () = ctrl_c.pressed() => {}
            read = read => {
                return Ok(match read? {
                    Some(text) => Entered::Message(text),
                    None => {
                        let _ = writeln!(io::stderr());
                        Entered::EndOfInput
                    }
                });
            }
        }
        // The line is discarded, as in a shell.
        let _ = input.take_typed();
        let _ = writeln!(io::stderr());
        match presses.press(Instant::now()) {
            PressEffect::EndChat => return Ok(Entered::Quit),
            PressEffect::DiscardLine => print_lines(&format!(
                "Press Ctrl-C again within {} s to end the chat.",
                QUIT_WINDOW.as_secs()
            )),
        }
    }
}
