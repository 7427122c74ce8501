//! A long-lived chat: messages arrive over a channel at any time, and one agent answers.
//!
//! A message starts a run on the history so far. During the run, a message steers it; a message
//! that starts with `later:` waits until the model has stopped; and `stop` interrupts the run.
//! Messages that arrive too late for a run start the next one.
//!
//! ```text
//! cargo run --example chat
//! ```
//!
//! On a terminal, the input is what you type. Otherwise it is a script, with tokio's clock paused
//! (`test-util`) so that it advances whenever all tasks are idle.

use std::io::{IsTerminal, Write};
use std::{collections::VecDeque, io, time::Duration};

use futures::{TryStreamExt, future::Either};
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use turnstream::agent::Input;
use turnstream::event::{AppendReason, ToolEvent};
use turnstream::item::Content;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Error, Event, History, Item, Run, Tool, env::SystemIds};

/// A message on the channel.
enum Message {
    Text(String),
    FollowUp(String),
    Interrupt,
}

impl Message {
    fn parse(line: &str) -> Self {
        match (line.trim(), line.strip_prefix("later:")) {
            ("stop", _) => Self::Interrupt,
            (_, Some(later)) => Self::FollowUp(later.trim().to_owned()),
            (line, None) => Self::Text(line.to_owned()),
        }
    }
}

/// Runs the whole chat, until the channel is closed or a run fails.
async fn run_chat(agent: &Agent, mut messages: Receiver<Message>) -> Result<History, Error> {
    let mut history = History::new(&SystemIds);
    let mut late = VecDeque::new();
    loop {
        let input: Input = match late.pop_front() {
            Some(input) => input,
            None => {
                print_prompt();
                match messages.recv().await {
                    Some(Message::Text(text) | Message::FollowUp(text)) => text.into(),
                    Some(Message::Interrupt) => continue,
                    None => return Ok(history),
                }
            }
        };
        let mut run = agent.run_from(history, input);
        loop {
            tokio::select! {
                event = run.try_next() => match event? {
                    Some(Event::Finished(outcome)) => {
                        println!(" ({})", outcome.reason);
                        late.extend(outcome.undelivered.into_iter().map(|it| it.items.into()));
                    }
                    Some(event) => print_event(&event),
                    None => break,
                },
                Some(message) = messages.recv() => late.extend(deliver_to_run(&run, message)),
            }
        }
        history = run.history();
    }
}

/// Passes a message to the active run; returns it if the run no longer accepts input.
fn deliver_to_run(run: &Run, message: Message) -> Option<Input> {
    let taken = match message {
        Message::Text(text) => run.steer(text),
        Message::FollowUp(text) => run.follow_up(text),
        Message::Interrupt => {
            run.interrupt();
            return None;
        }
    };
    taken.err().map(|undelivered| undelivered.items.into())
}

/// Prints a prompt if stdin is a terminal.
fn print_prompt() {
    if io::stdin().is_terminal() {
        print!("\n> ");
        let _ = io::stdout().flush();
    }
}

fn print_event(event: &Event) {
    match event {
        // The user typed it at the prompt, so it is on the screen already.
        Event::Appended { why: AppendReason::Input, .. } if io::stdin().is_terminal() => {}
        Event::Appended { why, items, .. } => {
            let text: String = items.iter().filter_map(Item::as_user).map(Content::text).collect();
            println!("\n> {text} ({why:?})");
        }
        Event::Tool(ToolEvent::Started { name, .. }) => println!(" [{name} runs]"),
        event => print!("{}", event.text_delta().map_or("", |text| text)),
    }
    let _ = io::stdout().flush();
}

/// A slow model that repeats the user's message. Before it answers a question, it calls a tool.
fn echo_model() -> Scripted {
    Scripted::from_fn(|request, _| {
        let looked = request.history.last().is_some_and(|item| item.as_tool_result().is_some());
        let messages = request.history.newest_first().find_map(Item::as_user);
        let messages = messages.map(Content::text).unwrap_or_default();
        match messages.ends_with('?') && !looked {
            true => Reply::text("Let me look.").call("look", json!({})),
            false => {
                Reply::text("You said:").delay(Duration::from_secs(3)).say(format!(" {messages}"))
            }
        }
    })
}

/// The input when stdin is not a terminal: the delay after the previous message in milliseconds,
/// and the message.
const SCRIPTED_INPUT: [(u64, &str); 6] = [
    (0, "How is the log?"),
    (1_500, "Only the errors, please"),
    (1_000, "later: Thanks!"),
    (20_000, "Tell me a story without an end"),
    (1_000, "stop"),
    (0, "Sorry, I had to go"),
];

async fn send_scripted_input(say: Sender<Message>) {
    for (wait, line) in SCRIPTED_INPUT {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let _ = say.send(Message::parse(line)).await;
    }
}

/// Reads stdin on a thread, since it cannot be awaited without one. The thread may block for ever.
fn send_stdin_lines(say: Sender<Message>) {
    std::thread::spawn(move || {
        let mut lines = io::stdin().lines().map_while(Result::ok);
        lines.all(|line| say.blocking_send(Message::parse(&line)).is_ok())
    });
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoArgs {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("The model is scripted: it repeats your words. `stop` interrupts it.");
    let look = Tool::new("look", "Looks at the log", async |_: NoArgs, _cx| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        "3 errors"
    });
    let agent = Agent::new(echo_model()).with_tools([look]);
    let (say, messages) = channel(16);
    let speaker = match io::stdin().is_terminal() {
        true => Either::Left(async { send_stdin_lines(say) }),
        false => {
            tokio::time::pause();
            Either::Right(send_scripted_input(say))
        }
    };
    let (history, ()) = tokio::join!(run_chat(&agent, messages), speaker);
    let history = history?;
    println!("{} items are in the history, settled: {}", history.len(), history.is_settled());
    Ok(())
}
