//! How several hooks are combined, and what closures may return.

mod argument_repair;
mod invoke;
mod label;

use std::borrow::Cow;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::FutureExt;

use super::*;
use crate::agent::State;
use crate::error::{Error, ErrorKind};
use crate::event::{EndReason, Outcome};
use crate::item::{History, Item, RawJson, ResultKind, ToolCall, ToolResult};
use crate::journal::Journal;
use crate::request::Request;
use crate::turn::{Turn, TurnBuilder, TurnEvent};

type Shared<T> = Arc<Mutex<T>>;

fn state() -> State {
    State::new(History::empty("h"))
}

fn call(arguments: &str) -> ToolCall {
    ToolCall { call_id: "c1".into(), name: "t".into(), arguments: arguments.into() }
}

fn turn(text: &str) -> Arc<Turn> {
    let mut turn = TurnBuilder::new();
    turn.push_text(0, text);
    turn.stop(crate::item::StopReason::Stop, "");
    turn.complete().unwrap();
    match std::iter::from_fn(|| turn.next_event()).last() {
        Some(TurnEvent::TurnComplete { turn }) => turn,
        _ => panic!("no turn"),
    }
}

fn outcome() -> Outcome {
    Journal::new(History::empty("h")).outcome(EndReason::Completed, None)
}

fn hooks(hooks: impl IntoIterator<Item = Box<dyn Hook>>) -> Hooks {
    let mut all = Hooks::new();
    for hook in hooks {
        all.push(hook.into());
    }
    all
}

fn single_hook(hook: impl Hook + 'static) -> Hooks {
    hooks([Box::new(hook) as Box<dyn Hook>])
}

/// Returns the output of a future at its first poll, outside any runtime.
#[track_caller]
fn poll_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("an answer at the first poll")
}

/// Returns the output of each observing hook at its first poll.
#[track_caller]
fn observed(observers: impl Iterator<Item = Observer>) -> Vec<Result<Vec<Item>, Error>> {
    let mut cx = Context::from_waker(Waker::noop());
    let polled = observers.map(|mut observer| observer.poll(&mut cx));
    let ready = |polled| match polled {
        Poll::Ready(given) => given,
        Poll::Pending => panic!("it is not over at the first poll"),
    };
    polled.map(ready).collect()
}

fn before_tool_returning(answer: CallDecision) -> Box<dyn Hook> {
    Box::new(before_tool(move |_, _| ready(answer.clone())))
}

fn on_stop_returning(answer: StopDecision) -> Box<dyn Hook> {
    Box::new(before_stop(move |_, _| ready(answer.clone())))
}

fn rewrite(arguments: &str) -> CallDecision {
    CallDecision::RewriteArguments(arguments.to_owned())
}

fn deny(why: &str) -> CallDecision {
    CallDecision::Deny(why.to_owned())
}

fn block(text: &str) -> StopDecision {
    StopDecision::Continue(text.to_owned())
}

fn prevent(why: &str) -> StopDecision {
    StopDecision::EndRun(why.to_owned())
}

#[track_caller]
fn check_before_tool<const N: usize>(answers: [CallDecision; N], expected: &CombinedDecision) {
    let hooks = hooks(answers.map(before_tool_returning));
    assert_eq!(&poll_once(hooks.before_tool(&state(), &call("{}"))).unwrap(), expected);
}

#[track_caller]
fn check_stop<const N: usize>(answers: [StopDecision; N], expected: &StopDecision) {
    let hooks = hooks(answers.map(on_stop_returning));
    assert_eq!(&poll_once(hooks.before_stop(&state(), &turn("done"))).unwrap(), expected);
}

/// Checks the kind and message of an error, and the kind and message of its source.
#[track_caller]
fn check_error(error: &Error, named: &str, source: (ErrorKind, &str)) {
    assert_eq!(error.kind(), ErrorKind::Hook, "{error}");
    assert_eq!(error.to_string(), format!("the hook {named}: {}", source.1));
    let found = error.find_source::<Error>().unwrap();
    assert_eq!((found.kind(), found.message()), source);
}

/// A hook with a name.
struct NamedHook<H>(&'static str, H);

impl<H: Hook> Hook for NamedHook<H> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0)
    }

    fn before_tool<'a>(
        &'a self,
        state: &'a State,
        call: &'a ToolCall,
    ) -> HookFuture<'a, CallDecision> {
        self.1.before_tool(state, call)
    }

    fn repair_arguments(&self, state: &State, call: &ToolCall, why: &str) -> Option<String> {
        self.1.repair_arguments(state, call, why)
    }

    fn after_sampling(&self, state: &State, turn: &Arc<Turn>) -> HookFuture<'static, Vec<Item>> {
        self.1.after_sampling(state, turn)
    }

    fn after_tool(&self, state: &State, call: &ToolCall, result: &mut ToolResult) {
        self.1.after_tool(state, call, result);
    }
}

/// A hook that does nothing.
struct NoopHook;

impl Hook for NoopHook {}

#[test]
fn without_hooks_every_method_is_ready_with_its_default() {
    for hooks in [Hooks::new(), single_hook(NoopHook)] {
        let (state, turn) = (Arc::new(state()), turn("hi"));
        let request = Request { model: Some("m".into()), ..Request::new(state.history.clone()) };
        let prepared = poll_once(hooks.transform_request(&state, request)).unwrap();
        assert_eq!((prepared.model.as_deref(), prepared.context.len()), (Some("m"), 0));
        for given in [
            observed(hooks.turn_started(&state)),
            observed(hooks.assistant_message(&state, &turn)),
            observed(hooks.after_sampling(&state, &turn)),
        ] {
            assert!(given.iter().all(|given| *given == Ok(Vec::new())));
        }
        let permitted = poll_once(hooks.before_tool(&state, &call("{}"))).unwrap();
        assert_eq!(permitted, CombinedDecision::Allow { arguments: None });
        assert!(!poll_once(hooks.should_stop(&state)).unwrap());
        assert_eq!(poll_once(hooks.before_stop(&state, &turn)).unwrap(), StopDecision::Allow);
        hooks.on_failure(&state, &Error::new(ErrorKind::Server, "no"));
        hooks.on_finished(&state, &outcome());
    }
    assert!(Hooks::new().is_empty() && !single_hook(NoopHook).is_empty());
}

#[test]
fn the_first_deny_wins_and_later_hooks_are_not_called() {
    use CallDecision::{Allow, RequireApproval};
    check_before_tool([Allow, Allow], &CombinedDecision::Allow { arguments: None });
    let denied = |why: &str| CombinedDecision::Deny { reason: why.to_owned() };
    check_before_tool([Allow, deny("a"), deny("b")], &denied("a"));
    check_before_tool([RequireApproval, deny("a")], &denied("a"));
    check_before_tool([rewrite("{}"), deny("a")], &denied("a"));

    let heard = Shared::<Vec<String>>::default();
    let observer = {
        let heard = heard.clone();
        before_tool(move |_, call| {
            heard.lock().unwrap().push(call.call_id);
            ready(Allow)
        })
    };
    let hooks = hooks([before_tool_returning(deny("a")), Box::new(observer)]);
    poll_once(hooks.before_tool(&state(), &call("{}"))).unwrap();
    assert!(heard.lock().unwrap().is_empty());
}

#[test]
fn require_approval_is_kept_with_earlier_and_later_rewrites() {
    use CallDecision::{Allow, RequireApproval};
    check_before_tool(
        [RequireApproval, Allow],
        &CombinedDecision::RequireApproval { arguments: None },
    );
    let expected = CombinedDecision::RequireApproval { arguments: Some(r#"{"a":2}"#.to_owned()) };
    check_before_tool([rewrite(r#"{"a":1}"#), RequireApproval, rewrite(r#"{"a":2}"#)], &expected);
}

#[test]
fn each_hook_sees_the_arguments_rewritten_so_far() {
    let append = || {
        Box::new(before_tool(|_, call: ToolCall| async move {
            CallDecision::RewriteArguments(call.arguments.replace(']', ",1]"))
        })) as Box<dyn Hook>
    };
    let hooks = hooks([append(), append()]);
    let permitted = poll_once(hooks.before_tool(&state(), &call(r#"{"n":[0]}"#))).unwrap();
    assert_eq!(
        permitted,
        CombinedDecision::Allow { arguments: Some(r#"{"n":[0,1,1]}"#.to_owned()) }
    );
}

#[test]
fn a_rewrite_to_anything_but_an_object_is_an_error() {
    for arguments in ["", "[]", "null", "{", "{} {}"] {
        let hooks = single_hook(NamedHook("r", before_tool_returning(rewrite(arguments))));
        let error = poll_once(hooks.before_tool(&state(), &call("{}"))).unwrap_err();
        let source = (ErrorKind::Other, "the rewritten arguments are not a JSON object");
        check_error(&error, "`r` failed in `before_tool`", source);
    }
}

#[test]
fn block_takes_precedence_over_ending_the_run() {
    use StopDecision::Allow;
    check_stop([Allow, Allow], &Allow);
    check_stop([prevent("a"), prevent("b")], &prevent("a"));
    check_stop([prevent("a"), block("b")], &block("b"));
    check_stop([block("a"), prevent("x"), Allow, block("b")], &block("a\n\nb"));
    let prove = || StopDecision::RequireEvidence { text: "p".to_owned(), reason: "w".to_owned() };
    check_stop([prove(), Allow], &prove());
    check_stop([prove(), prevent("x")], &prevent("x"));
    check_stop([block("a"), prove()], &block("a"));
    check_stop([block(""), prevent("x")], &block(""));
}

#[test]
fn hooks_after_the_first_should_stop_are_not_called() {
    let expected = Shared::<Vec<u8>>::default();
    let hook = |id: u8, answer: bool| {
        let expected = expected.clone();
        Box::new(should_stop(move |_| {
            expected.lock().unwrap().push(id);
            ready(answer)
        })) as Box<dyn Hook>
    };
    let hooks = hooks([hook(1, false), hook(2, true), hook(3, false)]);
    assert!(poll_once(hooks.should_stop(&state())).unwrap());
    assert_eq!(*expected.lock().unwrap(), [1, 2]);
}

#[test]
fn transform_context_runs_in_hook_order_and_leaves_the_history() {
    let push = |text: &'static str| {
        Box::new(transform_context(move |_, mut context| async move {
            context.push(Item::text(text));
            context
        })) as Box<dyn Hook>
    };
    let meddling = prepare_request(|_, mut request| async move {
        assert_eq!(request.context.len(), 3);
        request.history = History::empty("another");
        request.context = History::empty("another");
        request.model = Some("large".into());
        request
    });
    let state = State::new(History::from_items("h", [Item::user("q")]));
    let hooks = hooks([push("a"), Box::new(meddling), push("b")]);
    let request =
        poll_once(hooks.transform_request(&state, Request::new(state.history.clone()))).unwrap();
    let texts: Vec<_> = request.context.iter().filter_map(Item::as_text).collect();
    assert_eq!(texts, ["a", "b"]);
    assert_eq!(request.history, state.history);
    assert_eq!(request.model.as_deref(), Some("large"));
}

#[test]
fn after_response_items_are_collected_from_all_hooks() {
    let saying = |item: Item| {
        Box::new(NamedHook("s", after_sampling(move |_, _| ready(vec![item.clone()]))))
            as Box<dyn Hook>
    };
    let all = hooks([saying(Item::user("1")), saying(Item::system("2"))]);
    let (state, turn) = (Arc::new(state()), turn("hi"));
    let items = observed(all.after_sampling(&state, &turn));
    assert_eq!(items, [Ok(vec![Item::user("1")]), Ok(vec![Item::system("2")])]);

    let answered = ToolResult::for_call(&call("{}"), ResultKind::Ok, "fine");
    let others = [
        Item::text("I said so"),
        Item::reasoning("hm"),
        Item::tool_call("c1", "t", "{}"),
        Item::tool_result(answered),
    ];
    for item in others {
        let hooks = hooks([saying(Item::user("1")), saying(item)]);
        let [ok, error] = &observed(hooks.after_sampling(&state, &turn))[..] else { panic!() };
        assert_eq!(*ok, Ok(vec![Item::user("1")]));
        let error = error.as_ref().unwrap_err();
        let source = (ErrorKind::Other, "it may add only user and system items");
        check_error(error, "`s` failed in `after_sampling`", source);
    }
}

#[test]
fn after_tool_runs_in_hook_order_and_keeps_the_call_id() {
    let append = |text: &'static str| {
        Box::new(after_tool(move |_, call: &ToolCall, result: &mut ToolResult| {
            assert_eq!(call.call_id, "c1");
            result.content = format!("{}{text}", result.content.text()).into();
            result.call_id = "another".into();
            result.name.clear();
            result.kind = ResultKind::Error;
        })) as Box<dyn Hook>
    };
    let hooks = hooks([append("1"), append("2")]);
    let mut result = ToolResult::for_call(&call("{}"), ResultKind::Ok, "0");
    hooks.after_tool(&state(), &call("{}"), &mut result).unwrap();
    assert_eq!(result, ToolResult::for_call(&call("{}"), ResultKind::Error, "012"));
}

#[test]
fn a_panic_in_after_tool_discards_its_change_and_the_other_hooks_still_run() {
    let panicking = after_tool(|_, _: &ToolCall, result: &mut ToolResult| {
        result.content = "".into();
        panic!("boom");
    });
    let redacting = after_tool(|_, _: &ToolCall, result: &mut ToolResult| {
        result.content = result.content.text().replace("secret", "***").into();
    });
    let second = after_tool(|_, _: &ToolCall, _: &mut ToolResult| panic!("boom again"));
    let hooks = hooks([
        Box::new(NamedHook("p", panicking)) as Box<dyn Hook>,
        Box::new(redacting),
        Box::new(second),
    ]);
    let mut result = ToolResult::for_call(&call("{}"), ResultKind::Ok, "a secret");
    let error = hooks.after_tool(&state(), &call("{}"), &mut result).unwrap_err();
    check_error(&error, "`p` failed in `after_tool`", (ErrorKind::Panic, "it panicked: boom"));
    assert_eq!(result.content.text(), "a ***");
}

#[test]
fn hook_futures_are_send() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    fn can_move<T: Send + 'static>() {}
    can_move::<Observer>();
    let (hooks, state, turn) = (Hooks::new(), state(), turn("done"));
    let request = Request::new(state.history.clone());
    poll_once(is_send(hooks.transform_request(&state, request))).unwrap();
    poll_once(is_send(hooks.before_tool(&state, &call("{}")))).unwrap();
    poll_once(is_send(hooks.should_stop(&state))).unwrap();
    poll_once(is_send(hooks.before_stop(&state, &turn))).unwrap();
}

#[test]
fn a_hook_closure_may_return_a_value_or_a_result() {
    fn failing() -> Result<bool, Error> {
        Err(Error::new(ErrorKind::Store, "no"))
    }
    let plain = before_tool(async |_, call: ToolCall| match call.arguments.is_empty() {
        true => CallDecision::RequireApproval,
        false => CallDecision::Allow,
    });
    let fallible = before_tool(|_, _| async move {
        if failing()? {
            return Ok(CallDecision::RequireApproval);
        }
        Ok(CallDecision::Allow)
    });
    let counting = Shared::<u32>::default();
    let capturing = {
        let counting = counting.clone();
        turn_started(move |state| {
            let counting = counting.clone();
            async move { *counting.lock().unwrap() += state.counts.model_calls + 1 }
        })
    };
    let observed = assistant_message(|_, turn| async move {
        assert_eq!(turn.text(), "hi");
        Ok(())
    });
    let (state, turn) = (state(), turn("hi"));
    assert_eq!(poll_once(plain.before_tool(&state, &call(""))), Ok(CallDecision::RequireApproval));
    let error = poll_once(fallible.before_tool(&state, &call(""))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    poll_once(capturing.turn_started(&state)).unwrap();
    assert_eq!(*counting.lock().unwrap(), 1);
    poll_once(observed.assistant_message(&state, &turn)).unwrap();
    assert!(plain.name().contains("a_hook_closure_may_return_a_value_or_a_result"));
}
