//! Whose hook runs.

use std::time::Duration;

use tokio::time::sleep;

use super::*;
use crate::agent::hook::ask::{ask, caught};
use crate::env::TimeLimit;

#[tokio::test(start_paused = true)]
async fn a_stamped_hook_knows_whose_it_is_also_behind_an_await() {
    let seen = Shared::<Vec<String>>::default();
    let log = {
        let seen = seen.clone();
        Arc::new(turn_started(move |_| {
            let seen = seen.clone();
            let who = || identity().map_or_else(|| "-".to_owned(), |who| who.to_string());
            seen.lock().unwrap().push(who());
            async move {
                sleep(Duration::from_secs(1)).await;
                seen.lock().unwrap().push(who());
            }
        }))
    };
    let state = state();
    let a = stamped("a", log.clone());
    let b = stamped("b", stamped("a", log.clone()));
    futures::join!(
        a.turn_started(&state).map(Result::unwrap),
        b.turn_started(&state).map(Result::unwrap),
        log.turn_started(&state).map(Result::unwrap),
    );
    assert_eq!(*seen.lock().unwrap(), ["a", "a/b", "-", "a", "a/b", "-"]);
    assert_eq!(identity(), None);
}

#[test]
fn a_stamp_reaches_every_method_and_the_name_and_is_gone_behind_a_panic() {
    /// Panics with its identity wherever it is called.
    struct Says;

    fn says() -> ! {
        panic!("{}", identity().unwrap())
    }

    impl Hook for Says {
        fn name(&self) -> Cow<'_, str> {
            Cow::Borrowed("says")
        }

        fn transform_context<'a>(&'a self, _: &'a State, _: History) -> HookFuture<'a, History> {
            says()
        }

        fn prepare<'a>(&'a self, _: &'a State, _: &'a mut Request) -> HookFuture<'a, ()> {
            says()
        }

        fn turn_started(&self, _: &State) -> HookFuture<'static, ()> {
            says()
        }

        fn assistant_message(&self, _: &State, _: &Arc<Turn>) -> HookFuture<'static, ()> {
            Box::pin(async { says() })
        }

        fn after_sampling(&self, _: &State, _: &Arc<Turn>) -> HookFuture<'static, Vec<Item>> {
            Box::pin(async { says() })
        }

        fn before_tool<'a>(&'a self, _: &'a State, _: &'a ToolCall) -> HookFuture<'a, BeforeTool> {
            Box::pin(async { says() })
        }

        fn after_tool(&self, _: &ToolCall, _: &mut ToolResult) {
            says()
        }

        fn should_stop<'a>(&'a self, _: &'a State) -> HookFuture<'a, bool> {
            says()
        }

        fn stop<'a>(&'a self, _: &'a State, _: &'a Turn) -> HookFuture<'a, OnStop> {
            says()
        }

        fn failure(&self, _: &State, _: &Error) {
            says()
        }

        fn finished(&self, _: &Outcome) {
            says()
        }
    }

    let hook = Arc::new(Box::new(stamped("b", stamped("a", Says))));
    let hooks = one(hook.clone());
    let (state, turn) = (Arc::new(state()), turn("hi"));
    let request = Request::new(History::with_id("h"));
    let first = |observers| observed(observers).remove(0).map(drop);
    let mut second = request.clone();
    let mut result = ToolResult::answering(&call("{}"), ResultKind::Ok, "");
    let errors = [
        at_once(hooks.prepare(&state, request)).map(drop),
        at_once(ask(&*hook, "prepare", TimeLimit::Set(Duration::ZERO), || {
            hook.prepare(&state, &mut second)
        })),
        first(Box::new(hooks.turn_started(&state)) as Box<dyn Iterator<Item = Observer>>),
        first(Box::new(hooks.assistant_message(&state, &turn))),
        first(Box::new(hooks.after_sampling(&state, &turn))),
        at_once(hooks.before_tool(State::clone(&state), call("{}"))).map(drop),
        hooks.after_tool(&call("{}"), &mut result),
        at_once(hooks.should_stop(&state)).map(drop),
        at_once(hooks.stop(&state, &turn)).map(drop),
    ]
    .map(Result::unwrap_err);
    let methods = [
        "transform_context",
        "prepare",
        "turn_started",
        "assistant_message",
        "after_sampling",
        "before_tool",
        "after_tool",
        "should_stop",
        "stop",
    ];
    for (error, method) in errors.iter().zip(methods) {
        let named = format!("`says/a/b` failed in `{method}`");
        check_error(error, &named, (ErrorKind::Panic, "it panicked: a/b"));
        assert_eq!(identity(), None);
    }
    for told in [caught(|| hook.failure(&state, &errors[0])), caught(|| hook.finished(&outcome()))]
    {
        assert_eq!(told.unwrap_err().message(), "it panicked: a/b");
    }
}
