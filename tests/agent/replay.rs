//! Runs that are recorded, replayed, stopped at a step, and continued from there with one change.
//! The test suites `interrupts`, `agent::mix`, `agent::boundaries`, `invariants::worlds` and
//! `invariants::grid` replay each of their runs themselves.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde_json::json;
use tokio::time::sleep;
use turnstream::agent::{RunContext, State, hook, loop_body};
use turnstream::env::CountingIds;
use turnstream::event::EndReason;
use turnstream::item::Content;
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::{Recorder, Recording, ReplayMismatch, ReplayRun};
use turnstream::request::Options;
use turnstream::tool::{Tool, ToolOutput, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Request, Run, Toolkit};

use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::runs::limits_with_max_turns;
use turnstream_test_support::tools::spec;

/// A tool that counts its executions.
fn counting_tool(name: &str, ran: &Arc<Mutex<u32>>) -> Tool {
    let ran = Arc::clone(ran);
    let run = move |_, _| {
        *ran.lock().unwrap() += 1;
        async { "rain" }
    };
    Tool::raw(spec(name), run).unwrap()
}

/// A model that makes two calls, and then reports the last result.
fn two_call_model() -> Scripted {
    Scripted::from_fn(|request, _| {
        let results = request.history.iter().filter_map(Item::as_tool_result);
        let seen: Vec<String> = results.map(|result| result.content.text()).collect();
        match seen.is_empty() {
            true => {
                Reply::text("Let me look.").call_raw("a", "look", "{}").call_raw("b", "look", "{}")
            }
            false => Reply::text(format!("I see {}.", seen.join(" and "))),
        }
    })
}

/// An agent, the number of executions of its tool, and its model.
fn replay_agent() -> (Agent, Arc<Mutex<u32>>, Scripted) {
    let (ran, model) = (Arc::default(), two_call_model());
    let agent = Agent::new(model.clone()).with_tools([counting_tool("look", &ran)]);
    (agent.with_ids(CountingIds::new("id")), ran, model)
}

/// The recorded lines of a run that is driven by `drive`.
fn record_lines(agent: &Agent, drive: impl FnOnce(Run)) -> String {
    let page = SharedBuffer::new();
    drive(agent.clone().with_recorder(&Recorder::to_writer(page.clone())).run("How is it?"));
    page.text()
}

fn run_to_end(run: Run) {
    run.outcome().now_or_never().expect("nothing of it waits");
}

fn record_run(agent: &Agent) -> Recording {
    Recording::from_text(&record_lines(agent, run_to_end)).unwrap()
}

/// The events of a replay, and its error.
fn replay_events(mut rerun: ReplayRun) -> (Vec<Event>, Option<Error>) {
    let mut events = Vec::new();
    loop {
        match rerun.next().now_or_never().expect("nothing of it waits") {
            Some(Ok(event)) => events.push(event),
            Some(Err(error)) => return (events, Some(error)),
            None => return (events, None),
        }
    }
}

/// Checks the position and the part in which a replay differs from the recorded run.
#[track_caller]
fn assert_mismatch(rerun: ReplayRun, events: usize, part: &str) {
    let (seen, error) = replay_events(rerun);
    let error = error.expect("it is found");
    let mismatch = error.find_source::<ReplayMismatch>().expect("it says where");
    assert_eq!(
        (seen.len(), mismatch.matched_events, mismatch.part.as_str()),
        (events, events, part)
    );
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::ReplayMismatch, Some(part)));
}

#[test]
fn a_replay_yields_the_same_events_without_requests_or_tools() {
    let (agent, ran, model) = replay_agent();
    let recording = record_run(&agent);
    assert_eq!((*ran.lock().unwrap(), model.requests().len()), (2, 2));
    let (events, error) = replay_events(recording.replay(&agent));
    assert_eq!(error, None);
    assert!(events.iter().eq(recording.events()));
    assert!(events.last().unwrap().outcome().is_some());
    assert_eq!((*ran.lock().unwrap(), model.requests().len()), (2, 2), "nothing ran");
}

#[test]
fn the_first_divergence_is_reported_with_its_location() {
    let (agent, ..) = replay_agent();
    let recording = record_run(&agent);
    let replay = |agent: Agent| recording.replay(&agent);
    assert_mismatch(replay(agent.clone().with_system("Be brief.")), 2, "request.system.stable");
    assert_mismatch(
        replay(
            agent
                .clone()
                .with_options(Options { max_output_tokens: Some(7), ..Options::default() }),
        ),
        2,
        "request.options.max_output_tokens",
    );
    assert_mismatch(replay(agent.clone().with_toolkit(Toolkit::new([]))), 2, "request.tools[0]");
    // One turn, and no second one.
    let behind = recording.events().position(|event| matches!(event, Event::Continued { .. }));
    assert_mismatch(replay(agent.with_limits(limits_with_max_turns(1))), behind.unwrap(), "event");
}

#[test]
fn a_different_context_is_reported_by_its_first_differing_entry() {
    let (agent, ..) = replay_agent();
    let text = record_lines(&agent, run_to_end);
    let changed = text.lines().map(|line| match line.contains(r#""type":"request""#) {
        true => line.to_owned(),
        false => line.replace("rain", "snow"),
    });
    let recording = Recording::from_text(&changed.collect::<Vec<_>>().join("\n")).unwrap();
    let (events, error) = replay_events(recording.replay(&agent));
    let error = error.unwrap();
    let mismatch = error.find_source::<ReplayMismatch>().unwrap();
    assert_eq!((mismatch.turn, &*mismatch.part), (2, "request.context[4].content"));
    let values = (mismatch.recorded.as_str(), mismatch.replayed.as_str());
    assert_eq!(values, (r#""rain""#, r#""snow""#));
    assert!(!error.to_string().contains("snow"), "values may be private");
    assert!(events.iter().any(|event| event.tool_output().is_some()));
}

#[tokio::test]
async fn a_replay_can_stop_at_any_step_and_show_its_state() {
    let (agent, ..) = replay_agent();
    let recording = record_run(&agent);
    assert_eq!(recording.at_step(9).journal().history(), recording.at_step(4).journal().history());
    let sizes = [(0, 1, 0), (1, 4, 1), (2, 5, 1), (3, 6, 1), (4, 7, 2)];
    for (step, items, requests) in sizes {
        let mut rerun = recording.replay(&agent);
        assert!(rerun.play_until(step).await.unwrap());
        if step > 0 {
            assert_eq!(
                (rerun.journal().history().len(), rerun.requests().len()),
                (items, requests)
            );
        }
        let moment = rerun.replay_point();
        assert_eq!(
            (moment.journal().history().len(), moment.journal().usage()),
            (items, rerun.journal().usage()),
            "{step}"
        );
        assert_eq!(recording.at_step(step).journal().history(), moment.journal().history());
    }
    let mut rerun = recording.replay(&agent);
    assert!(rerun.next_step().await.unwrap().unwrap().turn_complete().is_some());
    assert!(rerun.next_step().await.unwrap().unwrap().tool_output().is_some());
    assert!(!rerun.play_until(9).await.unwrap(), "there are no nine");
    assert_eq!(recording.at_step(9).journal().history().len(), 7);
}

#[tokio::test]
async fn a_run_can_continue_from_a_replaced_result() {
    let (agent, ran, model) = replay_agent();
    let recording = record_run(&agent);
    let moment = recording.at_step(4).with_tool_result("b", ToolOutput::ok("the sun")).unwrap();
    assert_eq!(moment.journal().history().len(), 6, "what followed is left out");
    let expected = moment.request(&agent);
    let outcome = moment.run(&agent).outcome().await;
    assert_eq!(outcome.text, "I see rain and the sun.");
    assert_eq!((*ran.lock().unwrap(), model.requests().len()), (2, 3), "no tool runs twice");
    let sent = &model.requests()[2];
    assert!(sent.context.iter().eq(expected.context.iter()));
    assert_ne!(sent.history.id(), recording.history().id(), "it is a fork");
    // The recording is unchanged.
    assert_eq!(replay_events(recording.replay(&agent)).1, None);
    let error = recording.at_step(0).with_tool_result("z", ToolOutput::ok("")).unwrap_err();
    assert_eq!(error.parameter(), Some("z"));
}

#[tokio::test]
async fn when_one_result_is_replaced_the_sibling_calls_keep_their_recorded_results() {
    let (agent, ran, _) = replay_agent();
    let recording = record_run(&agent);
    let moment = recording.at_step(2);
    assert_eq!(moment.journal().history().unanswered_calls().len(), 1);
    assert_eq!(moment.run(&agent).outcome().await.text, "I see rain and rain.");
    assert_eq!(*ran.lock().unwrap(), 2);
}

#[tokio::test]
async fn a_run_can_restart_with_a_replaced_prompt() {
    let (agent, ran, model) = replay_agent();
    let recording = record_run(&agent);
    let outcome = recording.at_step(3).with_prompt("And there?").run(&agent).outcome().await;
    assert_eq!((outcome.reason, *ran.lock().unwrap()), (EndReason::Completed, 4));
    assert_eq!(model.requests()[2].history.last(), Some(&Item::user("And there?")));
    assert_eq!(outcome.history.len(), 7);
}

#[test]
fn an_interrupt_is_replayed_at_the_same_event() {
    let (agent, ..) = replay_agent();
    let recording = record_run(&agent);
    for at in 0..recording.events().count() {
        let text = record_lines(&agent, |mut run| {
            for _ in 0..at {
                run.next().now_or_never();
            }
            run.interrupt();
            run_to_end(run);
        });
        let recording = Recording::from_text(&text).unwrap();
        let (events, error) = replay_events(recording.replay(&agent));
        assert_eq!(error, None, "after {at}");
        assert!(events.iter().eq(recording.events()), "after {at}");
        assert!(events.last().unwrap().outcome().is_some());
    }
}

#[test]
fn a_dropped_or_truncated_recording_replays_up_to_its_end() {
    let (agent, ..) = replay_agent();
    let text = record_lines(&agent, run_to_end);
    let behind_header = text.find('\n').unwrap();
    for cut in (0..text.len()).step_by(7) {
        let read = Recording::from_text(&text[..cut]);
        let Ok(recording) = read else {
            assert!(cut <= behind_header, "cut at {cut}");
            continue;
        };
        let (events, error) = replay_events(recording.replay(&agent));
        assert_eq!(error, None, "cut at {cut}");
        assert!(events.iter().eq(recording.events()), "cut at {cut}");
    }
}

#[test]
fn a_sub_agent_is_replayed_from_its_parents_recording() {
    let child = Scripted::new(["Oslo."]);
    let boss = Scripted::new([
        Reply::new().call_raw("c", "ask", r#"{"prompt":"where?"}"#),
        Reply::text("In Oslo."),
    ]);
    let tool = Agent::new(child.clone()).as_tool("ask", "Asks").unwrap();
    let agent = Agent::new(boss).with_tools([tool]);
    let recording = record_run(&agent);
    let (events, error) = replay_events(recording.replay(&agent));
    assert_eq!((error, child.requests().len()), (None, 1));
    assert!(events.iter().any(|event| matches!(event, Event::Nested { .. })));
    let step = recording.at_step(2);
    assert_eq!(step.journal().nested_journal("c").unwrap().history().len(), 2);
}

#[test]
fn hooks_are_not_called_in_a_replay_and_their_recorded_decisions_are_used() {
    let asked = Arc::new(Mutex::new(0));
    let (agent, ..) = replay_agent();
    let count = Arc::clone(&asked);
    let agent = agent
        .with_hook(hook::prepare_request(move |_, mut request| {
            let mut asked = count.lock().unwrap();
            *asked += 1;
            request.system.volatile = format!("It is {asked} o'clock.");
            async move { request }
        }))
        .with_hook(hook::transform_context(|_, context| async move {
            let items = context.iter().map(|item| match item.as_user() {
                Some(_) => Item::user("***"),
                None => item.clone(),
            });
            History::from_items(context.id(), items.collect::<Vec<_>>())
        }))
        .with_hook(hook::after_tool(|_, _, result| result.content = "fog".into()));
    let recording = record_run(&agent);
    let mut rerun = recording.replay(&agent);
    while rerun.next().now_or_never().expect("nothing waits").transpose().unwrap().is_some() {}
    assert_eq!(*asked.lock().unwrap(), 2);
    let requests = rerun.requests();
    assert_eq!(requests[1].system.volatile, "It is 2 o'clock.");
    assert_eq!(requests[1].context.iter().next(), Some(&Item::user("***")));
}

#[tokio::test(start_paused = true)]
async fn observer_notes_are_replayed_in_their_requests_without_waiting_for_the_hook() {
    let noting = |seconds: u64| {
        hook::after_sampling(move |state, _| async move {
            if state.counts.model_calls == 1 && seconds > 0 {
                sleep(Duration::from_secs(seconds)).await;
            }
            vec![Item::user(format!("{} of {seconds}", state.counts.model_calls))]
        })
    };
    let look = || Reply::new().call("look", json!({})).delay(Duration::from_secs(3));
    let model = Scripted::new([look(), look(), look(), "Rain.".into()]);
    let agent = Agent::new(model.clone()).with_tools([counting_tool("look", &Arc::default())]);
    let agent = agent.with_hook(noting(0)).with_hook(noting(4)).with_hook(noting(2));
    let page = SharedBuffer::new();
    agent
        .clone()
        .with_recorder(&Recorder::to_writer(page.clone()))
        .run("How is it?")
        .outcome()
        .await;
    let notes = |request: &Request| {
        let said = request.history.iter().filter_map(Item::as_user).skip(1);
        said.map(Content::text).collect::<Vec<_>>()
    };
    let said: Vec<_> = model.requests().iter().map(notes).collect();
    assert_eq!(said[1], ["1 of 0"]);
    assert_eq!(said[2][1..], ["1 of 2", "2 of 0", "2 of 4", "2 of 2"]);
    assert_eq!(said[3][5..], ["1 of 4", "3 of 0", "3 of 4", "3 of 2"]);
    let mut rerun = Recording::from_text(&page.text()).unwrap().replay(&agent);
    while rerun.next().now_or_never().expect("nothing waits").transpose().unwrap().is_some() {}
    assert_eq!(rerun.requests().iter().map(notes).collect::<Vec<_>>(), said);
}

#[tokio::test]
async fn resumed_calls_are_replayed_with_their_recorded_results() {
    let ran = Arc::default();
    let model = Scripted::new([Reply::new().call_raw("c", "danger", "{}"), "Done.".into()]);
    let agent = Agent::new(model).with_tools([counting_tool("danger", &ran).requires_approval()]);
    let page = SharedBuffer::new();
    let recording_agent = agent.clone().with_recorder(&Recorder::to_writer(page.clone()));
    let first = recording_agent.run("Do it").outcome().await;
    let verdicts = first.pending.into_iter().map(|call| (call, Verdict::Approve));
    recording_agent.resume(first.history, verdicts).unwrap().outcome().await;

    let runs = Recording::all_from_text(&page.text()).unwrap();
    assert_eq!(runs.len(), 2);
    for recording in &runs {
        let (events, error) = replay_events(recording.replay(&agent));
        assert_eq!(error, None);
        assert!(events.iter().eq(recording.events()));
    }
    assert_eq!(*ran.lock().unwrap(), 1);
}

#[test]
fn a_recorded_step_of_a_custom_body_is_replayed_and_not_executed() {
    let (agent, ..) = replay_agent();
    let performed = Arc::new(Mutex::new(0));
    let own = |performed: &Arc<Mutex<u32>>| {
        let performed = Arc::clone(performed);
        move |cx: RunContext, state: State| {
            let performed = Arc::clone(&performed);
            async_stream::try_stream! {
                // The value is null, and is recorded nevertheless.
                let _: Option<u32> = cx.step("nothing", async { Ok(None) }).await?;
                let count = move || {
                    let mut performed = performed.lock().unwrap();
                    *performed += 1;
                    *performed
                };
                let lap: u32 = cx.step("lap", async move { Ok(count()) }).await?;
                assert_eq!(lap, state.counts.model_calls + 1);
                let mut steps = Box::pin(loop_body(cx, state));
                while let Some(step) = steps.next().await {
                    yield step?;
                }
            }
        }
    };
    let page = SharedBuffer::new();
    let recording = agent.clone().with_recorder(&Recorder::to_writer(page.clone()));
    run_to_end(recording.run_with_body(own(&performed), History::empty("h"), "How is it?"));
    assert_eq!(*performed.lock().unwrap(), 2);
    let recording = Recording::from_text(&page.text()).unwrap();
    let (events, error) = replay_events(recording.replay_with_body(&agent, own(&performed)));
    assert_eq!((error, *performed.lock().unwrap()), (None, 2));
    assert!(events.iter().eq(recording.events()));

    // A recording without the step does not match this body.
    let without: Vec<_> = page.text().lines().map(str::to_owned).collect();
    let without = without.into_iter().filter(|line| !line.contains(r#""name":"lap""#));
    let text = without.collect::<Vec<_>>().join("\n");
    let (_, error) = replay_events(
        Recording::from_text(&text).unwrap().replay_with_body(&agent, own(&performed)),
    );
    let error = error.unwrap();
    assert_eq!(error.kind(), ErrorKind::ReplayMismatch);
    assert_eq!(*performed.lock().unwrap(), 2, "and it is not performed");
}

#[test]
fn a_run_interrupted_during_a_hook_is_replayed_as_interrupted() {
    let (agent, ran, model) = replay_agent();
    let agent = agent.with_hook(hook::prepare_request(|_, _| std::future::pending::<Request>()));
    let text = record_lines(&agent, |mut run| {
        assert!(run.next().now_or_never().flatten().is_some(), "its input");
        assert!(run.next().now_or_never().is_none(), "the hook thinks");
        run.interrupt();
        run_to_end(run);
    });
    let recording = Recording::from_text(&text).unwrap();
    let (events, error) = replay_events(recording.replay(&agent));
    assert_eq!(error, None);
    assert!(events.iter().eq(recording.events()));
    assert!(events.last().unwrap().outcome().is_some());
    assert_eq!((*ran.lock().unwrap(), model.requests().len()), (0, 0));
}

#[test]
fn concurrent_runs_can_share_a_recording_file() {
    let (agent, ..) = replay_agent();
    let page = SharedBuffer::new();
    let writing = agent.clone().with_recorder(&Recorder::to_writer(page.clone()));
    let mut runs = [writing.run("one"), writing.run("two")];
    while runs.iter_mut().any(|run| run.next().now_or_never().flatten().is_some()) {}
    let runs = Recording::all_from_text(&page.text()).unwrap();
    assert_eq!(runs.len(), 2);
    for recording in runs {
        assert_eq!(replay_events(recording.replay(&agent)).1, None);
    }
}

#[test]
fn an_invalid_recording_is_rejected_with_its_line_number() {
    let refused = |text: &str| Recording::from_text(text).unwrap_err().to_string();
    let header = r#"{"type":"run","run":1,"version":1,"history":{"id":"h"}}"#;
    assert!(refused("").contains("there is no run"));
    assert!(refused(&header.replace("version\":1", "version\":2")).contains("version 2"));
    assert!(refused(&format!("{header}\n{header}\n")).contains("line 2: run 1 begins twice"));
    assert!(refused(&format!("{header}\nno\n{header}")).contains("line 2"));
    let stray = r#"{"type":"turn_failed","run":2,"error":{"kind":"other","message":""}}"#;
    assert!(refused(&format!("{header}\n{stray}\n")).contains("line 2: run 2 has not begun"));
    // Lines of a later version are ignored.
    assert!(Recording::from_text(&format!("{header}\n{{\"type\":\"aside\"}}\n")).is_ok());
}

#[test]
fn a_full_disk_does_not_fail_the_recorded_run() {
    struct FullWriter;
    impl Write for FullWriter {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is full"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (agent, ..) = replay_agent();
    let recorder = Recorder::to_writer(FullWriter);
    let outcome = agent.with_recorder(&recorder).run("go").outcome().now_or_never().unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
    assert_eq!(recorder.failure().unwrap().kind(), ErrorKind::Store);
    assert!(Recorder::to_file("/nowhere/at/all").is_err());
}

#[test]
fn a_recording_is_flushed_before_each_request_and_only_a_few_times_per_turn() {
    struct WriteCounter(SharedBuffer, Arc<Mutex<usize>>);
    impl Write for WriteCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            *self.1.lock().unwrap() += 1;
            self.0.write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (page, writes) = (SharedBuffer::new(), Arc::default());
    let written = page.clone();
    let model = Scripted::from_fn(move |_, turn| {
        let text = written.text();
        assert_eq!(text.matches(r#"{"type":"request""#).count(), turn + 1);
        assert_eq!(text.matches(r#""type":"turn_complete""#).count(), turn);
        assert!(text.ends_with('\n'));
        let reply = Reply::text("a word ".repeat(50));
        if turn < 9 { reply.call("look", json!({})) } else { reply }
    });
    let agent = Agent::new(model).with_tools([counting_tool("look", &Arc::default())]);
    let recorder = Recorder::to_writer(WriteCounter(page.clone(), Arc::clone(&writes)));
    run_to_end(agent.with_recorder(&recorder).run("go"));
    assert!(page.text().lines().count() > 500, "a line for each word");
    // A request, the end of its turn, and the end of its call; the outcome.
    assert_eq!(*writes.lock().unwrap(), 10 + 10 + 9 + 1);
}

#[test]
fn the_size_of_a_recording_is_linear_in_the_conversation() {
    let bytes = |turns: u32| {
        let model = Scripted::from_fn(move |_, turn| match turn + 1 < turns as usize {
            true => Reply::new().call("look", json!({ "n": turn })),
            false => Reply::text("Done."),
        });
        let agent = Agent::new(model).with_tools([counting_tool("look", &Arc::default())]);
        record_lines(&agent.with_limits(limits_with_max_turns(turns)), run_to_end).len()
    };
    let [ten, hundred, more] = [10, 100, 400].map(bytes);
    let (first, second) = ((hundred - ten) / 90, (more - hundred) / 300);
    assert!(second < first * 11 / 10, "{first} bytes a turn, then {second}");
}
