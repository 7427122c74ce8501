//! The process that is killed: a session that never ends.

use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::context::{Compaction, compactor_fn};
use turnstream::event::ToolEvent;
use turnstream::item::{Mark, PendingCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, Session, SessionRun, SessionState};
use turnstream::tool::{Tool, ToolSpec, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item};

use crate::dice::Dice;
use crate::place::{Place, SESSION};

/// A longer history is made shorter between two runs.
const LONGEST: usize = 60;

pub(crate) async fn run(place: Place, seed: u64) -> Result<Infallible, Error> {
    let mut dice = Dice::new(seed);
    let session = Session::open(place.store()?, SESSION).await?;
    let agent = agent(&place)?;
    loop {
        let input = format!("Go on, at {}.", session.version());
        let run = match session.state() {
            SessionState::Pending { calls } if dice.roll(4) > 0 => {
                let verdict = |call: PendingCall| match &*call.name {
                    "outside" => (call, Verdict::output("from outside")),
                    _ => (call, Verdict::Approve),
                };
                session.resume(&agent, calls.into_iter().map(verdict)).await?
            }
            SessionState::Unfinished { .. } if dice.roll(4) > 0 => {
                session.resume(&agent, []).await?
            }
            SessionState::Idle | SessionState::Pending { .. } | SessionState::Unfinished { .. } => {
                session.run(&agent, input).await?
            }
        };
        tell(run).await?;
        if session.history().len() > LONGEST {
            session.compact(&compactor_fn(shorter)).await?;
        }
    }
}

/// Prints what is told, an entry a line. Whoever reads a line may rely on it.
async fn tell(mut run: SessionRun) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    while let Some(event) = run.next().await {
        let items: Vec<Item> = match event? {
            Event::Appended { items, .. } => items,
            Event::Tool(ToolEvent::Output(result)) => vec![Item::tool_result(result)],
            event => event.turn_complete().map(|turn| turn.to_history_items()).unwrap_or_default(),
        };
        for item in items {
            let entry = Entry::Item(item);
            let line = serde_json::to_string(&entry).map_err(failed)?;
            writeln!(out, "{line}").and_then(|()| out.flush()).map_err(failed)?;
        }
    }
    Ok(())
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Other, "a line cannot be written").with_source(error)
}

fn agent(place: &Place) -> Result<Agent, Error> {
    let model = Scripted::from_fn(|request, _| reply(next(&request.history)));
    let inner = Agent::new(asking("asked")).with_tools([tool(place, "asked")?.requires_approval()]);
    let tools = [
        tool(place, "once")?,
        tool(place, "again")?.idempotent(),
        tool(place, "asked")?.requires_approval(),
        Tool::external(spec("outside"))?,
        delegate(&inner, "sub")?,
        delegate(&Agent::new(asking("sub")).with_tools([delegate(&inner, "sub")?]), "deep")?,
    ];
    Ok(Agent::new(model).with_tools(tools))
}

/// A model that makes one call, and is done when it has its result.
fn asking(name: &'static str) -> Scripted {
    Scripted::from_fn(move |request, _| {
        match request.history.iter().any(|item| item.as_tool_result().is_some()) {
            true => Reply::text("Done."),
            false => Reply::new().call_raw("inner", name, r#"{"prompt":"go"}"#),
        }
    })
}

fn delegate(agent: &Agent, name: &str) -> Result<Tool, Error> {
    agent.as_tool(name, "It asks first, and then leaves a trace")
}

fn spec(name: &str) -> ToolSpec {
    let parameters = json!({ "type": "object" });
    ToolSpec { name: name.to_owned(), description: "It leaves a trace".to_owned(), parameters }
}

fn tool(place: &Place, name: &'static str) -> Result<Tool, Error> {
    let place = place.clone();
    Tool::raw(spec(name), move |_args, cx| {
        let place = place.clone();
        async move {
            tokio::time::sleep(Duration::from_micros(200)).await;
            place.take_effect(name, cx.idempotency_key()).map_err(|error| error.to_string())?;
            tokio::time::sleep(Duration::from_micros(200)).await;
            Ok::<String, String>(format!("done for {}", cx.call_id()))
        }
    })
}

/// The number of the next turn. The last one is never folded away.
fn next(history: &History) -> u64 {
    let number =
        |item: &Item| item.as_text()?.strip_prefix("Turn ")?.strip_suffix('.')?.parse().ok();
    history.newest_first().find_map(number).map_or(0, |last: u64| last + 1)
}

fn reply(number: u64) -> Reply {
    let calls: &[&str] = match number % 7 {
        0 => &["once", "again"],
        1 => &["once", "again", "once", "again"],
        2 => &["again"],
        3 => &["asked", "once", "outside"],
        4 => &["once"],
        5 => &["sub", "once", "deep"],
        _ => &[],
    };
    let said = Reply::text(&format!("Turn {number}."));
    calls.iter().enumerate().fold(said, |reply, (at, name)| {
        reply.call_raw(&format!("call-{number}-{at}"), name, r#"{"prompt":"go"}"#)
    })
}

/// Folds the older half, up to something that the user said.
#[expect(clippy::unnecessary_wraps, reason = "a compactor may fail")]
fn shorter(history: &History) -> Result<Option<Compaction>, Error> {
    let mut half = history.iter().take(history.len() / 2);
    let to = half.rposition(|item| item.as_user().is_some());
    let items = || vec![Item::user("Much was done.").with_mark(Mark::Compacted)];
    Ok(to.filter(|to| *to > 0).map(|to| Compaction {
        from: 0,
        to,
        items: items(),
        ..Compaction::default()
    }))
}
