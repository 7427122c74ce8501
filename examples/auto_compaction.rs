//! A conversation that outgrows the model's window: prints the token estimate before each request
//! and the summary that replaces old turns, and shows that an early fact is still known.
//!
//! ```text
//! cargo run --example auto_compaction
//! ```

use futures::TryStreamExt;
use serde_json::json;
use turnstream::context::{BytesDiv4, Compactor, Summarizer, Truncator, Window, estimate_tokens};
use turnstream::event::ToolEvent;
use turnstream::item::Content;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::{Agent, Error, Event, Item, Request, TurnEvent, Usage};

/// In tokens. The window of a real model is about a hundred times as large.
const WINDOW_TOKENS: u64 = 2_000;
const FACT_PREFIX: &str = "My boat is called ";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct PageArgs {
    number: usize,
}

/// A scripted model: it reads page after page, and knows only what its request contains.
fn reader_model() -> Scripted {
    Scripted::from_fn(|request, n| {
        let reply = match request.context.newest_first().find_map(Item::as_user) {
            Some(prompt) if prompt.text().contains("boat called?") => answer_from_context(request),
            _ if n < 8 => Reply::text("One more page.").call("read", json!({ "number": n })),
            _ => Reply::text("That was the whole book."),
        };
        let input_tokens = context_window().count_request_tokens(request);
        reply.usage(Usage { input_tokens, output_tokens: 10, ..Usage::default() })
    })
}

/// The answer, as far as the request's context contains it.
fn answer_from_context(request: &Request) -> Reply {
    let found = request.context.iter().find_map(|item| {
        let text = item.as_user()?.text();
        let name = text.split(FACT_PREFIX).nth(1)?.split('.').next()?.to_owned();
        Some((name, if item.compacted { "the summary says so" } else { "you said so" }))
    });
    match found {
        Some((name, whence)) => Reply::text(format!("It is called {name}: {whence}.")),
        None => Reply::text("I do not know."),
    }
}

/// Another scripted model, which summarizes what the user said.
fn summarizer_model() -> Scripted {
    let model = Scripted::from_fn(|request, _| {
        let text = request.context.last().and_then(Item::as_user).map(Content::text);
        let facts = text.iter().flat_map(|text| text.lines()).filter(|it| it.contains(FACT_PREFIX));
        let facts: Vec<_> = facts.collect();
        let summary = format!("The user said: {} Some pages were read.", facts.join(" "));
        let usage = Usage {
            input_tokens: context_window().count_request_tokens(request),
            ..Usage::default()
        };
        Reply::text(&summary).usage(usage)
    });
    model.with_model("summarizer")
}

fn context_window() -> Window {
    Window::new(WINDOW_TOKENS)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("The replies of both models are scripted; the counting and the compaction are real.");
    let read = Tool::new("read", "Reads a page of the book", async |page: PageArgs, _cx| {
        let lines = include_str!("budget.rs").lines().skip(10 * page.number).take(20);
        lines.collect::<Vec<_>>().join("\n")
    });
    // Truncation by rule comes first; a model is asked only if that does not free enough tokens.
    let compactor = Truncator { max_result_bytes: Some(512), ..Truncator::new() }
        .or_else(Summarizer::new(summarizer_model()).with_keep_turns(2));
    let agent = Agent::new(reader_model())
        .with_tools([read])
        .with_window(context_window())
        .with_compactor(compactor);
    println!(
        "The window has {WINDOW_TOKENS} tokens and is nearly full at {}.",
        context_window().threshold(&<_>::default())
    );

    let mut history = turnstream::History::new(&turnstream::env::SystemIds);
    for prompt in ["My boat is called Ondine. Read the book.", "What is my boat called?"] {
        println!("\n> {prompt}");
        let mut run = agent.run_from(history.clone(), prompt);
        while let Some(event) = run.try_next().await? {
            let about = || estimate_tokens(&run.history(), &BytesDiv4);
            match event {
                Event::Turn(TurnEvent::TurnComplete { .. }) => {
                    println!("  {} tokens estimated", about());
                }
                Event::Tool(ToolEvent::Output(_)) => println!("  {} with the page", about()),
                Event::Rewritten { from, to, items, usage, .. } => {
                    let (gone, stay, cost) = (to - from, items.len(), usage.total());
                    println!(
                        "  compacted: {gone} items became {stay}, using {cost} tokens; {} remain",
                        about()
                    );
                    let marked = items.iter().filter(|item| item.compacted);
                    for summary in marked.filter_map(Item::as_user) {
                        println!("    {}", summary.text().replace('\n', " "));
                    }
                }
                Event::Finished(outcome) => {
                    let (reason, text) = (outcome.reason, &outcome.text);
                    println!("{reason}, {} tokens: {text}", outcome.usage.total());
                    history = outcome.history;
                }
                _ => {}
            }
        }
    }
    println!("{} items are in the history, settled: {}", history.len(), history.is_settled());
    Ok(())
}
