//! A long-lived chat: messages come over a channel whenever they come, one agent answers.
//!
//! A message begins a run on the history so far. While the run goes on, a message steers it, one
//! that begins with `later:` waits until the model has stopped, and `stop` interrupts it. What came
//! too late for a run begins the next one.
//!
//! ```text
//! cargo run --example chat
//! ```
//!
//! In a terminal you speak; elsewhere a script does, on a clock that is paused (tokio's `test-util`)
//! and jumps ahead whenever nothing else is to be done.

use std::io::{IsTerminal, Write};
use std::{collections::VecDeque, io, time::Duration};

use futures::{StreamExt, future::Either};
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use turnstream::agent::Input;
use turnstream::event::ToolEvent;
use turnstream::item::Content;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Event, History, Item, Run, Tool, env::SystemIds};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A slow speaker who repeats what it hears. Before it answers a question, it looks.
fn model() -> Scripted {
    Scripted::function(|request, _| {
        let answered = request.history.last().is_some_and(|item| item.as_tool_result().is_some());
        let heard = request.history.newest_first().find_map(Item::as_user);
        let heard = heard.map(Content::text).unwrap_or_default();
        match heard.ends_with('?') && !answered {
            true => Reply::text("Let me look. ").call("look", json!({})),
            false => format!("You said: {heard}")
                .split_inclusive(' ')
                .fold(Reply::new().delay(Duration::from_secs(1)), |reply, word| {
                    reply.say(word).delay(Duration::from_secs(1))
                }),
        }
    })
}

/// The whole chat: ends when nobody can say anything any more.
async fn chat(agent: &Agent, mut heard: Receiver<String>) -> History {
    let mut history = History::new(&SystemIds);
    let mut late = VecDeque::new();
    loop {
        let input: Input = match late.pop_front() {
            Some(items) => items,
            None => match heard.recv().await {
                Some(message) => message.into(),
                None => return history,
            },
        };
        let mut run = agent.run_from(history, input);
        loop {
            tokio::select! {
                event = run.next() => match event {
                    Some(Ok(Event::Finished(outcome))) => {
                        println!(" ({})", outcome.reason);
                        late.extend(outcome.undelivered.into_iter().map(|it| it.items.into()));
                    }
                    Some(Ok(event)) => show(&event),
                    Some(Err(_)) | None => break,
                },
                Some(message) = heard.recv() => take(&run, message, &mut late),
            }
        }
        history = run.history();
    }
}

/// A message in the middle of a run.
fn take(run: &Run, message: String, late: &mut VecDeque<Input>) {
    let taken = match message.strip_prefix("later:") {
        _ if message == "stop" => return run.interrupt(),
        Some(message) => run.follow_up(message.trim()),
        None => run.steer(message),
    };
    if let Err(undelivered) = taken {
        late.push_back(undelivered.items.into());
    }
}

fn show(event: &Event) {
    match event {
        Event::Appended { why, items, .. } => println!("\n> {} ({why:?})", said(items)),
        Event::Tool(ToolEvent::Started { name, .. }) => println!("[{name} runs]"),
        event => print!("{}", event.text_delta().map_or("", |text| text)),
    }
    let _ = io::stdout().flush();
}

fn said(items: &[Item]) -> String {
    items.iter().filter_map(Item::as_user).map(Content::text).collect()
}

/// What is said where nobody sits: how long after the one before, and what.
const SCRIPT: [(u64, &str); 6] = [
    (0, "How is the log?"),
    (1_500, "Only the errors, please"),
    (1_000, "later: Thanks!"),
    (20_000, "Tell me a story without an end"),
    (3_000, "stop"),
    (0, "Sorry, I had to go"),
];

async fn script(say: Sender<String>) {
    for (wait, message) in SCRIPT {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let _ = say.send(message.to_owned()).await;
    }
}

/// Reads lines for as long as somebody listens. Standard input cannot be awaited: a thread waits.
fn read_lines(say: Sender<String>) {
    std::thread::spawn(move || {
        let lines = io::stdin().lines().map_while(Result::ok);
        lines.map(|line| say.blocking_send(line)).take_while(Result::is_ok).for_each(drop);
    });
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("The model's words are scripted: it repeats yours. `stop` interrupts it.");
    let look = Tool::new("look", "Looks at the log", async |_: Nothing, _cx| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        "3 errors"
    });
    let agent = Agent::new(model()).with_tools([look]);
    let (say, heard) = channel(16);
    let feeder = match io::stdin().is_terminal() {
        true => Either::Left(async { read_lines(say) }),
        false => {
            tokio::time::pause();
            Either::Right(script(say))
        }
    };
    let (history, ()) = tokio::join!(chat(&agent, heard), feeder);
    println!("{} items are kept, lawful: {}", history.len(), history.is_lawful());
}
