//! Turns that are not an answer: truncated, malformed, failed or too long. The run corrects or
//! continues them, or hands them to its fallback.

use turnstream::agent::{Budget, Target, hook};
use turnstream::event::{EndReason, Transition};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, Event, TurnEvent};

use super::budgets::{tool_call_reply, uncounted_tool};

use turnstream_test_support::runs::{output_usage, run_with_action};
use turnstream_test_support::tools::spec;

fn truncated_reply(text: &str) -> Reply {
    Reply::text(text).stop(StopReason::MaxTokens)
}

fn context_window_error() -> Error {
    Error::new(ErrorKind::ContextWindow, "the prompt is too long")
}

/// Three answers, each of which is continued twice.
fn model_with_truncated_answers() -> Scripted {
    Scripted::from_fn(|_, n| match n % 3 {
        2 => Reply::text("fine").usage(output_usage(300)),
        _ => truncated_reply("half"),
    })
}

#[test]
fn a_complete_answer_resets_the_count_of_truncated_texts() {
    let run = Agent::new(model_with_truncated_answers()).run("go");
    for _ in 0..2 {
        run.follow_up("more").unwrap();
    }
    let (_, outcome) = run_with_action(run, |_, _| {});
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 9));

    let mut left = 2;
    let (_, outcome) =
        run_with_action(Agent::new(model_with_truncated_answers()).run("go"), |run, event| {
            if event.text_delta().is_some_and(|text| *text == "fine") && left > 0 {
                left -= 1;
                run.steer("more").unwrap();
            }
        });
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 9));

    let target = Budget::new().with_target(Target::new(1_000));
    let (_, outcome) = run_with_action(
        Agent::new(model_with_truncated_answers()).with_budget(target).run("go"),
        |_, _| {},
    );
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 9));
}

#[test]
fn partial_output_is_kept_if_the_turn_is_not_retried() {
    let reply = Reply::text("half an ").fail(context_window_error());
    let (events, outcome) =
        run_with_action(Agent::new(Scripted::new([reply])).run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::ContextWindow, "half an "));
    let retracted = |event: &Event| matches!(event, Event::Turn(TurnEvent::Retracted { .. }));
    assert!(!events.iter().any(retracted));
}

#[test]
fn a_history_that_cannot_be_compacted_is_sent_to_the_fallback() {
    let agent = Agent::new(Scripted::new([Reply::error(context_window_error())]))
        .with_fallback(Scripted::new(["fits"]));
    let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "fits"));
}

#[test]
fn a_hook_can_stop_the_run_before_any_further_request() {
    for reply in [
        tool_call_reply(),
        tool_call_reply().stop(StopReason::MaxTokens),
        tool_call_reply().stop(StopReason::Other("odd".into())),
        truncated_reply("half"),
        Reply::text("wait").stop(StopReason::Pause),
        Reply::new(),
    ] {
        let agent = Agent::new(Scripted::new([reply]))
            .with_tools([uncounted_tool()])
            .with_hook(hook::should_stop(|_| async { true }));
        let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
        assert_eq!((outcome.reason, outcome.turns), (EndReason::Stopped, 1));
    }
}

#[test]
fn a_malformed_reply_is_corrected_and_the_third_in_a_row_ends_the_run() {
    let unreadable = || {
        let error = Error::new(ErrorKind::GenerationFailed, "MALFORMED_FUNCTION_CALL");
        Reply::text("I call").fail(error)
    };
    let model = Scripted::new([unreadable(), unreadable(), Reply::text("fine")]);
    let tools = ["read", "write"].map(|name| Tool::raw(spec(name), |_, _| async { "" }).unwrap());
    let agent = Agent::new(model).with_tools(tools);
    let (events, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 3));
    // The prompt, two corrections and the answer.
    let items = outcome.new_items();
    assert_eq!(items.len(), 4);
    let correction = items[1].as_user().unwrap().text();
    assert!(correction.ends_with("The tools are: `read`, `write`."), "{correction}");
    let corrected =
        |event: &&Event| matches!(event, Event::Continued { reason: Transition::Corrective });
    assert_eq!(events.iter().filter(corrected).count(), 2);

    let model = Scripted::from_fn(move |_, _| unreadable());
    let (_, outcome) = run_with_action(Agent::new(model.clone()).run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.turns), (EndReason::ProviderError, 3));
    assert_eq!(outcome.error.unwrap().kind(), ErrorKind::GenerationFailed);
    let agent = Agent::new(model).with_fallback(Scripted::new(["fine"]));
    let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 4));
}
