//! A single hook call: its errors, its timeout, its panics, its drop.

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::*;

#[test]
fn a_hook_error_names_hook_and_method_and_keeps_its_source() {
    let failing = before_tool(|_, _| async { Err(Error::new(ErrorKind::Store, "disk full")) });
    let hooks = hooks([
        Box::new(NamedHook("f", failing)) as Box<dyn Hook>,
        before_tool_returning(deny("a")),
    ]);
    let error = poll_once(hooks.before_tool(&state(), &call("{}"))).unwrap_err();
    check_error(&error, "`f` failed in `before_tool`", (ErrorKind::Store, "disk full"));
}

#[test]
fn a_hook_without_a_name_is_named_by_its_type() {
    struct StayInFolder;

    impl Hook for StayInFolder {
        fn should_stop<'a>(&'a self, _: &'a State) -> HookFuture<'a, bool> {
            Box::pin(ready(Err(Error::new(ErrorKind::Other, "no"))))
        }
    }

    let hooks = hooks([Box::new(StayInFolder) as Box<dyn Hook>]);
    let error = poll_once(hooks.should_stop(&state())).unwrap_err();
    assert!(error.to_string().contains("StayInFolder` failed in `should_stop`"), "{error}");
}

#[test]
fn a_panic_anywhere_in_a_hook_is_an_error() {
    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("in the drop");
        }
    }

    struct FuturePanicsOnDrop;

    impl Hook for FuturePanicsOnDrop {
        fn before_tool<'a>(
            &'a self,
            _: &'a State,
            _: &'a ToolCall,
        ) -> HookFuture<'a, CallDecision> {
            let bomb = PanicsOnDrop;
            Box::pin(poll_fn(move |_| {
                let _ = &bomb;
                Poll::Ready(Ok(CallDecision::Allow))
            }))
        }
    }

    struct PanickingName;

    impl Hook for PanickingName {
        fn name(&self) -> Cow<'_, str> {
            panic!("no name")
        }

        fn should_stop<'a>(&'a self, _: &'a State) -> HookFuture<'a, bool> {
            panic!("in making it")
        }
    }

    let making = before_tool(|state: State, _| {
        assert_eq!(state.counts.model_calls, 9, "in making it");
        ready(CallDecision::Allow)
    });
    let polling = before_tool(|state: State, _| async move {
        assert_eq!(state.counts.model_calls, 9, "in polling it");
        CallDecision::Allow
    });
    for (hook, place) in [
        (Box::new(making) as Box<dyn Hook>, "in making it"),
        (Box::new(polling), "in polling it"),
        (Box::new(FuturePanicsOnDrop), "in the drop"),
    ] {
        let hooks = single_hook(NamedHook("p", hook));
        let error = poll_once(hooks.before_tool(&state(), &call("{}"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Hook);
        assert!(error.message().starts_with("the hook `p` failed in `before_tool`: it panicked: "));
        assert!(error.message().contains(place), "{error}");
    }
    let error = poll_once(single_hook(PanickingName).should_stop(&state())).unwrap_err();
    let source = (ErrorKind::Panic, "it panicked: in making it");
    check_error(&error, "`without a name` failed in `should_stop`", source);
}

#[test]
fn a_panic_in_a_notification_does_not_stop_the_others_and_in_on_finished_is_reported() {
    let heard = Shared::<Vec<String>>::default();
    let listening = |heard: Shared<Vec<String>>| {
        let end = heard.clone();
        [
            Box::new(on_failure(move |_: &State, error: &Error| {
                heard.lock().unwrap().push(error.to_string());
            })) as Box<dyn Hook>,
            Box::new(on_finished(move |_, outcome: &Outcome| {
                end.lock().unwrap().push(outcome.reason.to_string());
            })),
        ]
    };
    let panicking = [
        Box::new(on_failure(|_: &State, _: &Error| panic!("boom"))) as Box<dyn Hook>,
        Box::new(on_finished(|_, _: &Outcome| panic!("boom"))),
    ];
    let hooks = hooks(panicking.into_iter().chain(listening(heard.clone())));
    hooks.on_failure(&state(), &Error::new(ErrorKind::Server, "overheated"));
    hooks.on_finished(&state(), &outcome());
    let heard = heard.lock().unwrap();
    let [failure, panicked, finished] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!([failure, finished], ["overheated", "completed"]);
    assert!(panicked.ends_with("failed in `on_finished`: it panicked: boom"), "{panicked}");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_times_out_is_dropped_and_an_error() {
    let dropped = Arc::new(AtomicBool::new(false));
    let hanging = {
        let dropped = dropped.clone();
        before_tool(move |_, _| {
            let guard = SetOnDrop(dropped.clone());
            async move {
                let _guard = guard;
                pending::<CallDecision>().await
            }
        })
    };
    let hooks = single_hook(NamedHook("slow", hanging));
    let start = Instant::now();
    let error = hooks.before_tool(&state(), &call("{}")).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    let source = (ErrorKind::Timeout, "it took longer than 30s");
    check_error(&error, "`slow` failed in `before_tool`", source);
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn each_hook_call_has_its_own_timeout() {
    let slow = || {
        let late = |_| async {
            sleep(Duration::from_millis(900)).await;
            false
        };
        Box::new(should_stop(late)) as Box<dyn Hook>
    };
    let mut hooks = hooks([slow(), slow(), slow()]);
    hooks.set_timeout(Some(Duration::from_secs(1)));
    let start = Instant::now();
    hooks.should_stop(&state()).await.unwrap();
    hooks.should_stop(&state()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(5400));
    hooks.set_timeout(Some(Duration::from_millis(800)));
    let error = hooks.should_stop(&state()).await.unwrap_err();
    assert!(error.message().ends_with("it took longer than 800ms"), "{error}");
}

/// Sets the flag when it is dropped.
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_invocation_drops_the_hook_future_synchronously() {
    let dropped = Arc::new(AtomicBool::new(false));
    let hanging = {
        let dropped = dropped.clone();
        before_stop(move |_, _| {
            let guard = SetOnDrop(dropped.clone());
            async move {
                let _guard = guard;
                pending::<StopDecision>().await
            }
        })
    };
    let (hooks, state, turn) = (single_hook(hanging), state(), turn("done"));
    let mut question = Box::pin(hooks.before_stop(&state, &turn));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(question.as_mut().poll(&mut cx).is_pending());
    assert!(!dropped.load(Ordering::SeqCst));
    drop(question);
    assert!(dropped.load(Ordering::SeqCst));
}
