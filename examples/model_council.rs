//! Several models answer one question concurrently, and a judge chooses between the answers.
//!
//! The council is one stream, merged from its members' runs. Nothing is spawned: the models stream
//! while the consumer polls, and dropping the council drops all of its requests.
//!
//! ```text
//! cargo run --example model_council
//! ```

use std::future::ready;

use futures::{Stream, StreamExt, TryStreamExt, stream};
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Error, ErrorKind, Event};

const QUESTION: &str = "Where do I keep a password?";

/// The judge's answer.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Verdict {
    winner: String,
    why: String,
}

/// All events of all members, each with the member's name. If a member fails, its outcome has the
/// error; the council itself continues.
fn council_events(
    members: &[(&'static str, Agent)],
    question: &str,
) -> impl Stream<Item = Result<(&'static str, Event), Error>> + use<> {
    stream::select_all(members.iter().map(|(name, agent)| {
        let name = *name;
        let events = agent.run(question).map_ok(move |event| (name, event));
        events.take_while(|event| ready(event.is_ok()))
    }))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("The replies of all models are scripted; the merging and the cancellation are real.");
    let quick = Scripted::from_fn(|_, _| Reply::text("In a file."));
    let careful = Scripted::from_fn(|_, _| Reply::text("In a manager, with a second factor."));
    let absent = Scripted::from_fn(|_, _| Reply::error(Error::new(ErrorKind::Auth, "no key")));
    let models = [quick.clone(), careful.clone(), absent.clone()];
    let members = [
        ("quick", Agent::new(quick)),
        ("careful", Agent::new(careful)),
        ("absent", Agent::new(absent)),
    ];

    let mut answers = Vec::new();
    let mut events = council_events(&members, QUESTION);
    while let Some((name, event)) = events.try_next().await? {
        match event {
            // The council continues without a member that failed.
            Event::Finished(outcome) => match outcome.into_result() {
                Ok(outcome) => answers.push(format!("{name}: {}", outcome.text)),
                Err(error) => println!("{name} does not answer: {error}"),
            },
            event => {
                if let Some(text) = event.text_delta() {
                    println!("{name:>8} | {text}");
                }
            }
        }
    }

    let judge = Scripted::new([r#"{ "winner": "careful", "why": "a file can be read" }"#]);
    let judge = Agent::new(judge).with_output::<Verdict>();
    let case = format!("Which answer to `{QUESTION}` is best?\n{}", answers.join("\n"));
    let verdict: Verdict = judge.run(case).outcome().await.into_result()?.parse()?;
    println!("of {} answers the best is {}'s: {}", answers.len(), verdict.winner, verdict.why);

    // A consumer that needs no more answers drops the stream.
    let in_flight = || models.iter().map(Scripted::in_flight).sum::<usize>();
    let mut events = council_events(&members, QUESTION);
    while let Some((name, event)) = events.try_next().await? {
        if name == "careful" && event.text_delta().is_some() {
            break;
        }
    }
    let before = in_flight();
    drop(events);
    println!("{before} requests were streaming; after the drop {} are", in_flight());
    Ok(())
}
