//! A long-lived chat: messages come over a channel whenever they come, and one agent answers.
//!
//! A message begins a run on the history so far. While the run goes on, a message steers it, one
//! that begins with `later:` waits until the model has stopped, and `stop` interrupts it. What came
//! too late for a run begins the next one.
//!
//! ```text
//! cargo run --example chat
//! ```
//!
//! In a terminal you speak. Elsewhere a script does, on a clock that is paused (`test-util` of
//! tokio) and jumps ahead when there is nothing else to do.

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

/// What comes over the channel.
enum Message {
    Say(String),
    Later(String),
    Stop,
}

impl Message {
    fn read(line: &str) -> Self {
        match (line.trim(), line.strip_prefix("later:")) {
            ("stop", _) => Self::Stop,
            (_, Some(later)) => Self::Later(later.trim().to_owned()),
            (line, None) => Self::Say(line.to_owned()),
        }
    }
}

/// The whole chat: it ends when the channel does, or with the error of a run.
async fn chat(agent: &Agent, mut heard: Receiver<Message>) -> Result<History, Error> {
    let mut history = History::new(&SystemIds);
    let mut late = VecDeque::new();
    loop {
        let input: Input = match late.pop_front() {
            Some(input) => input,
            None => {
                prompt();
                match heard.recv().await {
                    Some(Message::Say(text) | Message::Later(text)) => text.into(),
                    Some(Message::Stop) => continue,
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
                    Some(event) => show(&event),
                    None => break,
                },
                Some(message) = heard.recv() => late.extend(tell(&run, message)),
            }
        }
        history = run.history();
    }
}

/// Tells a run in the middle; gives back what it does not take any more.
fn tell(run: &Run, message: Message) -> Option<Input> {
    let taken = match message {
        Message::Say(text) => run.steer(text),
        Message::Later(text) => run.follow_up(text),
        Message::Stop => {
            run.interrupt();
            return None;
        }
    };
    taken.err().map(|undelivered| undelivered.items.into())
}

/// On a terminal, shows that a message can be typed.
fn prompt() {
    if io::stdin().is_terminal() {
        print!("\n> ");
        let _ = io::stdout().flush();
    }
}

fn show(event: &Event) {
    match event {
        // It was typed at the prompt.
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

/// A slow speaker that repeats what it hears. Before it answers a question, it looks.
fn model() -> Scripted {
    Scripted::from_fn(|request, _| {
        let looked = request.history.last().is_some_and(|item| item.as_tool_result().is_some());
        let heard = request.history.newest_first().find_map(Item::as_user);
        let heard = heard.map(Content::text).unwrap_or_default();
        match heard.ends_with('?') && !looked {
            true => Reply::text("Let me look.").call("look", json!({})),
            false => {
                Reply::text("You said:").delay(Duration::from_secs(3)).say(&format!(" {heard}"))
            }
        }
    })
}

/// What is said where nobody sits: how many milliseconds behind the one before, and what.
const SCRIPT: [(u64, &str); 6] = [
    (0, "How is the log?"),
    (1_500, "Only the errors, please"),
    (1_000, "later: Thanks!"),
    (20_000, "Tell me a story without an end"),
    (1_000, "stop"),
    (0, "Sorry, I had to go"),
];

async fn script(say: Sender<Message>) {
    for (wait, line) in SCRIPT {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let _ = say.send(Message::read(line)).await;
    }
}

/// Standard input cannot be awaited without a thread, and this one may wait for ever.
fn read_lines(say: Sender<Message>) {
    std::thread::spawn(move || {
        let mut lines = io::stdin().lines().map_while(Result::ok);
        lines.all(|line| say.blocking_send(Message::read(&line)).is_ok())
    });
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("The model's words are scripted: it repeats yours. `stop` interrupts it.");
    let look = Tool::new("look", "Looks at the log", async |_: Nothing, _cx| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        "3 errors"
    });
    let agent = Agent::new(model()).with_tools([look]);
    let (say, heard) = channel(16);
    let speaker = match io::stdin().is_terminal() {
        true => Either::Left(async { read_lines(say) }),
        false => {
            tokio::time::pause();
            Either::Right(script(say))
        }
    };
    let (history, ()) = tokio::join!(chat(&agent, heard), speaker);
    let history = history?;
    println!("{} items are kept, lawful: {}", history.len(), history.is_settled());
    Ok(())
}
