//! The label of an agent in its hooks and in their errors.

use super::*;
use crate::agent::hook::invoke::catch_hook_panic;

fn labelled(label: &str) -> State {
    state().update(|it| it.label = label.into())
}

/// Panics with the label in every method.
struct PanicsWithLabel;

fn says(state: &State) -> ! {
    panic!("{}", state.label)
}

impl Hook for PanicsWithLabel {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed("says")
    }

    fn transform_context<'a>(&'a self, state: &'a State, _: History) -> HookFuture<'a, History> {
        says(state)
    }

    fn prepare_request<'a>(&'a self, state: &'a State, _: Request) -> HookFuture<'a, Request> {
        says(state)
    }

    fn turn_started(&self, state: &State) -> HookFuture<'static, ()> {
        says(state)
    }

    fn assistant_message(&self, state: &State, _: &Arc<Turn>) -> HookFuture<'static, ()> {
        {
            let state = state.clone();
            Box::pin(async move { says(&state) })
        }
    }

    fn after_sampling(&self, state: &State, _: &Arc<Turn>) -> HookFuture<'static, Vec<Item>> {
        {
            let state = state.clone();
            Box::pin(async move { says(&state) })
        }
    }

    fn before_tool<'a>(
        &'a self,
        state: &'a State,
        _: &'a ToolCall,
    ) -> HookFuture<'a, CallDecision> {
        {
            let state = state.clone();
            Box::pin(async move { says(&state) })
        }
    }

    fn after_tool(&self, state: &State, _: &ToolCall, _: &mut ToolResult) {
        says(state)
    }

    fn repair_arguments(&self, state: &State, _: &ToolCall, _: &str) -> Option<String> {
        says(state)
    }

    fn redact_progress(&self, state: &State, _: &ToolCall, _: &mut RawJson) {
        says(state)
    }

    fn redact_evidence(&self, state: &State, _: &ToolCall, _: &mut RawJson) {
        says(state)
    }

    fn should_stop<'a>(&'a self, state: &'a State) -> HookFuture<'a, bool> {
        says(state)
    }

    fn before_stop<'a>(&'a self, state: &'a State, _: &'a Turn) -> HookFuture<'a, StopDecision> {
        says(state)
    }

    fn on_failure(&self, state: &State, _: &Error) {
        says(state)
    }

    fn on_finished(&self, state: &State, _: &Outcome) {
        says(state)
    }
}

#[test]
fn every_hook_method_sees_the_agent_label_and_errors_name_it() {
    let hook = Arc::new(Box::new(PanicsWithLabel));
    let hooks = single_hook(hook.clone());
    let (state, turn) = (Arc::new(labelled("a/b")), turn("hi"));
    let request = Request::new(History::empty("h"));
    let first = |observers| observed(observers).remove(0).map(drop);
    let mut result = ToolResult::for_call(&call("{}"), ResultKind::Ok, "");
    let (mut progress, mut evidence) = (RawJson::new(&1).unwrap(), RawJson::new(&1).unwrap());
    let errors = [
        (
            "transform_context",
            poll_once(hooks.transform_request(&state, request.clone())).map(drop),
        ),
        ("prepare_request", poll_once(hooks.prepare_request(&state, request)).map(drop)),
        (
            "turn_started",
            first(Box::new(hooks.turn_started(&state)) as Box<dyn Iterator<Item = Observer>>),
        ),
        ("assistant_message", first(Box::new(hooks.assistant_message(&state, &turn)))),
        ("after_sampling", first(Box::new(hooks.after_sampling(&state, &turn)))),
        ("repair_arguments", hooks.repair_arguments(&state, &call("["), "not JSON").map(drop)),
        ("before_tool", poll_once(hooks.before_tool(&state, &call("{}"))).map(drop)),
        ("after_tool", hooks.after_tool(&state, &call("{}"), &mut result)),
        ("redact_progress", hooks.redact_progress(&state, &call("{}"), &mut progress)),
        ("redact_evidence", hooks.redact_evidence(&state, &call("{}"), &mut evidence)),
        ("should_stop", poll_once(hooks.should_stop(&state)).map(drop)),
        ("before_stop", poll_once(hooks.before_stop(&state, &turn)).map(drop)),
    ]
    .map(|(method, given)| (method, given.unwrap_err()));
    for (method, error) in &errors {
        let named = format!("`says/a/b` failed in `{method}`");
        check_error(error, &named, (ErrorKind::Panic, "it panicked: a/b"));
    }
    let error = &errors[0].1;
    for told in [
        catch_hook_panic(|| hook.on_failure(&state, error)),
        catch_hook_panic(|| hook.on_finished(&state, &outcome())),
    ] {
        assert_eq!(told.unwrap_err().message(), "it panicked: a/b");
    }
}

#[test]
fn a_panic_in_a_redaction_discards_its_change_and_the_other_hooks_still_run() {
    let panicking = || {
        Box::new(redact_progress(|_, _, data: &mut RawJson| {
            *data = RawJson::new(&0).unwrap();
            panic!("boom")
        })) as Box<dyn Hook>
    };
    let seen = Shared::<Vec<RawJson>>::default();
    let seeing = {
        let seen = seen.clone();
        redact_progress(move |_, _, data| seen.lock().unwrap().push(data.clone()))
    };
    let hooks = hooks([panicking(), Box::new(seeing)]);
    let mut data = RawJson::new(&1).unwrap();
    hooks.redact_progress(&state(), &call("{}"), &mut data).unwrap_err();
    assert_eq!((&data, &*seen.lock().unwrap()), (&RawJson::new(&1).unwrap(), &vec![data.clone()]));
}
