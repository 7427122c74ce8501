//! The stored history equals the fold of the events, after each event of random runs.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use turnstream::agent::Pool;
use turnstream::item::PendingCall;
use turnstream::session::{MemoryStore, Session, SessionRun, SessionState, Store, restore_history};
use turnstream::tool::Verdict;
use turnstream::{Agent, Event, Item, Journal, Outcome};

use turnstream_test_support::cases::sample_step;
use turnstream_test_support::clock;
use turnstream_test_support::random_agent::{self, ToolLog};
use turnstream_test_support::seeded_random::Dice;
use turnstream_test_support::seeds;

#[test]
fn after_each_event_the_stored_session_restores_to_the_fold_of_the_events() {
    let ends = seeds::count_endings((1..=150).step_by(sample_step(3)), run_seed);
    assert!(ends.len() > 9, "{ends:?}");
    assert!(ends["dropped"] > 9 && ends["pending resumed"] + ends["completed resumed"] > 9);
}

fn run_seed(seed: u64) -> Vec<String> {
    clock::paused_runtime().block_on(run_random_session(seed))
}

async fn run_random_session(seed: u64) -> Vec<String> {
    let dice = Dice::new(seed);
    let tools = Arc::new(ToolLog::default());
    let agent = random_agent::agent(&dice, &tools, &Pool::new(u64::MAX), 2);
    let store = MemoryStore::new();
    let mut ends = Vec::new();
    let mut session = Session::open(store.clone(), "h").await.unwrap();
    for _ in 0..6 {
        let (run, resumed) = start_run(&session, &agent, &dice).await;
        let before = run.history();
        *tools.journal.lock().unwrap() = Some(run.journal().clone());
        let folded = Journal::new(before);
        let outcome = drive(run, &store, &folded, &dice).await;
        assert_eq!(
            session.history(),
            stored_history(&store).await,
            "the session shows what is durable"
        );
        let mut end = "dropped".to_owned();
        if let Some(outcome) = outcome {
            assert_eq!(session.history(), folded.history(), "at the end nothing is open");
            assert_eq!(session.history(), outcome.history);
            let pending = match session.state() {
                SessionState::Pending { calls } => calls,
                SessionState::Idle | SessionState::Unfinished { .. } => Vec::new(),
            };
            assert_eq!(pending, outcome.pending, "what waits is told");
            outcome.reason.as_str().clone_into(&mut end);
        }
        if resumed {
            end += " resumed";
        }
        ends.push(end);
        let wrong = tools.violations.lock().unwrap().clone();
        assert!(wrong.is_empty(), "{wrong:?}");
        if dice.one_in(2) {
            let state = session.state();
            session = Session::open(store.clone(), "h").await.unwrap();
            assert_eq!(session.state(), state);
        }
        assert!(session.history().settled().is_settled());
    }
    let mut ran: Vec<String> =
        tools.executed_calls.lock().unwrap().iter().map(|it| it.0.clone()).collect();
    let all = ran.len();
    ran.sort();
    ran.dedup();
    assert_eq!(ran.len(), all, "no call ran twice");
    ends
}

async fn start_run(session: &Session, agent: &Agent, dice: &Dice) -> (SessionRun, bool) {
    if dice.one_in(3) {
        return (session.run(agent, "go").await.unwrap(), false);
    }
    match session.state() {
        SessionState::Idle => (session.run(agent, "go").await.unwrap(), false),
        SessionState::Unfinished { .. } => (session.resume(agent, []).await.unwrap(), true),
        SessionState::Pending { calls } => {
            let verdict = |call: PendingCall| {
                let verdict = match dice.roll(4) {
                    0 => Verdict::deny("no"),
                    1 => Verdict::Output(random_agent::tool_output(dice)),
                    _ if call.name == "out" => Verdict::Output(random_agent::tool_output(dice)),
                    _ => Verdict::Approve,
                };
                (call, verdict)
            };
            let verdicts: Vec<_> = calls.into_iter().map(verdict).collect();
            (session.resume(agent, verdicts).await.unwrap(), true)
        }
    }
}

async fn stored_history(store: &MemoryStore) -> turnstream::History {
    restore_history("h", store.load("h", 0).await.unwrap().unwrap_or_default())
}

/// Pulls a run, and checks after each event. `None` if it was dropped.
async fn drive(
    mut run: SessionRun,
    store: &MemoryStore,
    folded: &Journal,
    dice: &Dice,
) -> Option<Outcome> {
    loop {
        let Ok(event) = tokio::time::timeout(Duration::from_mins(1), run.next()).await else {
            // The run waits for a verdict that does not come.
            run.interrupt();
            continue;
        };
        let event = event.expect("it ends with `Finished`").unwrap();
        folded.observe(&event);
        assert_stored_matches(store, folded).await;
        if let Some(call) = event.approval_request()
            && !dice.one_in(3)
        {
            let _ = if dice.one_in(3) { run.deny(call, "no") } else { run.approve(call) };
        }
        if let Event::Finished(outcome) = event {
            let error = run.next().await.map(Result::unwrap_err);
            assert_eq!(error, outcome.error);
            assert!(run.next().await.is_none());
            return Some(*outcome);
        }
        match dice.roll(300) {
            0..4 => drop(run.steer("Look here.")),
            4..6 => drop(run.follow_up("And then?")),
            6 => run.interrupt(),
            7..9 => return None,
            _ => {}
        }
    }
}

/// Checks that the stored history equals the events, up to the turn in progress.
async fn assert_stored_matches(store: &MemoryStore, folded: &Journal) {
    let (durable, told) = (stored_history(store).await, folded.history());
    let (durable, told): (Vec<&Item>, Vec<&Item>) =
        (durable.iter().collect(), told.iter().collect());
    let same = durable.iter().zip(&told).take_while(|(a, b)| a == b).count();
    assert_eq!(durable.get(same), None, "durable at {same}, and told is {:?}", told.get(same));
    let more = &told[durable.len()..];
    let is_open = folded.has_open_turn() && more.iter().all(|item| item.interrupted);
    assert!(more.is_empty() || is_open, "it was told before it was durable: {more:?}");
}
