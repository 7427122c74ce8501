//! The child process that is killed: it continues a session without end.

use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::context::{Compaction, compactor_fn};
use turnstream::event::ToolEvent;
use turnstream::item::{ItemFlag, PendingCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{AlreadyLeased, Entry, LeaseLost, Session, SessionRun, SessionState};
use turnstream::tool::{Tool, ToolSpec, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item};

use crate::seeded_random::Dice;

use super::location::{SESSION_ID, StoreLocation};
use super::store_kind::StoreKind;

/// A longer history is compacted between two runs.
const MAX_HISTORY_ITEMS: usize = 60;

pub(crate) async fn run(
    place: StoreLocation<impl StoreKind>,
    seed: u64,
) -> Result<Infallible, Error> {
    let dice = Dice::new(seed.wrapping_add(1));
    let session = Session::open(place.open_store().await?, SESSION_ID).await?;
    let agent = build_agent(&place)?;
    loop {
        match run_once(&session, &agent, &dice).await {
            Ok(()) => {}
            // The store's server has not yet noticed that the previous process is gone, or it was
            // itself killed.
            Err(error) if is_lease_error(&error) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
                session.reload().await?;
            }
            Err(error) => {
                // The previous process's last append may have been written after this process read
                // the session.
                let version = session.version();
                session.reload().await?;
                if session.version() == version {
                    return Err(error);
                }
            }
        }
    }
}

fn is_lease_error(error: &Error) -> bool {
    error.find_source::<AlreadyLeased>().is_some() || error.find_source::<LeaseLost>().is_some()
}

async fn run_once(session: &Session, agent: &Agent, dice: &Dice) -> Result<(), Error> {
    let input = format!("Go on, at {}.", session.version());
    let run = match session.state() {
        SessionState::Pending { calls } if dice.roll(4) > 0 => {
            let verdict = |call: PendingCall| match &*call.name {
                "outside" => (call, Verdict::output("from outside")),
                _ => (call, Verdict::Approve),
            };
            session.resume(agent, calls.into_iter().map(verdict)).await?
        }
        SessionState::Unfinished { .. } if dice.roll(4) > 0 => session.resume(agent, []).await?,
        SessionState::Idle | SessionState::Pending { .. } | SessionState::Unfinished { .. } => {
            session.run(agent, input).await?
        }
    };
    print_items(run).await?;
    if session.history().len() > MAX_HISTORY_ITEMS {
        session.compact(&compactor_fn(compact_older_half)).await?;
    }
    Ok(())
}

/// Prints each reported item on a line of its own. The parent may rely on each line that it read.
async fn print_items(mut run: SessionRun) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    while let Some(event) = run.next().await {
        let items: Vec<Item> = match event? {
            Event::Appended { items, .. } => items,
            Event::Tool(ToolEvent::Output(result)) => vec![Item::tool_result(result)],
            event => event.turn_complete().map(|turn| turn.to_history_items()).unwrap_or_default(),
        };
        for item in items {
            let entry = Entry::Item(item);
            let line = serde_json::to_string(&entry).map_err(write_error)?;
            writeln!(out, "{line}").and_then(|()| out.flush()).map_err(write_error)?;
        }
    }
    Ok(())
}

fn write_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Other, "a line cannot be written").with_source(error)
}

fn build_agent(place: &StoreLocation<impl StoreKind>) -> Result<Agent, Error> {
    let model = Scripted::from_fn(|request, _| reply_for_turn(next_turn_number(&request.history)));
    let inner = Agent::new(single_call_model("asked"))
        .with_tools([effect_tool(place, "asked")?.requires_approval()]);
    let tools = [
        effect_tool(place, "once")?,
        effect_tool(place, "again")?.idempotent(),
        effect_tool(place, "asked")?.requires_approval(),
        Tool::external(tool_spec("outside"))?,
        sub_agent_tool(&inner, "sub")?,
        sub_agent_tool(
            &Agent::new(single_call_model("sub")).with_tools([sub_agent_tool(&inner, "sub")?]),
            "deep",
        )?,
    ];
    Ok(Agent::new(model).with_tools(tools))
}

/// A model that makes one call, and stops when it has the call's result.
fn single_call_model(name: &'static str) -> Scripted {
    Scripted::from_fn(move |request, _| {
        match request.history.iter().any(|item| item.as_tool_result().is_some()) {
            true => Reply::text("Done."),
            false => Reply::new().call_raw("inner", name, r#"{"prompt":"go"}"#),
        }
    })
}

fn sub_agent_tool(agent: &Agent, name: &str) -> Result<Tool, Error> {
    agent.as_tool(name, "It asks first, and then leaves a trace")
}

fn tool_spec(name: &str) -> ToolSpec {
    let parameters = json!({ "type": "object", "properties": {} });
    ToolSpec::new(name, "It leaves a trace", parameters)
}

fn effect_tool(place: &StoreLocation<impl StoreKind>, name: &'static str) -> Result<Tool, Error> {
    let place = place.clone();
    Tool::raw(tool_spec(name), move |_args, cx| {
        let place = place.clone();
        async move {
            tokio::time::sleep(Duration::from_micros(200)).await;
            place.record_effect(name, cx.idempotency_key()).map_err(|error| error.to_string())?;
            tokio::time::sleep(Duration::from_micros(200)).await;
            Ok::<String, String>(format!("done for {}", cx.call_id()))
        }
    })
}

/// The number of the next turn. The latest turn is never compacted away.
fn next_turn_number(history: &History) -> u64 {
    let number =
        |item: &Item| item.as_text()?.strip_prefix("Turn ")?.strip_suffix('.')?.parse().ok();
    history.newest_first().find_map(number).map_or(0, |last: u64| last + 1)
}

fn reply_for_turn(number: u64) -> Reply {
    let calls: &[&str] = match number % 7 {
        0 => &["once", "again"],
        1 => &["once", "again", "once", "again"],
        2 => &["again"],
        3 => &["asked", "once", "outside"],
        4 => &["once"],
        5 => &["sub", "once", "deep"],
        _ => &[],
    };
    let reply = Reply::text(format!("Turn {number}."));
    calls.iter().enumerate().fold(reply, |reply, (at, name)| {
        reply.call_raw(&format!("call-{number}-{at}"), name, r#"{"prompt":"go"}"#)
    })
}

/// Compacts the older half of the history, up to a user message.
#[expect(clippy::unnecessary_wraps, reason = "a compactor may fail")]
fn compact_older_half(history: &History) -> Result<Option<Compaction>, Error> {
    let mut half = history.iter().take(history.len() / 2);
    let to = half.rposition(|item| item.as_user().is_some());
    let items = || vec![Item::user("Much was done.").with_flag(ItemFlag::Compacted)];
    Ok(to.filter(|to| *to > 0).map(|to| Compaction {
        from: 0,
        to,
        items: items(),
        ..Compaction::default()
    }))
}
